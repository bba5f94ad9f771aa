// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/reduce_cases.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace rocenante::reduce::cases {

namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr std::uint8_t kGuard = 0xa5;

// Widths of a float format's fields.
struct Fields {
  int exponent;
  int mantissa;

  std::uint64_t sign_bit() const { return std::uint64_t{1} << (exponent + mantissa); }
  std::uint64_t top() const { return (std::uint64_t{1} << exponent) - 1; }
  std::uint64_t mantissa_mask() const { return (std::uint64_t{1} << mantissa) - 1; }
  std::uint64_t make(std::uint64_t exponent_field, std::uint64_t mantissa_field) const {
    return (exponent_field << mantissa) | (mantissa_field & mantissa_mask());
  }
};

Fields fields_of(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return {5, 10};
    case DataType::kBfloat16:
      return {8, 7};
    case DataType::kFloat32:
      return {8, 23};
    case DataType::kFloat64:
      return {11, 52};
    case DataType::kFloat8e4m3:
      return {4, 3};
    default:
      return {5, 2};
  }
}

std::uint64_t special_float(DataType type, std::mt19937_64& random) {
  const Fields f = fields_of(type);
  const std::uint64_t magnitudes[] = {
      0,                                           // zero
      1,                                           // smallest subnormal
      f.mantissa_mask(),                           // largest subnormal
      f.make(1, 0),                                // smallest normal
      f.make(f.top() / 2, 0),                      // one
      f.make(f.top() - 1, ~0ull),                  // largest finite number, but for e4m3
      f.make(f.top(), ~0ull - 1),                  // largest finite number of e4m3
      f.make(f.top(), 0),                          // infinity, but for e4m3
      f.make(f.top(), ~0ull),                      // a NaN
      f.make(f.top(), f.mantissa_mask() / 2 + 1),  // the canonical NaN, but for e4m3
      f.make(f.top(), 1),                          // a signalling NaN, but for e4m3
  };
  const std::uint64_t sign = random() % 2 == 0 ? 0 : f.sign_bit();
  return sign | magnitudes[random() % std::size(magnitudes)];
}

std::uint64_t float_with_exponent(const Fields& f, std::uint64_t exponent, std::mt19937_64& random) {
  return (random() % 2 == 0 ? 0 : f.sign_bit()) | f.make(exponent, random());
}

std::uint64_t element(DataType type, std::size_t i, std::mt19937_64& random) {
  const std::size_t kind = i % 7;
  if (kind == 0) return random();
  if (kind == 4 || (kind == 2 && random() % 4 == 0)) return special(type, random);
  if (!oracle::is_float(type)) return random();
  const Fields f = fields_of(type);
  const std::uint64_t one = f.top() / 2;
  switch (kind) {
    case 3:
      return float_with_exponent(f, one, random);
    case 5:
      return float_with_exponent(f, f.top() - 1, random);
    case 6:
      return float_with_exponent(f, random() % 2, random);
    default:
      return float_with_exponent(f, one - 2 + random() % 5, random);
  }
}

}  // namespace

std::uint64_t seed() {
  const char* text = std::getenv("ROCENANTE_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : 20240229;
}

std::vector<DataType> all_types() {
  std::vector<DataType> types;
  for (std::uint32_t t = 0; t < kNumDataTypes; ++t) types.push_back(static_cast<DataType>(t));
  return types;
}

std::vector<Operator> all_operators() {
  std::vector<Operator> operators;
  for (std::uint32_t op = 0; op < kNumOperators; ++op) operators.push_back(static_cast<Operator>(op));
  return operators;
}

std::vector<const Kernels*> runnable_kernels() {
  std::vector<const Kernels*> runnable;
  for (const char* const* name = built_targets(); *name != nullptr; ++name) {
    if (const Kernels* kernels = find_kernels(*name)) runnable.push_back(kernels);
  }
  return runnable;
}

ReduceFn reduce_of(const Kernels& kernels, DataType type, Operator op) {
  return kernels.reduce[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
}

ScaleFn scale_of(const Kernels& kernels, DataType type) {
  return kernels.scale[static_cast<std::size_t>(type)];
}

std::uint64_t special(DataType type, std::mt19937_64& random) {
  if (oracle::is_float(type)) return special_float(type, random);
  const std::uint64_t top_bit = std::uint64_t{1} << (8 * element_size(type) - 1);
  const std::uint64_t patterns[] = {0, 1, ~0ull, top_bit, top_bit - 1, top_bit + 1, 2};
  return patterns[random() % std::size(patterns)];
}

Bytes elements(DataType type, std::size_t count, std::mt19937_64& random) {
  Bytes bytes(count * element_size(type));
  for (std::size_t i = 0; i < count; ++i) oracle::set_bits(type, bytes.data(), i, element(type, i, random));
  return bytes;
}

Inputs::Inputs(const std::vector<Bytes>& ranks, std::size_t misalign) : misalign_(misalign) {
  for (const Bytes& rank : ranks) {
    Bytes block(misalign + rank.size());
    std::copy(rank.begin(), rank.end(), block.begin() + static_cast<std::ptrdiff_t>(misalign));
    blocks_.push_back(std::move(block));
  }
  for (const Bytes& block : blocks_) pointers_.push_back(block.data() + misalign);
}

GuardedOutput::GuardedOutput(std::size_t bytes, std::size_t misalign)
    : begin_(kGuardBytes + misalign), end_(begin_ + bytes), block_(end_ + kGuardBytes, kGuard) {}

bool GuardedOutput::guards_intact() const {
  const auto is_guard = [](std::uint8_t byte) { return byte == kGuard; };
  const auto at = [this](std::size_t i) { return block_.begin() + static_cast<std::ptrdiff_t>(i); };
  return std::all_of(block_.begin(), at(begin_), is_guard) && std::all_of(at(end_), block_.end(), is_guard);
}

std::vector<Bytes> random_ranks(DataType type, std::size_t n, std::size_t count, std::mt19937_64& random) {
  std::vector<Bytes> ranks;
  for (std::size_t r = 0; r < n; ++r) ranks.push_back(elements(type, count, random));
  return ranks;
}

std::string difference(DataType type, const void* expected, const void* actual, std::size_t count) {
  if (count == 0 || std::memcmp(expected, actual, count * element_size(type)) == 0) return {};
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t want = oracle::get_bits(type, expected, i);
    const std::uint64_t got = oracle::get_bits(type, actual, i);
    if (want == got) continue;
    std::ostringstream text;
    text << "element " << i << " of " << count << " is 0x" << std::hex << got << ", should be 0x" << want;
    return text.str();
  }
  return {};
}

}  // namespace rocenante::reduce::cases
