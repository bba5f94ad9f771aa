// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "bench/cli/codecs.h"
#include "tests/support/catch.h"

using namespace rocenante::bench;

namespace {

// The value of a small format's bits by its definition, in double, which holds all of them exactly.
template <typename Format>
double defined_value(typename Format::Bits bits) {
  const unsigned magnitude = bits & (Format::kSign - 1u);
  const int exponent = static_cast<int>(magnitude >> Format::kMantissa);
  const double fraction = magnitude & ((1u << Format::kMantissa) - 1);
  const double value = exponent == 0
                           ? std::ldexp(fraction, 1 - Format::kBias - static_cast<int>(Format::kMantissa))
                           : std::ldexp(fraction + (1u << Format::kMantissa),
                                        exponent - Format::kBias - static_cast<int>(Format::kMantissa));
  return (bits & Format::kSign) != 0 ? -value : value;
}

template <typename Format>
void check_round_trips(bool has_infinity) {
  using Bits = typename Format::Bits;
  unsigned wrong_values = 0;
  unsigned wrong_trips = 0;
  unsigned nans = 0;
  for (unsigned i = 0; i < (1u << (8 * sizeof(Bits))); ++i) {
    const auto bits = static_cast<Bits>(i);
    const unsigned magnitude = bits & (Format::kSign - 1u);
    const float value = Format::decode(bits);
    const bool is_nan = has_infinity ? magnitude > Format::kInfinity : magnitude == Format::kNan;
    if (is_nan) {
      ++nans;
      wrong_values += !std::isnan(value);
      wrong_trips += Format::encode(value) != Format::kNan;
      continue;
    }
    if (has_infinity && magnitude == Format::kInfinity) {
      wrong_values += !std::isinf(value);
    } else {
      wrong_values += static_cast<double>(value) != defined_value<Format>(bits);
      wrong_trips += Format::encode(value) != bits;
    }
    wrong_values += std::signbit(value) != ((bits & Format::kSign) != 0);
  }
  CHECK(wrong_values == 0);
  CHECK(wrong_trips == 0);
  CHECK(nans > 0);
}

// Rounding by search: the nearest finite number, the even one of two that are equally near.
template <typename Format>
void check_rounding(bool saturates) {
  using Bits = typename Format::Bits;
  std::vector<double> numbers;
  for (unsigned i = 0; i <= Format::kLargest; ++i)
    numbers.push_back(defined_value<Format>(static_cast<Bits>(i)));
  const double step = numbers.back() - numbers[numbers.size() - 2];

  std::vector<float> inputs;
  for (std::size_t i = 0; i + 1 < numbers.size(); ++i) {
    const auto middle = static_cast<float>((numbers[i] + numbers[i + 1]) / 2);
    inputs.insert(inputs.end(), {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, HUGE_VALF)});
  }
  std::mt19937 random(3);
  for (int i = 0; i < 200000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random() & 0x7fffffffu));
    if (!std::isnan(value)) inputs.push_back(value);
  }
  const auto edge = static_cast<float>(numbers.back() + step / 2);
  inputs.insert(inputs.end(), {edge, std::nextafter(edge, 0.0f), HUGE_VALF, 3e38f, 1e-45f, 0.0f});

  unsigned wrong = 0;
  for (const float input : inputs) {
    const double value = input;
    Bits expected;
    if (value >= numbers.back() + step / 2) {
      expected = saturates ? Format::kLargest : Format::kInfinity;
    } else {
      const auto above = std::lower_bound(numbers.begin(), numbers.end(), value);
      std::size_t index =
          above == numbers.end() ? numbers.size() - 1 : static_cast<std::size_t>(above - numbers.begin());
      if (index > 0 && above != numbers.end()) {
        const double up = numbers[index] - value;
        const double down = value - numbers[index - 1];
        if (down < up || (down == up && index % 2 == 1)) --index;
      }
      expected = static_cast<Bits>(index);
    }
    wrong += Format::encode(input) != expected;
    wrong += Format::encode(-input) != static_cast<Bits>(expected | Format::kSign);
  }
  CHECK(wrong == 0);
}

