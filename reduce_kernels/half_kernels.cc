// SPDX-License-Identifier: Apache-2.0
//
// fp16 and bf16, accumulated in fp32.
#include "reduce_kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce_kernels/half_kernels.cc"
#include "hwy/foreach_target.h"

#if ROCENANTE_VECTOR_TARGET
#include "reduce_kernels/small_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rocenante::reduce {
namespace HWY_NAMESPACE {
namespace {

using HalfBytes = hn::Repartition<std::uint8_t, DU16>;

HWY_INLINE VU16 load_u16(const std::uint8_t* from) {
  return hn::BitCast(DU16(), hn::LoadU(HalfBytes(), from));
}

HWY_INLINE void store_u16(VU16 v, std::uint8_t* to) {
  hn::StoreU(hn::BitCast(HalfBytes(), v), HalfBytes(), to);
}

class Fp16Codec : public Fp32Accumulator {
 public:
  static constexpr std::size_t kBytes = kLanes * 2;
  explicit HWY_INLINE Fp16Codec(const Params& params) : Fp32Accumulator(params) {}

  HWY_INLINE VF32 load(const std::uint8_t* from) const { return decode_fp16(load_u16(from)); }
  HWY_INLINE void store(VF32 v, std::uint8_t* to) const { store_u16(encode_fp16(v), to); }
};

// A bf16 is the upper half of an fp32, so a 32-bit lane of two needs no shuffle: the odd one is in place,
// the even one a shift away, and elements do not care where their accumulator is.
class Bf16Codec {
 public:
  using Vec = EvenOdd<VF32>;
  static constexpr std::size_t kBytes = HWY_MAX_BYTES;
  static constexpr std::size_t kLanes = kBytes / 2;
  static constexpr int kVectorsPerStep = 2;

  explicit HWY_INLINE Bf16Codec(const Params& params)
      : divide_(params.divisor != 0), divisor_(hn::Set(DF32(), static_cast<float>(params.divisor))) {}

  HWY_INLINE Vec load(const std::uint8_t* from) const {
    const VU32 both = hn::BitCast(DU32(), hn::LoadU(Bytes(), from));
    return {hn::BitCast(DF32(), hn::ShiftLeft<16>(both)),
            hn::BitCast(DF32(), hn::And(both, hn::Set(DU32(), kUpper)))};
  }
  HWY_INLINE Vec finish(Vec v) const {
    return divide_ ? Vec{hn::Div(v.even, divisor_), hn::Div(v.odd, divisor_)} : v;
  }
  HWY_INLINE void store(Vec v, std::uint8_t* to) const {
    const VU32 even = hn::ShiftRight<16>(round_in_place(v.even));
    const VU32 odd = hn::And(round_in_place(v.odd), hn::Set(DU32(), kUpper));
    hn::StoreU(hn::BitCast(Bytes(), hn::Or(even, odd)), Bytes(), to);
  }
  static HWY_INLINE Vec broadcast(float value) { return {hn::Set(DF32(), value), hn::Set(DF32(), value)}; }

 private:
  using Bytes = hn::Repartition<std::uint8_t, DU32>;
  static constexpr std::uint32_t kUpper = 0xffff0000;

  // The upper half becomes the nearest bf16; what is left below it is of no meaning.
  static HWY_INLINE VU32 round_in_place(VF32 v) {
    const DU32 u;
    const VU32 bits = hn::BitCast(u, canonical_nan(v));
    const VU32 odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1));
    return hn::Add(hn::Add(bits, hn::Set(u, 0x7fff)), odd);
  }

  bool divide_;
  VF32 divisor_;
};

}  // namespace

void add_half_kernels(Kernels& kernels) {
  add_float_format<Fp16Codec, Float16, DataType::kFloat16>(kernels);
  add_float_format<Bf16Codec, Bfloat16, DataType::kBfloat16>(kernels);
}

}  // namespace HWY_NAMESPACE
}  // namespace rocenante::reduce
HWY_AFTER_NAMESPACE();

#endif  // ROCENANTE_VECTOR_TARGET
