// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/reduce_oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace rocenante::reduce::oracle {

namespace {

// ---- formats ----

struct FloatSpec {
  int exponent_bits;
  int mantissa_bits;
  bool saturates;     // results beyond the largest finite number become it
  bool has_infinity;  // false: e4m3, whose top exponent holds numbers, and one NaN per sign
};

FloatSpec spec_of(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return {5, 10, false, true};
    case DataType::kBfloat16:
      return {8, 7, false, true};
    case DataType::kFloat32:
      return {8, 23, false, true};
    case DataType::kFloat8e5m2:
      return {5, 2, true, true};
    default:
      return {4, 3, true, false};
  }
}

double decode_magnitude(const FloatSpec& spec, std::uint64_t bits) {
  const int bias = (1 << (spec.exponent_bits - 1)) - 1;
  const auto mantissa = bits & ((1u << spec.mantissa_bits) - 1);
  const auto exponent = static_cast<int>(bits >> spec.mantissa_bits);
  const int top = (1 << spec.exponent_bits) - 1;
  if (exponent == top) {
    const bool all_ones = mantissa == (1u << spec.mantissa_bits) - 1;
    if (spec.has_infinity ? mantissa != 0 : all_ones) return std::numeric_limits<double>::quiet_NaN();
    if (spec.has_infinity) return std::numeric_limits<double>::infinity();
  }
  const double fraction = std::ldexp(static_cast<double>(mantissa), -spec.mantissa_bits);
  if (exponent == 0) return std::ldexp(fraction, 1 - bias);
  return std::ldexp(1.0 + fraction, exponent - bias);
}

// Every non-negative finite number of a format; the index is the pattern.
const std::vector<double>& numbers_of(DataType type) {
  static std::vector<double> tables[kNumDataTypes];
  std::vector<double>& table = tables[static_cast<std::size_t>(type)];
  if (table.empty()) {
    const FloatSpec spec = spec_of(type);
    for (std::uint64_t bits = 0;; ++bits) {
      const double value = decode_magnitude(spec, bits);
      if (!std::isfinite(value)) break;
      table.push_back(value);
    }
  }
  return table;
}

// The nearest number, ties to the even pattern; `value` is exact.
std::uint64_t encode_small(DataType type, double value) {
  if (std::isnan(value)) return canonical_nan(type);
  const std::vector<double>& numbers = numbers_of(type);
  const FloatSpec spec = spec_of(type);
  const std::uint64_t sign =
      std::signbit(value) ? std::uint64_t{1} << (spec.exponent_bits + spec.mantissa_bits) : 0;
  const double magnitude = std::fabs(value);
  const std::uint64_t largest = numbers.size() - 1;
  if (magnitude >= numbers[largest]) {
    // Beyond the largest number rounding goes on as if there were a next one; that one is infinity.
    const double step = numbers[largest] - numbers[largest - 1];
    const bool overflows = magnitude >= numbers[largest] + step / 2;
    return sign | (overflows && !spec.saturates ? largest + 1 : largest);
  }
  const auto above_it = std::upper_bound(numbers.begin(), numbers.end(), magnitude);
  const auto above = static_cast<std::uint64_t>(above_it - numbers.begin());
  const std::uint64_t below = above - 1;
  const double to_below = magnitude - numbers[below];
  const double to_above = numbers[above] - magnitude;
  if (to_below != to_above) return sign | (to_below < to_above ? below : above);
  return sign | (below % 2 == 0 ? below : above);
}

bool is_signed(DataType type) {
  return type == DataType::kInt8 || type == DataType::kInt32 || type == DataType::kInt64;
}

// ---- one output element ----

template <class T>
T combine(Operator op, T a, T b) {
  return op == Operator::kProd ? a * b : a + b;
}

// By definition: split at the largest power of two below n.
template <class T>
T tree(Operator op, const std::vector<T>& values, std::size_t first, std::size_t n) {
  if (n == 1) return values[first];
  std::size_t left = 1;
  while (left * 2 < n) left *= 2;
  const T a = tree(op, values, first, left);
  const T b = tree(op, values, first + left, n - left);
  return combine(op, a, b);
}

// The extreme of the numbers, no tree: NaN only if there is nothing else.
template <class T>
T extreme(Operator op, const std::vector<T>& values) {
  T best = std::numeric_limits<T>::quiet_NaN();
  const auto less = [](T a, T b) { return a < b || (a == b && std::signbit(a) && !std::signbit(b)); };
  for (const T value : values) {
    if (std::isnan(value)) continue;
    const bool better = std::isnan(best) || (op == Operator::kMax ? less(best, value) : less(value, best));
    if (better) best = value;
  }
  return best;
}

template <class T>
T float_result(Operator op, const std::vector<T>& values) {
  if (op == Operator::kMax || op == Operator::kMin) return extreme(op, values);
  const T combined = tree(op, values, 0, values.size());
  return op == Operator::kAvg ? combined / static_cast<T>(values.size()) : combined;
}

