// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/verify.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "bench/cli/codecs.h"
#include "bench/cli/generator.h"

namespace rocenante::bench {

namespace {

// Contributions (elements of all ranks) one check may compute; bounds its time for any size and rank count.
constexpr std::size_t kBudget = std::size_t{1} << 21;

// The largest primes below powers of four.
constexpr std::size_t kPrimes[] = {1048573, 262139, 65521, 16381, 4093};

// Elements combined at a time: small enough for one level of the tree to stay in the first-level cache.
constexpr std::size_t kBlock = 512;

template <typename Acc>
Acc combine_ints(OpKind op, Acc a, Acc b) {
  using Wide = std::uint64_t;  // wraps where the narrower signed types would overflow
  switch (op) {
    case OpKind::kProd:
      return static_cast<Acc>(static_cast<Wide>(a) * static_cast<Wide>(b));
    case OpKind::kMax:
      return std::max(a, b);
    case OpKind::kMin:
      return std::min(a, b);
    default:
      return static_cast<Acc>(static_cast<Wide>(a) + static_cast<Wide>(b));
  }
}

// min and max: a number is preferred to NaN, and of two zeros the one with the wanted sign is taken.
template <typename Acc>
Acc pick(bool take_a, bool take_b, Acc a, Acc b, bool negative_zero) {
  if (a != a) return b;
  if (b != b) return a;
  if (take_a) return a;
  if (take_b) return b;
  return std::signbit(a) == negative_zero ? a : b;
}

template <typename Acc>
Acc combine_floats(OpKind op, Acc a, Acc b) {
  switch (op) {
    case OpKind::kProd:
      return a * b;
    case OpKind::kMax:
      return pick(a > b, b > a, a, b, false);
    case OpKind::kMin:
      return pick(a < b, b < a, a, b, true);
    default:
      return a + b;
  }
}

template <typename Format>
typename Format::Acc scalar_value(std::uint32_t rank) {
  if constexpr (Format::kIsFloat) {
    // All are exact in two bits of mantissa; the products are not.
    constexpr float kFactors[] = {1.25f, -0.75f, 1.5f, 0.625f, -1.75f};
    return static_cast<typename Format::Acc>(kFactors[rank % std::size(kFactors)]);
  } else {
    return static_cast<typename Format::Acc>(2 * rank + 3);
  }
}

// The arithmetic of one call over blocks of consecutive elements.
template <typename Format>
class Tree {
 public:
  using Acc = typename Format::Acc;
  using Bits = typename Format::Bits;

  explicit Tree(const Pattern& pattern)
      : pattern_(pattern), ranks_(static_cast<std::uint32_t>(pattern.ranks)) {}

  // The result's elements [first, first + length), length <= kBlock.
  void block(std::size_t first, std::size_t length, Bits* out) const {
    Acc sum[kBlock];
    subtree(0, ranks_, first, length, sum);
    for (std::size_t i = 0; i < length; ++i) out[i] = Format::encode(finish(sum[i]));
  }

 private:
  void subtree(std::uint32_t rank, std::uint32_t n, std::size_t first, std::size_t length, Acc* out) const {
    if (n == 1) {
      leaf(rank, first, length, out);
      return;
    }
    const std::uint32_t left = std::bit_floor(n - 1);
    Acc right[kBlock];
    subtree(rank, left, first, length, out);
    subtree(rank + left, n - left, first, length, right);
    // The operator outside the loop, so that each loop is one that the compiler can vectorise.
    switch (pattern_.op) {
      case OpKind::kProd:
        return merge<OpKind::kProd>(length, out, right);
      case OpKind::kMax:
        return merge<OpKind::kMax>(length, out, right);
      case OpKind::kMin:
        return merge<OpKind::kMin>(length, out, right);
      default:
        return merge<OpKind::kSum>(length, out, right);
    }
  }

  void leaf(std::uint32_t rank, std::size_t first, std::size_t length, Acc* out) const {
    for (std::size_t i = 0; i < length; ++i) {
      out[i] = Format::decode(input_element<Format>(pattern_.call, rank, ranks_, first + i));
    }
    if (pattern_.op != OpKind::kMulSum) return;
    const Acc factor = scalar_value<Format>(rank);
    for (std::size_t i = 0; i < length; ++i) out[i] = Format::decode(Format::encode(scale(out[i], factor)));
  }

  template <OpKind kOp>
  static void merge(std::size_t length, Acc* out, const Acc* right) {
    for (std::size_t i = 0; i < length; ++i) {
      if constexpr (Format::kIsFloat) {
        out[i] = combine_floats(kOp, out[i], right[i]);
      } else {
        out[i] = combine_ints(kOp, out[i], right[i]);
      }
    }
  }

  static Acc scale(Acc value, Acc factor) {
    if constexpr (Format::kIsFloat) {
      return value * factor;
    } else {
      return combine_ints(OpKind::kProd, value, factor);
    }
  }

  Acc finish(Acc sum) const {
    if (pattern_.op != OpKind::kAvg) return sum;
    if constexpr (Format::kIsFloat) {
      return sum / static_cast<Acc>(ranks_);
    } else if constexpr (std::is_signed_v<Acc>) {
      return static_cast<Acc>(std::int64_t{sum} / std::int64_t{ranks_});
    } else {
      return static_cast<Acc>(std::uint64_t{sum} / std::uint64_t{ranks_});
    }
  }

