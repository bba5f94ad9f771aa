// SPDX-License-Identifier: Apache-2.0
//
// Maximum and minimum of every type, all as the maximum of signed integers. The processors' own float
// instructions disagree about NaNs and zeros; integers do not. A mask turns unsigned order into signed
// order (top bit), and minimum into maximum (all bits).
#include "reduce_kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce_kernels/order_kernels.cc"
#include "hwy/foreach_target.h"

#if ROCENANTE_VECTOR_TARGET
#include "reduce_kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rocenante::reduce {
namespace HWY_NAMESPACE {
namespace {

// The integers themselves, flipped.
template <class T>
class IntegerKeyCodec {
 public:
  using D = hn::ScalableTag<T>;
  using Vec = hn::Vec<D>;
  static constexpr std::size_t kBytes = HWY_MAX_BYTES;
  static constexpr std::size_t kLanes = kBytes / sizeof(T);
  static constexpr int kVectorsPerStep = 4;

  explicit HWY_INLINE IntegerKeyCodec(const Params& params)
      : flip_(hn::Set(D(), static_cast<T>(params.flip))) {}
  HWY_INLINE Vec load(const std::uint8_t* from) const { return hn::Xor(load_bits(from), flip_); }
  HWY_INLINE Vec finish(Vec v) const { return v; }
  HWY_INLINE void store(Vec key, std::uint8_t* to) const { store_bits(hn::Xor(key, flip_), to); }

 protected:
  static HWY_INLINE Vec load_bits(const std::uint8_t* from) {
    return hn::BitCast(D(), hn::LoadU(hn::Repartition<std::uint8_t, D>(), from));
  }
  static HWY_INLINE void store_bits(Vec v, std::uint8_t* to) {
    const hn::Repartition<std::uint8_t, D> bytes;
    hn::StoreU(hn::BitCast(bytes, v), bytes, to);
  }

  Vec flip_;
};

// Sign and magnitude to two's complement, and back: with a negative number's magnitude bits inverted the
// patterns of floats are in the order of the integers, -0 just below +0.
//
// L::kInfinity is the largest magnitude that is no NaN, L::kLargest the largest that a result may have.
template <class L>
class FloatKeyCodec : private IntegerKeyCodec<typename L::Bits> {
 public:
  using T = typename L::Bits;
  using Base = IntegerKeyCodec<T>;
  using D = typename Base::D;
  using Vec = typename Base::Vec;
  using Base::kBytes;
  using Base::kLanes;
  using Base::kVectorsPerStep;

  explicit HWY_INLINE FloatKeyCodec(const Params& params) : Base(params) {}

  // A NaN gets the key that every number beats; turned back it is a NaN again, flipped or not.
  HWY_INLINE Vec load(const std::uint8_t* from) const {
    const Vec bits = Base::load_bits(from);
    const Vec key = hn::Xor(swap_order(bits), Base::flip_);
    return hn::IfThenElse(is_nan(bits), hn::Set(D(), hwy::LimitsMin<T>()), key);
  }
  HWY_INLINE Vec finish(Vec v) const { return v; }
  HWY_INLINE void store(Vec key, std::uint8_t* to) const {
    const Vec bits = swap_order(hn::Xor(key, Base::flip_));
    Vec result = bits;
    if constexpr (L::kLargest != L::kInfinity) {
      const Vec sign = hn::AndNot(hn::Set(D(), kMagnitude), bits);
      const Vec magnitude = hn::And(bits, hn::Set(D(), kMagnitude));
      result = hn::Or(sign, hn::Min(magnitude, hn::Set(D(), static_cast<T>(L::kLargest))));
    }
    result = hn::IfThenElse(is_nan(bits), hn::Set(D(), static_cast<T>(L::kNan)), result);
    Base::store_bits(result, to);
  }

 private:
  static constexpr T kMagnitude = hwy::LimitsMax<T>();

