// SPDX-License-Identifier: Apache-2.0
//
// Inputs for the tests of the reduction kernels: what to run, on which numbers, in which memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "reduce_kernels/reduce.h"
#include "tests/unit/reduce_oracle.h"

namespace rocenante::reduce::cases {

using oracle::Bytes;

// ROCENANTE_TEST_SEED replaces it.
std::uint64_t seed();

std::vector<DataType> all_types();
std::vector<Operator> all_operators();

// Kernels of every target that is built and that this processor runs.
std::vector<const Kernels*> runnable_kernels();

ReduceFn reduce_of(const Kernels& kernels, DataType type, Operator op);
ScaleFn scale_of(const Kernels& kernels, DataType type);

// A pattern that is likely to go wrong: zero, infinity, NaN, the ends of the range.
std::uint64_t special(DataType type, std::mt19937_64& random);

// Elements for one rank. What element i is like depends on i only, so that across ranks numbers meet
// numbers of their kind: random patterns, numbers near one, specials among them, cancelling numbers,
// specials only, huge ones, tiny ones.
Bytes elements(DataType type, std::size_t count, std::mt19937_64& random);

// The inputs of one reduction. Each lies in a block of its own that ends with the last element, where
// AddressSanitizer sees a read beyond it, and begins `misalign` bytes into an aligned block.
class Inputs {
 public:
  Inputs(const std::vector<Bytes>& ranks, std::size_t misalign);
  const std::vector<const void*>& pointers() const { return pointers_; }
  std::uint8_t* data(std::size_t rank) { return blocks_[rank].data() + misalign_; }

 private:
  std::size_t misalign_;
  std::vector<Bytes> blocks_;
  std::vector<const void*> pointers_;
};

// An output with bytes around it that nobody may touch.
class GuardedOutput {
 public:
  GuardedOutput(std::size_t bytes, std::size_t misalign);
  std::uint8_t* data() { return block_.data() + begin_; }
  bool guards_intact() const;

 private:
  std::size_t begin_;
  std::size_t end_;
  Bytes block_;
};

std::vector<Bytes> random_ranks(DataType type, std::size_t n, std::size_t count, std::mt19937_64& random);

// Empty if the first `count` elements are equal, else the first difference in words.
std::string difference(DataType type, const void* expected, const void* actual, std::size_t count);

}  // namespace rocenante::reduce::cases
