// SPDX-License-Identifier: Apache-2.0
//
// What device kernels there are, and which of them makes which call. One kernel serves all types and
// operators that give the same bits: integers of one width wrap alike whether signed or not, and every
// maximum and minimum is the maximum of signed integers, as in order_kernels.cc.
//
// A codec turns an element into its accumulator and back. Those of orders have a direction, `flip`: top bit
// for unsigned types, all bits for a minimum.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "reduce_kernels/formats.h"
#include "reduce_kernels/reduce.h"

namespace rocenante::reduce {

// A format of formats.h.
template <class Format>
struct Plain : Format {
  ROCENANTE_HOST_DEVICE explicit Plain(std::uint64_t) {}
};

// Signed integers that are in the order of T's, flipped. Narrow ones are accumulated in 32 bits.
template <class T>
struct IntegerKey {
  using Acc = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
  static constexpr std::size_t kSize = sizeof(T);
  T flip;

  ROCENANTE_HOST_DEVICE explicit IntegerKey(std::uint64_t bits) : flip(static_cast<T>(bits)) {}
  ROCENANTE_HOST_DEVICE Acc load(const void* at) const { return static_cast<T>(load_raw<T>(at) ^ flip); }
  ROCENANTE_HOST_DEVICE void store(void* at, Acc key) const { store_raw(at, static_cast<T>(key ^ flip)); }
};

// Sign and magnitude to two's complement and back: with a negative number's magnitude bits inverted the
// patterns of floats are in the order of the integers, -0 just below +0. Every NaN gets the key that every
// number beats, which no number has. T holds the patterns; kInfinity is the largest magnitude that is no
// NaN, kLargest the largest that a result may have.
template <class T, T kInfinity, T kLargest, T kNan>
struct FloatKey {
  using Acc = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
  static constexpr std::size_t kSize = sizeof(T);
  static constexpr T kMagnitude = std::numeric_limits<T>::max();
  static constexpr Acc kLowest = std::numeric_limits<Acc>::min();
  T flip;

  ROCENANTE_HOST_DEVICE explicit FloatKey(std::uint64_t bits) : flip(static_cast<T>(bits)) {}
  ROCENANTE_HOST_DEVICE Acc load(const void* at) const {
    const T bits = load_raw<T>(at);
    return (bits & kMagnitude) > kInfinity ? kLowest : Acc{static_cast<T>(swap_order(bits) ^ flip)};
  }
  ROCENANTE_HOST_DEVICE void store(void* at, Acc key) const {
    const T bits = swap_order(static_cast<T>(key ^ flip));
    const T magnitude = static_cast<T>(bits & kMagnitude);
    const T sign = static_cast<T>(bits ^ magnitude);
    const T result = static_cast<T>(sign | (magnitude < kLargest ? magnitude : kLargest));
    store_raw(at, key == kLowest ? kNan : result);
  }