  const Pattern& pattern_;
  std::uint32_t ranks_;
};

// Calls `function.template operator()<Format>()` for the type's format.
template <typename Function>
auto with_format(rcnDataType_t type, Function&& function) {
  switch (type) {
    case rcnInt8:
      return function.template operator()<IntFormat<std::int8_t>>();
    case rcnUint8:
      return function.template operator()<IntFormat<std::uint8_t>>();
    case rcnInt32:
      return function.template operator()<IntFormat<std::int32_t>>();
    case rcnUint32:
      return function.template operator()<IntFormat<std::uint32_t>>();
    case rcnInt64:
      return function.template operator()<IntFormat<std::int64_t>>();
    case rcnUint64:
      return function.template operator()<IntFormat<std::uint64_t>>();
    case rcnFloat16:
      return function.template operator()<Float16>();
    case rcnFloat64:
      return function.template operator()<Float64>();
    case rcnBfloat16:
      return function.template operator()<Bfloat16>();
    case rcnFloat8e4m3:
      return function.template operator()<Float8e4m3>();
    case rcnFloat8e5m2:
      return function.template operator()<Float8e5m2>();
    default:
      return function.template operator()<Float32>();
  }
}

// Repeats the first `period` bytes of `out` to `size` bytes.
void tile(unsigned char* out, std::size_t period, std::size_t size) {
  for (std::size_t done = period; done < size;) {
    const std::size_t length = std::min(done - done % period, size - done);
    std::memcpy(out + done, out, length);
    done += length;
  }
}

template <typename Format>
std::vector<typename Format::Bits> one_period(const Pattern& pattern, std::size_t period) {
  std::vector<typename Format::Bits> out(period);
  const Tree<Format> tree(pattern);
  for (std::size_t first = 0; first < period; first += kBlock) {
    tree.block(first, std::min(kBlock, period - first), out.data() + first);
  }
  return out;
}

template <typename Format>
std::vector<typename Format::Bits> input_period(const Pattern& pattern, int rank, std::size_t period) {
  std::vector<typename Format::Bits> out(period);
  for (std::size_t i = 0; i < period; ++i) {
    out[i] = input_element<Format>(pattern.call, static_cast<std::uint32_t>(rank),
                                   static_cast<std::uint32_t>(pattern.ranks), i);
  }
  return out;
}

// Elements [first, first + count) of what repeats `period`.
template <typename Bits>
Mismatch compare(const std::vector<Bits>& period, std::size_t first, std::size_t count,
                 const void* result) {
  Mismatch mismatch;
  const auto* found = static_cast<const unsigned char*>(result);
  for (std::size_t done = 0; done < count;) {
    const std::size_t at = (first + done) % period.size();
    const std::size_t length = std::min(period.size() - at, count - done);
    if (std::memcmp(period.data() + at, found, length * sizeof(Bits)) != 0) {
      for (std::size_t i = 0; i < length; ++i) {
        Bits bits;
        std::memcpy(&bits, found + i * sizeof(Bits), sizeof(Bits));
        if (bits == period[at + i]) continue;
        if (mismatch.wrong++ == 0) {
          mismatch.index = first + done + i;
          mismatch.expected = period[at + i];
          mismatch.found = bits;
        }
      }
    }
    found += length * sizeof(Bits);
    done += length;
  }
  return mismatch;
}

}  // namespace

std::size_t pattern_period(std::size_t count, int ranks) {
  const std::size_t affordable = kBudget / static_cast<std::size_t>(std::max(ranks, 1));
  if (count <= affordable) return count;
  for (const std::size_t prime : kPrimes) {
    if (prime <= affordable && prime < count) return prime;
  }
  return std::min(count, std::end(kPrimes)[-1]);
}

void fill_input(const Pattern& pattern, int rank, void* out) {
  if (pattern.count == 0) return;
  const std::size_t period = pattern_period(pattern.count, pattern.ranks);
  auto* const bytes = static_cast<unsigned char*>(out);
  with_format(pattern.type, [&]<typename Format>() {
    using Bits = typename Format::Bits;
    for (std::size_t i = 0; i < period; ++i) {
      const Bits bits = input_element<Format>(pattern.call, static_cast<std::uint32_t>(rank),
                                              static_cast<std::uint32_t>(pattern.ranks), i);
      std::memcpy(bytes + i * sizeof(Bits), &bits, sizeof(Bits));
    }
    tile(bytes, period * sizeof(Bits), pattern.count * sizeof(Bits));
  });
}

Scalar premul_scalar(rcnDataType_t type, int rank) {
  Scalar scalar{};
  with_format(type, [&]<typename Format>() {
    const typename Format::Bits bits =
        Format::encode(scalar_value<Format>(static_cast<std::uint32_t>(rank)));
    std::memcpy(scalar.bytes, &bits, sizeof(bits));
  });
  return scalar;
}

Mismatch check_result(const Pattern& pattern, std::size_t first, std::size_t count, const void* found) {
  if (count == 0) return {};
  const std::size_t period = pattern_period(pattern.count, pattern.ranks);
  return with_format(pattern.type, [&]<typename Format>() {
    return compare(one_period<Format>(pattern, period), first, count, found);
  });
}

Mismatch check_copy(const Pattern& pattern, int rank, std::size_t first, std::size_t count,
                    const void* found) {
  if (count == 0) return {};
  const std::size_t period = pattern_period(pattern.count, pattern.ranks);
  return with_format(pattern.type, [&]<typename Format>() {
    return compare(input_period<Format>(pattern, rank, period), first, count, found);
  });
}

void expected_result(const Pattern& pattern, void* out) {
  if (pattern.count == 0) return;
  const std::size_t period = pattern_period(pattern.count, pattern.ranks);
  auto* const bytes = static_cast<unsigned char*>(out);
  with_format(pattern.type, [&]<typename Format>() {
    const auto expected = one_period<Format>(pattern, period);
    const std::size_t size = sizeof(typename Format::Bits);
    std::memcpy(bytes, expected.data(), period * size);
    tile(bytes, period * size, pattern.count * size);
  });
}

}  // namespace rocenante::bench