std::uint64_t encode_float32(float value) {
  if (std::isnan(value)) return canonical_nan(DataType::kFloat32);
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

std::uint64_t encode_float64(double value) {
  if (std::isnan(value)) return canonical_nan(DataType::kFloat64);
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

double float64_from(std::uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::int64_t sign_extend(DataType type, std::uint64_t bits) {
  const int unused = static_cast<int>(64 - 8 * element_size(type));
  return static_cast<std::int64_t>(bits << unused) >> unused;
}

std::uint64_t wrap(DataType type, std::uint64_t value) {
  const std::size_t width = 8 * element_size(type);
  return width == 64 ? value : value & ((std::uint64_t{1} << width) - 1);
}

std::uint64_t integer_result(DataType type, Operator op, const std::vector<std::uint64_t>& values) {
  if (op == Operator::kMax || op == Operator::kMin) {
    const auto less = [type](std::uint64_t a, std::uint64_t b) {
      return is_signed(type) ? sign_extend(type, a) < sign_extend(type, b) : a < b;
    };
    return op == Operator::kMax ? *std::max_element(values.begin(), values.end(), less)
                                : *std::min_element(values.begin(), values.end(), less);
  }
  const std::uint64_t combined = wrap(type, tree(op, values, 0, values.size()));
  if (op != Operator::kAvg) return combined;
  if (!is_signed(type)) return combined / values.size();
  return wrap(type, static_cast<std::uint64_t>(sign_extend(type, combined) /
                                               static_cast<std::int64_t>(values.size())));
}

std::uint64_t element_result(DataType type, Operator op, const std::vector<std::uint64_t>& patterns) {
  if (!is_float(type)) return integer_result(type, op, patterns);
  if (type == DataType::kFloat64) {
    std::vector<double> values;
    for (const std::uint64_t bits : patterns) values.push_back(float64_from(bits));
    return encode_float64(float_result(op, values));
  }
  std::vector<float> values;
  for (const std::uint64_t bits : patterns) values.push_back(static_cast<float>(decode(type, bits)));
  const float result = float_result(op, values);
  return type == DataType::kFloat32 ? encode_float32(result) : encode_small(type, double{result});
}

}  // namespace

const char* type_name(DataType type) {
  static constexpr const char* kNames[kNumDataTypes] = {"int8",    "uint8",    "int32",   "uint32",
                                                        "int64",   "uint64",   "float16", "float32",
                                                        "float64", "bfloat16", "e4m3",    "e5m2"};
  return kNames[static_cast<std::size_t>(type)];
}

const char* operator_name(Operator op) {
  static constexpr const char* kNames[kNumOperators] = {"sum", "prod", "max", "min", "avg"};
  return kNames[static_cast<std::size_t>(op)];
}

bool is_float(DataType type) {
  return type >= DataType::kFloat16;
}

std::uint64_t canonical_nan(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return 0x7e00;
    case DataType::kBfloat16:
      return 0x7fc0;
    case DataType::kFloat32:
      return 0x7fc00000;
    case DataType::kFloat64:
      return 0x7ff8000000000000;
    case DataType::kFloat8e4m3:
      return 0x7f;
    case DataType::kFloat8e5m2:
      return 0x7e;
    default:
      return 0;
  }
}

std::uint64_t get_bits(DataType type, const void* data, std::size_t i) {
  const std::size_t size = element_size(type);
  std::uint64_t bits = 0;
  for (std::size_t b = 0; b < size; ++b) {
    bits |= std::uint64_t{static_cast<const std::uint8_t*>(data)[i * size + b]} << (8 * b);
  }
  return bits;
}

void set_bits(DataType type, void* data, std::size_t i, std::uint64_t bits) {
  const std::size_t size = element_size(type);
  for (std::size_t b = 0; b < size; ++b) {
    static_cast<std::uint8_t*>(data)[i * size + b] = static_cast<std::uint8_t>(bits >> (8 * b));
  }
}

double decode(DataType type, std::uint64_t bits) {
  const FloatSpec spec = spec_of(type);
  const std::uint64_t sign = std::uint64_t{1} << (spec.exponent_bits + spec.mantissa_bits);
  const double magnitude = decode_magnitude(spec, bits & (sign - 1));
  return bits & sign ? -magnitude : magnitude;
}

Bytes reduce(DataType type, Operator op, const std::vector<const void*>& inputs, std::size_t count) {
  Bytes out(count * element_size(type));
  std::vector<std::uint64_t> patterns(inputs.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t r = 0; r < inputs.size(); ++r) patterns[r] = get_bits(type, inputs[r], i);
    set_bits(type, out.data(), i, element_result(type, op, patterns));
  }
  return out;
}

// A product of two, rounded like every other: the definition of the pre-multiplied sum.
Bytes scale(DataType type, const void* in, std::size_t count, const void* scalar) {
  Bytes out(count * element_size(type));
  for (std::size_t i = 0; i < count; ++i) {
    const std::vector<std::uint64_t> factors = {get_bits(type, in, i), get_bits(type, scalar, 0)};
    set_bits(type, out.data(), i, element_result(type, Operator::kProd, factors));
  }
  return out;
}

}  // namespace rocenante::reduce::oracle
