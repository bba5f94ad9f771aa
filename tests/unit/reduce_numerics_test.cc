// SPDX-License-Identifier: Apache-2.0
//
// What docs/numerics.md promises, by known answers, by exhaustion where a format is small enough, and under
// every floating-point environment a caller can have set.
#include <cmath>
#include <cstring>
#include <utility>

#include "tests/support/catch.h"
#include "tests/unit/reduce_cases.h"

namespace rocenante::reduce {
namespace {

using cases::Bytes;
using Patterns = std::vector<std::uint64_t>;

// Enough copies of one element for every vector path, and the answer of all of them.
constexpr std::size_t kCopies = 70;

Bytes repeat(DataType type, std::uint64_t bits, std::size_t count) {
  Bytes bytes(count * element_size(type));
  for (std::size_t i = 0; i < count; ++i) oracle::set_bits(type, bytes.data(), i, bits);
  return bytes;
}

// The oracle is held to the known answers, too.
void check_answer(DataType type, Operator op, const Patterns& ranks, std::uint64_t answer) {
  std::vector<Bytes> blocks;
  for (const std::uint64_t bits : ranks) blocks.push_back(repeat(type, bits, kCopies));
  const cases::Inputs inputs(blocks, 0);
  const Bytes expected = repeat(type, answer, kCopies);
  INFO(oracle::type_name(type) << " " << oracle::operator_name(op));
  CHECK(cases::difference(type, expected.data(), oracle::reduce(type, op, inputs.pointers(), 1).data(),
                          1) == "");
  for (const Kernels* kernels : cases::runnable_kernels()) {
    INFO("target " << kernels->target);
    for (const std::size_t count : {std::size_t{1}, kCopies}) {
      Bytes out(count * element_size(type));
      cases::reduce_of(*kernels, type, op)(out.data(), inputs.pointers().data(),
                                           static_cast<std::uint32_t>(ranks.size()), count);
      CHECK(cases::difference(type, expected.data(), out.data(), count) == "");
    }
  }
}

void check_against_oracle(DataType type, Operator op, const std::vector<Bytes>& ranks, std::size_t count) {
  const cases::Inputs inputs(ranks, 0);
  const Bytes expected = oracle::reduce(type, op, inputs.pointers(), count);
  for (const Kernels* kernels : cases::runnable_kernels()) {
    INFO(kernels->target << "/" << oracle::type_name(type) << "/" << oracle::operator_name(op));
    Bytes out(count * element_size(type));
    cases::reduce_of(*kernels, type, op)(out.data(), inputs.pointers().data(),
                                         static_cast<std::uint32_t>(ranks.size()), count);
    REQUIRE(cases::difference(type, expected.data(), out.data(), count) == "");
  }
}

std::uint64_t fp32(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

}  // namespace

TEST_CASE("ranks combine in a balanced tree split at powers of two", "[reduce]") {
  const std::uint64_t big = fp32(0x1p24f);
  const std::uint64_t one = fp32(1);
  const std::uint64_t two = fp32(2);
  // (big + 1) + 1 loses both; a tree that joined the ones first would not.
  check_answer(DataType::kFloat32, Operator::kSum, {big, one, one}, big);
  // (big + 1) + (1 + 1).
  check_answer(DataType::kFloat32, Operator::kSum, {big, one, one, one}, fp32(0x1p24f + 2));
  // ((1 + 1) + (1 + 1)) + (big + 1).
  check_answer(DataType::kFloat32, Operator::kSum, {one, one, one, one, big, one}, fp32(0x1p24f + 4));
  // Five are four and one, not three and two: ((big + 1) + (1 + 2)) + 1 = (big + 4, a tie to even) + 1.
  check_answer(DataType::kFloat32, Operator::kSum, {big, one, one, two, one}, fp32(0x1p24f + 4));
  // Seven: the second half is (4, 5) and 6.
  check_answer(DataType::kFloat32, Operator::kSum, {0, 0, 0, 0, big, one, one}, big);
}

TEST_CASE("sums of small floats are rounded once", "[reduce]") {
  // bf16: (1 + 2^-9) + (2^-9 + 2^-10) is above the tie 1 + 2^-8; rounding 1 + 2^-9 first would lose it.
  check_answer(DataType::kBfloat16, Operator::kSum, {0x3f80, 0x3b00, 0x3b00, 0x3a80}, 0x3f81);
  // fp16: 1 + 2^-12 + 2^-12 + 2^-13, tie at 1 + 2^-11.
  check_answer(DataType::kFloat16, Operator::kSum, {0x3c00, 0x0c00, 0x0c00, 0x0800}, 0x3c01);
  // fp16: the tie itself goes to even, down from 1 and up from 1 + 2^-10.
  check_answer(DataType::kFloat16, Operator::kSum, {0x3c00, 0x1000}, 0x3c00);
  check_answer(DataType::kFloat16, Operator::kSum, {0x3c01, 0x1000}, 0x3c02);
  // fp16: 65504 + 65504 passes through fp32 unharmed when something takes it back.
  check_answer(DataType::kFloat16, Operator::kSum, {0x7bff, 0x7bff, 0xfbff, 0x0000}, 0x7bff);
}

TEST_CASE("overflow gives infinity, and the largest number in fp8", "[reduce]") {
  check_answer(DataType::kFloat16, Operator::kSum, {0x7bff, 0x7bff}, 0x7c00);
  check_answer(DataType::kBfloat16, Operator::kSum, {0xff7f, 0xff7f}, 0xff80);
  check_answer(DataType::kFloat32, Operator::kSum, {0x7f7fffff, 0x7f7fffff}, 0x7f800000);
  check_answer(DataType::kFloat8e4m3, Operator::kSum, {0x7e, 0x7e}, 0x7e);
  check_answer(DataType::kFloat8e4m3, Operator::kSum, {0xfe, 0xfe}, 0xfe);
  check_answer(DataType::kFloat8e5m2, Operator::kSum, {0x7b, 0x7b}, 0x7b);
  // An infinity that comes in is one until the result is rounded.
  check_answer(DataType::kFloat8e5m2, Operator::kSum, {0x7c, 0x3c}, 0x7b);
  check_answer(DataType::kFloat8e5m2, Operator::kSum, {0xfc}, 0xfb);
  check_answer(DataType::kFloat8e5m2, Operator::kSum, {0x7c, 0xfc}, 0x7e);
  check_answer(DataType::kFloat8e5m2, Operator::kMax, {0x7c, 0x3c}, 0x7b);
  check_answer(DataType::kFloat8e5m2, Operator::kAvg, {0x7c, 0x3c}, 0x7b);
}

TEST_CASE("every NaN result is the canonical one", "[reduce]") {
  const std::pair<DataType, std::uint64_t> ugly_nans[] = {
      {DataType::kFloat16, 0xfd55},     {DataType::kBfloat16, 0xff81},
      {DataType::kFloat32, 0xffa00001}, {DataType::kFloat64, 0xfff0000000000001},
      {DataType::kFloat8e4m3, 0xff},    {DataType::kFloat8e5m2, 0xfd},
  };
  for (const auto& [type, nan] : ugly_nans) {
    for (const Operator op : cases::all_operators()) {
      check_answer(type, op, {nan}, oracle::canonical_nan(type));
      check_answer(type, op, {nan, nan}, oracle::canonical_nan(type));
      check_answer(type, op, {nan, nan, nan}, oracle::canonical_nan(type));
      const bool ordered = op == Operator::kMax || op == Operator::kMin;
      check_answer(type, op, {0, nan, 0}, ordered ? 0 : oracle::canonical_nan(type));
    }
  }
  check_answer(DataType::kFloat32, Operator::kProd, {0x7f800000, 0x80000000}, 0x7fc00000);
  check_answer(DataType::kFloat64, Operator::kSum, {0x7ff0000000000000, 0xfff0000000000000},
               0x7ff8000000000000);
}

TEST_CASE("maximum and minimum order zeros and prefer numbers", "[reduce]") {
  for (const DataType type : cases::all_types()) {
    if (!oracle::is_float(type)) continue;
    const std::uint64_t minus_zero = std::uint64_t{1} << (8 * element_size(type) - 1);
    check_answer(type, Operator::kMax, {minus_zero, 0}, 0);
    check_answer(type, Operator::kMax, {0, minus_zero}, 0);
    check_answer(type, Operator::kMin, {minus_zero, 0}, minus_zero);
    check_answer(type, Operator::kMin, {0, minus_zero}, minus_zero);
    check_answer(type, Operator::kSum, {minus_zero}, minus_zero);
    check_answer(type, Operator::kSum, {minus_zero, minus_zero}, minus_zero);
    check_answer(type, Operator::kSum, {0, minus_zero}, 0);
  }
}

TEST_CASE("integers wrap, and their averages truncate the wrapped sum", "[reduce]") {
  check_answer(DataType::kUint8, Operator::kSum, {200, 100}, 44);
  check_answer(DataType::kUint8, Operator::kAvg, {200, 100}, 22);
  check_answer(DataType::kInt8, Operator::kAvg, {100, 100}, 0xe4);              // -56 / 2
  check_answer(DataType::kInt32, Operator::kAvg, {0xfffffff9, 0}, 0xfffffffd);  // -7 / 2 = -3
  check_answer(DataType::kUint32, Operator::kAvg, {0xfffffff9, 0}, 0x7ffffffc);
  check_answer(DataType::kInt64, Operator::kAvg, {~0ull, 0, 0}, 0);
  check_answer(DataType::kInt64, Operator::kSum, {0x7fffffffffffffff, 1}, 0x8000000000000000);
  check_answer(DataType::kUint64, Operator::kProd, {0x100000001, 0x100000001}, 0x200000001);
  check_answer(DataType::kInt8, Operator::kProd, {0x80, 0xff}, 0x80);
  check_answer(DataType::kInt8, Operator::kMax, {0x80, 0x7f, 0xff}, 0x7f);
  check_answer(DataType::kUint8, Operator::kMax, {0x80, 0x7f, 0xff}, 0xff);
  check_answer(DataType::kUint64, Operator::kMin, {0x8000000000000000, 1, ~0ull}, 1);
}

TEST_CASE("every pair of fp8 numbers combines as the oracle says", "[reduce]") {
  for (const DataType type : {DataType::kFloat8e4m3, DataType::kFloat8e5m2}) {
    Bytes left;
    Bytes right;
    for (unsigned pair = 0; pair < 65536; ++pair) {
      left.push_back(static_cast<std::uint8_t>(pair >> 8));
      right.push_back(static_cast<std::uint8_t>(pair));
    }
    for (const Operator op : cases::all_operators()) check_against_oracle(type, op, {left, right}, 65536);
  }
}

TEST_CASE("every fp16 and bf16 pattern survives, and every tie between neighbours goes to even",
          "[reduce]") {
  for (const DataType type : {DataType::kFloat16, DataType::kBfloat16}) {
    Bytes all;
    Bytes ties;
    Bytes nudges;
    const unsigned mantissa_bits = type == DataType::kFloat16 ? 10 : 7;
    for (unsigned bits = 0; bits < 65536; ++bits) {
      // Half a unit in the last place of `bits`, where the format has it, and a little either way.
      const unsigned exponent = (bits & 0x7fff) >> mantissa_bits;
      const unsigned half =
          exponent > mantissa_bits + 1 ? (exponent - mantissa_bits - 1) << mantissa_bits : 0;
      const unsigned nudge =
          exponent > mantissa_bits + 5 ? (exponent - mantissa_bits - 5) << mantissa_bits : 0;
      for (const auto& [bytes, value] : {std::pair{&all, bits}, std::pair{&ties, (bits & 0x8000) | half},
                                         std::pair{&nudges, (bits % 3 == 0 ? 0x8000 : 0) | nudge}}) {
        bytes->push_back(static_cast<std::uint8_t>(value));
        bytes->push_back(static_cast<std::uint8_t>(value >> 8));
      }
    }
    check_against_oracle(type, Operator::kSum, {all}, 65536);
    check_against_oracle(type, Operator::kSum, {all, ties}, 65536);
    check_against_oracle(type, Operator::kSum, {all, ties, nudges}, 65536);
    for (unsigned bits = 0; bits < 65536; ++bits) {
      if (std::isnan(oracle::decode(type, bits)))
        oracle::set_bits(type, all.data(), bits, oracle::canonical_nan(type));
    }
    const cases::Inputs inputs({all}, 0);
    const Bytes round_trip = oracle::reduce(type, Operator::kSum, inputs.pointers(), 65536);
    CHECK(cases::difference(type, all.data(), round_trip.data(), 65536) == "");
  }
}

}  // namespace rocenante::reduce