template <typename T>
std::vector<T> input_of(const Pattern& pattern, int rank) {
  std::vector<T> out(pattern.count);
  fill_input(pattern, rank, out.data());
  return out;
}

template <typename T>
std::vector<T> result_of(const Pattern& pattern) {
  std::vector<T> out(pattern.count);
  expected_result(pattern, out.data());
  return out;
}

bool same_or_nan(float expected, float found) {
  if (std::isnan(expected)) return std::bit_cast<std::uint32_t>(found) == 0x7fc00000u;
  return std::bit_cast<std::uint32_t>(expected) == std::bit_cast<std::uint32_t>(found);
}

}  // namespace

TEST_CASE("every number of the small formats survives decoding and encoding") {
  check_round_trips<Float16>(true);
  check_round_trips<Bfloat16>(true);
  check_round_trips<Float8e4m3>(false);
  check_round_trips<Float8e5m2>(true);
}

TEST_CASE("encoding rounds to nearest, ties to even") {
  check_rounding<Float16>(false);
  check_rounding<Bfloat16>(false);
  check_rounding<Float8e4m3>(true);
  check_rounding<Float8e5m2>(true);
}

TEST_CASE("constants of the formats are the documented ones") {
  CHECK(Float16::kNan == 0x7e00);
  CHECK(Bfloat16::kNan == 0x7fc0);
  CHECK(Float8e4m3::kNan == 0x7f);
  CHECK(Float8e5m2::kNan == 0x7e);
  CHECK(Float32::kNan == 0x7fc00000u);
  CHECK(Float64::kNan == 0x7ff8000000000000u);
  CHECK(Float8e4m3::decode(Float8e4m3::kLargest) == 448.0f);
  CHECK(Float8e5m2::decode(Float8e5m2::kLargest) == 57344.0f);
  CHECK(Float32::encode(-std::nanf("1")) == 0x7fc00000u);
  CHECK(Float8e4m3::encode(-HUGE_VALF) == 0xfe);
}

TEST_CASE("sums follow the balanced tree") {
  constexpr std::size_t kCount = 5000;
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7}) {
    const Pattern pattern{rcnFloat32, OpKind::kSum, ranks, kCount, 17};
    std::vector<std::vector<float>> in;
    for (int rank = 0; rank < 7; ++rank)
      in.push_back(rank < ranks ? input_of<float>(pattern, rank) : in[0]);
    const std::vector<float> found = result_of<float>(pattern);
    std::size_t wrong = 0;
    std::size_t order_matters = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const float a = in[0][i], b = in[1][i], c = in[2][i], d = in[3][i], e = in[4][i], f = in[5][i],
                  g = in[6][i];
      const float expected[] = {a,
                                a + b,
                                (a + b) + c,
                                (a + b) + (c + d),
                                ((a + b) + (c + d)) + e,
                                ((a + b) + (c + d)) + (e + f),
                                ((a + b) + (c + d)) + ((e + f) + g)};
      wrong += !same_or_nan(expected[ranks - 1], found[i]);
      float left = in[0][i];
      for (int rank = 1; rank < ranks; ++rank) left += in[static_cast<std::size_t>(rank)][i];
      order_matters += !same_or_nan(left, found[i]);
    }
    INFO(ranks << " ranks");
    CHECK(wrong == 0);
    // Inputs on which a ring's order gives the same bits would prove nothing.
    if (ranks >= 4) CHECK(order_matters > kCount / 20);
  }
}

TEST_CASE("averages divide once, integers truncate towards zero") {
  const Pattern pattern{rcnInt8, OpKind::kAvg, 3, 4000, 2};
  std::vector<std::vector<std::int8_t>> in;
  for (int rank = 0; rank < 3; ++rank) in.push_back(input_of<std::int8_t>(pattern, rank));
  const std::vector<std::int8_t> found = result_of<std::int8_t>(pattern);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < pattern.count; ++i) {
    const auto sum = static_cast<std::int8_t>(in[0][i] + in[1][i] + in[2][i]);
    wrong += found[i] != sum / 3;
  }
  CHECK(wrong == 0);
}