 private:
  ROCENANTE_HOST_DEVICE static T swap_order(T bits) {
    return static_cast<T>(bits < 0 ? bits ^ kMagnitude : bits);
  }
};

using Float16Key = FloatKey<std::int16_t, 0x7c00, 0x7c00, 0x7e00>;
using Bfloat16Key = FloatKey<std::int16_t, 0x7f80, 0x7f80, 0x7fc0>;
using Float32Key = FloatKey<std::int32_t, 0x7f800000, 0x7f800000, 0x7fc00000>;
using Float64Key = FloatKey<std::int64_t, 0x7ff0000000000000, 0x7ff0000000000000, 0x7ff8000000000000>;
using Float8e4m3Key = FloatKey<std::int8_t, 0x7e, 0x7e, 0x7f>;  // no infinities
using Float8e5m2Key = FloatKey<std::int8_t, 0x7c, 0x7b, 0x7e>;  // infinities saturate

// What one kernel computes: the tree of `Op`, then a division by the number of ranks if it averages; the
// staged contribution is multiplied first if it scales.
template <class CodecType, class OpType>
struct Tree {
  using Codec = CodecType;
  using Op = OpType;
  static constexpr bool kAverages = false;
  static constexpr bool kScales = false;
};
template <class Format>
using SumOf = Tree<Plain<Format>, Sum>;
template <class Format>
using ProdOf = Tree<Plain<Format>, Prod>;
template <class Key>
using MaxOf = Tree<Key, Max>;

template <class Format>
struct Average : SumOf<Format> {
  static constexpr bool kAverages = true;
};
template <class Format>
struct Scaled : SumOf<Format> {
  static constexpr bool kScales = true;
};

using Word8 = Integer<std::uint8_t>;
using Word32 = Integer<std::uint32_t>;
using Word64 = Integer<std::uint64_t>;

// X(family, name, what it computes): for any number of ranks. Each family is compiled by itself.
#define ROCENANTE_FLOAT_KERNELS(X)      \
  X(float, sum_f32, SumOf<Float32>)     \
  X(float, sum_f64, SumOf<Float64>)     \
  X(float, prod_f32, ProdOf<Float32>)   \
  X(float, prod_f64, ProdOf<Float64>)   \
  X(float, avg_f32, Average<Float32>)   \
  X(float, avg_f64, Average<Float64>)   \
  X(float, scaled_f32, Scaled<Float32>) \
  X(float, scaled_f64, Scaled<Float64>)
#define ROCENANTE_HALF_KERNELS(X)      \
  X(half, sum_f16, SumOf<Float16>)     \
  X(half, sum_bf16, SumOf<Bfloat16>)   \
  X(half, prod_f16, ProdOf<Float16>)   \
  X(half, prod_bf16, ProdOf<Bfloat16>) \
  X(half, avg_f16, Average<Float16>)   \
  X(half, avg_bf16, Average<Bfloat16>) \
  X(half, scaled_f16, Scaled<Float16>) \
  X(half, scaled_bf16, Scaled<Bfloat16>)
#define ROCENANTE_FP8_KERNELS(X)          \
  X(fp8, sum_e4m3, SumOf<Float8e4m3>)     \
  X(fp8, sum_e5m2, SumOf<Float8e5m2>)     \
  X(fp8, prod_e4m3, ProdOf<Float8e4m3>)   \
  X(fp8, prod_e5m2, ProdOf<Float8e5m2>)   \
  X(fp8, avg_e4m3, Average<Float8e4m3>)   \
  X(fp8, avg_e5m2, Average<Float8e5m2>)   \
  X(fp8, scaled_e4m3, Scaled<Float8e4m3>) \
  X(fp8, scaled_e5m2, Scaled<Float8e5m2>)
#define ROCENANTE_INTEGER_KERNELS(X)                   \
  X(integer, sum_8, SumOf<Word8>)                      \
  X(integer, sum_32, SumOf<Word32>)                    \
  X(integer, sum_64, SumOf<Word64>)                    \
  X(integer, prod_8, ProdOf<Word8>)                    \
  X(integer, prod_32, ProdOf<Word32>)                  \
  X(integer, prod_64, ProdOf<Word64>)                  \
  X(integer, scaled_8, Scaled<Word8>)                  \
  X(integer, scaled_32, Scaled<Word32>)                \
  X(integer, scaled_64, Scaled<Word64>)                \
  X(integer, avg_i8, Average<Integer<std::int8_t>>)    \
  X(integer, avg_u8, Average<Integer<std::uint8_t>>)   \
  X(integer, avg_i32, Average<Integer<std::int32_t>>)  \
  X(integer, avg_u32, Average<Integer<std::uint32_t>>) \
  X(integer, avg_i64, Average<Integer<std::int64_t>>)  \
  X(integer, avg_u64, Average<Integer<std::uint64_t>>)
#define ROCENANTE_ORDER_KERNELS(X)                    \
  X(order, order_8, MaxOf<IntegerKey<std::int8_t>>)   \
  X(order, order_32, MaxOf<IntegerKey<std::int32_t>>) \
  X(order, order_64, MaxOf<IntegerKey<std::int64_t>>) \
  X(order, order_f16, MaxOf<Float16Key>)              \
  X(order, order_bf16, MaxOf<Bfloat16Key>)            \
  X(order, order_f32, MaxOf<Float32Key>)              \
  X(order, order_f64, MaxOf<Float64Key>)              \
  X(order, order_e4m3, MaxOf<Float8e4m3Key>)          \
  X(order, order_e5m2, MaxOf<Float8e5m2Key>)
#define ROCENANTE_DEVICE_KERNELS(X) \
  ROCENANTE_FLOAT_KERNELS(X)        \
  ROCENANTE_HALF_KERNELS(X)         \
  ROCENANTE_FP8_KERNELS(X)          \
  ROCENANTE_INTEGER_KERNELS(X)      \
  ROCENANTE_ORDER_KERNELS(X)

// X(family, name, number of ranks, what it computes): the sums that engines wait for, once more for the
// numbers of ranks that they run on.
#define ROCENANTE_FLOAT_LATENCY_KERNELS(X) \
  X(float, sum_f32, 2, SumOf<Float32>)     \
  X(float, sum_f32, 4, SumOf<Float32>)     \
  X(float, sum_f32, 8, SumOf<Float32>)
#define ROCENANTE_HALF_LATENCY_KERNELS(X) \
  X(half, sum_f16, 2, SumOf<Float16>)     \
  X(half, sum_f16, 4, SumOf<Float16>)     \
  X(half, sum_f16, 8, SumOf<Float16>)     \
  X(half, sum_bf16, 2, SumOf<Bfloat16>)   \
  X(half, sum_bf16, 4, SumOf<Bfloat16>)   \
  X(half, sum_bf16, 8, SumOf<Bfloat16>)
#define ROCENANTE_LATENCY_KERNELS(X) \
  ROCENANTE_FLOAT_LATENCY_KERNELS(X) \
  ROCENANTE_HALF_LATENCY_KERNELS(X)

enum class KernelId : std::uint8_t {
#define ROCENANTE_X(family, name, spec) name,
  ROCENANTE_DEVICE_KERNELS(ROCENANTE_X)
#undef ROCENANTE_X
      kCount
};

struct KernelChoice {
  KernelId id;
  std::uint64_t flip;
};

// Which kernel computes a call, and its codec's direction. `scaled`: a pre-multiplied sum; `op` is then
// kSum.
KernelChoice choose_kernel(DataType type, Operator op, bool scaled);

}  // namespace rocenante::reduce
