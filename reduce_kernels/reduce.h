// SPDX-License-Identifier: Apache-2.0
//
// The reduction of N inputs to one output, on the host. docs/numerics.md defines the result to the bit;
// it does not depend on the SIMD target, on where a buffer is split, or on alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reduce_kernels/fp_environment.h"  // ScopedFpEnvironment

namespace rocenante::reduce {

// Numbers of the public API (rcnDataType_t).
enum class DataType : std::uint8_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8e4m3 = 10,
  kFloat8e5m2 = 11,
};
inline constexpr std::uint32_t kNumDataTypes = 12;

// The first five are numbers of the public API (rcnRedOp_t). A pre-multiplied sum is kSum over values that
// went through a ScaleFn.
enum class Operator : std::uint8_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };
inline constexpr std::uint32_t kNumOperators = 5;

// Most ranks of one reduction.
inline constexpr std::uint32_t kMaxInputs = 1024;

constexpr std::size_t element_size(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kFloat8e4m3:
    case DataType::kFloat8e5m2:
      return 1;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
      return 8;
  }
  return 0;
}

// out[i] = tree over r of inputs[r][i], for i < count; `inputs` is in rank order and has n >= 1 entries.
// Pointers need no alignment, not even the element's. `out` may equal any input exactly; other overlap is
// not allowed. kAvg divides by n. Expects the floating-point environment of ScopedFpEnvironment.
using ReduceFn = void (*)(void* out, const void* const* inputs, std::uint32_t n, std::size_t count);

// out[i] = in[i] * *scalar, rounded once to the type, for i < count. `scalar` is one element of the type.
// Pointers need no alignment; `out` may equal `in`.
using ScaleFn = void (*)(void* out, const void* in, std::size_t count, const void* scalar);

// Copies `bytes` from `in` to `out`. Pointers need no alignment; the two do not overlap.
using CopyFn = void (*)(void* out, const void* in, std::size_t bytes);

struct Kernels {
  const char* target;                             // "avx512", "avx2", "sse4", "neon", "scalar"
  ReduceFn reduce[kNumDataTypes][kNumOperators];  // never null
  ScaleFn scale[kNumDataTypes];                   // never null
  CopyFn copy;                                    // never null
};

// The kernels of the named target; null if the name is unknown, was not built or this processor lacks it.
// "auto" is the best one here. Lives for ever.
const Kernels* find_kernels(const char* target);

// Names of every target built into this binary, best first, ending with "scalar"; null terminated.
const char* const* built_targets();

// True if this processor can run the named target.
bool target_supported(const char* target);

}  // namespace rocenante::reduce