TEST_CASE("pre-multiplied sums round each product before adding") {
  const Pattern pattern{rcnBfloat16, OpKind::kMulSum, 2, 4000, 2};
  const std::vector<std::uint16_t> a = input_of<std::uint16_t>(pattern, 0);
  const std::vector<std::uint16_t> b = input_of<std::uint16_t>(pattern, 1);
  const std::vector<std::uint16_t> found = result_of<std::uint16_t>(pattern);
  std::uint16_t factor[2];
  for (int rank = 0; rank < 2; ++rank)
    std::memcpy(&factor[rank], premul_scalar(rcnBfloat16, rank).bytes, 2);
  const auto product = [&factor](std::uint16_t value, int rank) {
    return Bfloat16::decode(Bfloat16::encode(Bfloat16::decode(value) * Bfloat16::decode(factor[rank])));
  };
  std::size_t wrong = 0;
  std::size_t rounding_matters = 0;
  for (std::size_t i = 0; i < pattern.count; ++i) {
    wrong += found[i] != Bfloat16::encode(product(a[i], 0) + product(b[i], 1));
    const float unrounded = Bfloat16::decode(a[i]) * Bfloat16::decode(factor[0]) +
                            Bfloat16::decode(b[i]) * Bfloat16::decode(factor[1]);
    rounding_matters += found[i] != Bfloat16::encode(unrounded);
  }
  CHECK(wrong == 0);
  CHECK(rounding_matters > 0);
}

TEST_CASE("minima and maxima prefer numbers to NaN and order zeros") {
  for (const OpKind op : {OpKind::kMin, OpKind::kMax}) {
    const Pattern pattern{rcnFloat32, op, 2, 20000, 5};
    const std::vector<float> a = input_of<float>(pattern, 0);
    const std::vector<float> b = input_of<float>(pattern, 1);
    const std::vector<float> found = result_of<float>(pattern);
    std::size_t wrong = 0;
    std::size_t nans = 0;
    std::size_t zeros = 0;
    for (std::size_t i = 0; i < pattern.count; ++i) {
      float expected;
      if (std::isnan(a[i]) || std::isnan(b[i])) {
        ++nans;
        expected = std::isnan(a[i]) ? b[i] : a[i];
      } else if (a[i] == 0 && b[i] == 0 && std::signbit(a[i]) != std::signbit(b[i])) {
        ++zeros;
        expected = op == OpKind::kMin ? -0.0f : 0.0f;
      } else {
        expected = op == OpKind::kMin ? std::min(a[i], b[i]) : std::max(a[i], b[i]);
      }
      wrong += !same_or_nan(expected, found[i]);
    }
    CHECK(wrong == 0);
    CHECK(nans > 0);
    CHECK(zeros > 0);
  }
}

TEST_CASE("one wrong bit anywhere is found, for every type and operator") {
  for (const TypeInfo& type : all_types()) {
    for (const OpInfo& op : all_ops()) {
      // Small, and large enough for the inputs to repeat.
      for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, (std::size_t{3} << 20) + 5}) {
        if (count > 1000 && op.kind != OpKind::kSum) continue;
        const Pattern pattern{type.value, op.kind, 3, count, 9};
        std::vector<unsigned char> buffer(count * type.size);
        expected_result(pattern, buffer.data());
        INFO(type.name << " " << op.name << " " << count);
        CHECK(check_result(pattern, buffer.data()).wrong == 0);
        const std::size_t index = count - 1 - count / 3;
        buffer[index * type.size] ^= 1;
        const Mismatch mismatch = check_result(pattern, buffer.data());
        CHECK(mismatch.wrong == 1);
        CHECK(mismatch.index == index);
        CHECK(mismatch.expected == (mismatch.found ^ 1));
      }
    }
  }
}

