// SPDX-License-Identifier: Apache-2.0
//
// The combining tree: n ranks split at the largest power of two below n. Read from the left it is a binary
// counter: aligned blocks of equal size merge as soon as they are complete, and what is left at the end,
// blocks of falling size, folds from the right.
#pragma once

#include <cstdint>

#include "reduce_kernels/formats.h"

namespace rocenante::reduce {

// Blocks that can be open at once: one per bit of kMaxInputs.
inline constexpr std::uint32_t kTreeLevels = 11;

// The aligned block of kRanks ranks, a power of two, from `first` on.
template <class Op, std::uint32_t kRanks, class Load>
ROCENANTE_HOST_DEVICE inline auto combine_block(const Load& load, std::uint32_t first) {
  if constexpr (kRanks == 1) {
    return load(first);
  } else {
    const auto left = combine_block<Op, kRanks / 2>(load, first);
    return Op::apply(left, combine_block<Op, kRanks / 2>(load, first + kRanks / 2));
  }
}

// `load(r)` gives rank r's value as an accumulator. The counter counts blocks of four.
template <class Op, class Load>
ROCENANTE_HOST_DEVICE inline auto combine_ranks(const Load& load, std::uint32_t n) {
  using Acc = decltype(load(0));
  if (n == 4) return combine_block<Op, 4>(load, 0);
  if (n == 8) return combine_block<Op, 8>(load, 0);
  Acc open[kTreeLevels];
  std::uint32_t depth = 0;
  std::uint32_t r = 0;
  for (; r + 4 <= n; r += 4) {
    Acc value = combine_block<Op, 4>(load, r);
    for (std::uint32_t carry = r / 4; carry & 1; carry >>= 1) value = Op::apply(open[--depth], value);
    open[depth++] = value;
  }
  if (n & 2) {
    open[depth++] = combine_block<Op, 2>(load, r);
    r += 2;
  }
  if (n & 1) open[depth++] = load(r);
  Acc value = open[--depth];
  while (depth > 0) value = Op::apply(open[--depth], value);
  return value;
}

}  // namespace rocenante::reduce
