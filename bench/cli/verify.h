// SPDX-License-Identifier: Apache-2.0
//
// Inputs that every rank can compute for every rank, and the exact result of combining them.
//
// An input element is a function of (call, rank, index), so nothing has to be exchanged to check a call. To
// keep the check of large calls cheap, inputs repeat after pattern_period() elements; still every element
// of the result is compared. The period is prime, so that a piece which lands in the wrong place, or in the
// right place of the wrong slot, does not happen to hold the expected values.
//
// The expected result is that of docs/numerics.md to the last bit: a balanced tree over ranks, an
// accumulator wider than the type, one rounding at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/cli/types.h"

namespace rocenante::bench {

// One call, as all ranks see it.
struct Pattern {
  rcnDataType_t type;
  OpKind op;
  int ranks;
  std::size_t count;   // elements
  std::uint64_t call;  // number of this call; other calls have other values
};

// After how many elements inputs repeat: `count` for small calls, a prime for large ones.
std::size_t pattern_period(std::size_t count, int ranks);

// Writes this rank's input, pattern.count elements.
void fill_input(const Pattern& pattern, int rank, void* out);

// This rank's factor for OpKind::kMulSum: one element of the type, in the first bytes.
struct Scalar {
  alignas(8) unsigned char bytes[8];
};
Scalar premul_scalar(rcnDataType_t type, int rank);

struct Mismatch {
  std::uint64_t wrong = 0;  // number of elements that differ in any bit
  std::size_t index = 0;    // the first of them, and its bits
  std::uint64_t expected = 0;
  std::uint64_t found = 0;
};

// Compares what stands at `found` with elements [first, first + count) of the exact result, or of the input
// of a rank.
Mismatch check_result(const Pattern& pattern, std::size_t first, std::size_t count, const void* found);
Mismatch check_copy(const Pattern& pattern, int rank, std::size_t first, std::size_t count,
                    const void* found);
inline Mismatch check_result(const Pattern& pattern, const void* result) {
  return check_result(pattern, 0, pattern.count, result);
}

// Writes the exact result, pattern.count elements.
void expected_result(const Pattern& pattern, void* out);

}  // namespace rocenante::bench