TEST_CASE("pieces that land in the wrong place are found") {
  constexpr std::size_t kCount = std::size_t{4} << 20;
  const Pattern pattern{rcnFloat32, OpKind::kSum, 2, kCount, 3};
  REQUIRE(pattern_period(kCount, 2) < kCount);
  const std::vector<float> right = result_of<float>(pattern);
  for (const std::size_t piece :
       {std::size_t{1} << 10, std::size_t{1} << 16, std::size_t{1} << 18, std::size_t{1} << 20}) {
    std::vector<float> wrong = right;
    std::swap_ranges(wrong.begin(), wrong.begin() + static_cast<std::ptrdiff_t>(piece),
                     wrong.begin() + static_cast<std::ptrdiff_t>(piece));
    CHECK(check_result(pattern, wrong.data()).wrong > piece);
  }
}

TEST_CASE("parts of results and of inputs are checked where they stand, across periods") {
  constexpr std::size_t kCount = std::size_t{3} << 20;
  const Pattern pattern{rcnInt32, OpKind::kSum, 3, kCount, 4};
  const std::size_t period = pattern_period(kCount, 3);
  REQUIRE(period < kCount);
  const std::vector<std::int32_t> input = input_of<std::int32_t>(pattern, 1);
  const std::vector<std::int32_t> result = result_of<std::int32_t>(pattern);
  const std::size_t first = period - 5;
  CHECK(check_copy(pattern, 1, first, 1000, input.data() + first).wrong == 0);
  CHECK(check_copy(pattern, 2, first, 1000, input.data() + first).wrong > 900);
  CHECK(check_copy(pattern, 1, first, 1000, input.data() + first + 1).wrong > 900);
  CHECK(check_result(pattern, first, 1000, result.data() + first).wrong == 0);
  std::vector<std::int32_t> wrong(result.begin() + static_cast<std::ptrdiff_t>(first), result.end());
  wrong[7] ^= 1;
  const Mismatch mismatch = check_result(pattern, first, 1000, wrong.data());
  CHECK(mismatch.wrong == 1);
  CHECK(mismatch.index == first + 7);
  CHECK(check_copy(pattern, 0, 0, 0, nullptr).wrong == 0);
}

TEST_CASE("inputs differ between calls, ranks and elements") {
  for (const TypeInfo& type : all_types()) {
    const Pattern pattern{type.value, OpKind::kSum, 4, 4096, 1};
    Pattern next = pattern;
    next.call = 2;
    std::vector<unsigned char> a(4096 * type.size);
    std::vector<unsigned char> b(a.size());
    const auto equal_elements = [&] {
      std::size_t equal = 0;
      for (std::size_t i = 0; i < 4096; ++i)
        equal += std::memcmp(&a[i * type.size], &b[i * type.size], type.size) == 0;
      return equal;
    };
    INFO(type.name);
    fill_input(pattern, 0, a.data());
    fill_input(next, 0, b.data());
    CHECK(equal_elements() < 4096 / 8);
    fill_input(pattern, 1, b.data());
    CHECK(equal_elements() < 4096 / 8);
    std::memcpy(b.data(), a.data() + type.size, a.size() - type.size);
    CHECK(equal_elements() < 4096 / 8);
  }
}

TEST_CASE("periods are bounded for many ranks, and prime where they are shorter than the call") {
  CHECK(pattern_period(0, 2) == 0);
  CHECK(pattern_period(2, 1024) == 2);
  CHECK(pattern_period(1 << 18, 8) == 1 << 18);
  for (const int ranks : {1, 2, 8, 64, 1024}) {
    const std::size_t period = pattern_period(std::size_t{1} << 26, ranks);
    CHECK(period * static_cast<std::size_t>(ranks) <= (std::size_t{4} << 20));
    for (std::size_t divisor = 2; divisor * divisor <= period; ++divisor) {
      if (period % divisor == 0) FAIL(period << " is divisible by " << divisor);
    }
  }
}