  static HWY_INLINE Vec swap_order(Vec bits) {
    return hn::Xor(bits, hn::And(hn::BroadcastSignBit(bits), hn::Set(D(), kMagnitude)));
  }
  static HWY_INLINE hn::Mask<D> is_nan(Vec bits) {
    return hn::Gt(hn::And(bits, hn::Set(D(), kMagnitude)), hn::Set(D(), static_cast<T>(L::kInfinity)));
  }
};

template <class T, T kInfinityBits, T kLargestBits, T kNanBits>
struct FloatOrder {
  using Bits = T;
  static constexpr T kInfinity = kInfinityBits;
  static constexpr T kLargest = kLargestBits;
  static constexpr T kNan = kNanBits;
};

using Fp16Order = FloatOrder<std::int16_t, 0x7c00, 0x7c00, 0x7e00>;
using Bf16Order = FloatOrder<std::int16_t, 0x7f80, 0x7f80, 0x7fc0>;
using Fp32Order = FloatOrder<std::int32_t, 0x7f800000, 0x7f800000, 0x7fc00000>;
using Fp64Order = FloatOrder<std::int64_t, 0x7ff0000000000000, 0x7ff0000000000000, 0x7ff8000000000000>;
using E4m3Order = FloatOrder<std::int8_t, 0x7e, 0x7e, 0x7f>;  // no infinities
using E5m2Order = FloatOrder<std::int8_t, 0x7c, 0x7b, 0x7e>;  // infinities saturate

constexpr std::uint64_t kInvert = ~std::uint64_t{0};

template <class C, DataType kType, Operator kOp, std::uint64_t kFlip>
void order_entry(void* out, const void* const* inputs, std::uint32_t n, std::size_t count) {
  if (count < C::kLanes) return scalar_reduce(kType, kOp)(out, inputs, n, count);
  reduce_vectors<C, MaxOp>(out, inputs, n, count, Params{0, kFlip});
}

// kFlip is what makes the type's order signed.
template <class C, DataType kType, std::uint64_t kFlip>
HWY_INLINE void add_order(Kernels& kernels) {
  set(kernels, kType, Operator::kMax, order_entry<C, kType, Operator::kMax, kFlip>);
  set(kernels, kType, Operator::kMin, order_entry<C, kType, Operator::kMin, kFlip ^ kInvert>);
}

}  // namespace

void add_order_kernels(Kernels& kernels) {
  add_order<IntegerKeyCodec<std::int8_t>, DataType::kInt8, 0>(kernels);
  add_order<IntegerKeyCodec<std::int8_t>, DataType::kUint8, 0x80>(kernels);
  add_order<IntegerKeyCodec<std::int32_t>, DataType::kInt32, 0>(kernels);
  add_order<IntegerKeyCodec<std::int32_t>, DataType::kUint32, 0x80000000>(kernels);
  add_order<IntegerKeyCodec<std::int64_t>, DataType::kInt64, 0>(kernels);
  add_order<IntegerKeyCodec<std::int64_t>, DataType::kUint64, 0x8000000000000000>(kernels);
  add_order<FloatKeyCodec<Fp16Order>, DataType::kFloat16, 0>(kernels);
  add_order<FloatKeyCodec<Bf16Order>, DataType::kBfloat16, 0>(kernels);
  add_order<FloatKeyCodec<Fp32Order>, DataType::kFloat32, 0>(kernels);
  add_order<FloatKeyCodec<Fp64Order>, DataType::kFloat64, 0>(kernels);
  add_order<FloatKeyCodec<E4m3Order>, DataType::kFloat8e4m3, 0>(kernels);
  add_order<FloatKeyCodec<E5m2Order>, DataType::kFloat8e5m2, 0>(kernels);
}

}  // namespace HWY_NAMESPACE
}  // namespace rocenante::reduce
HWY_AFTER_NAMESPACE();

#endif  // ROCENANTE_VECTOR_TARGET
