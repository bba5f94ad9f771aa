// SPDX-License-Identifier: Apache-2.0
//
// Vectors of fp16 and fp8 to and from fp32, compiled once per target; formats.h holds the same rules for
// one element.

#if defined(ROCENANTE_SMALL_FLOAT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ROCENANTE_SMALL_FLOAT_INL_H
#undef ROCENANTE_SMALL_FLOAT_INL_H
#else
#define ROCENANTE_SMALL_FLOAT_INL_H
#endif

#include "reduce_kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rocenante::reduce {
namespace HWY_NAMESPACE {
namespace {

using DF32 = hn::ScalableTag<float>;
using DU32 = hn::RebindToUnsigned<DF32>;
using DI32 = hn::RebindToSigned<DF32>;
using DU16 = hn::Rebind<std::uint16_t, DF32>;
using DU8 = hn::Rebind<std::uint8_t, DF32>;
using VF32 = hn::Vec<DF32>;
using VU32 = hn::Vec<DU32>;
using VU16 = hn::Vec<DU16>;

// What the codecs with an fp32 accumulator share. They write their constructors out: an inherited one lacks
// the target's attributes.
class Fp32Accumulator {
 public:
  using Vec = VF32;
  static constexpr std::size_t kLanes = HWY_MAX_BYTES / 4;
  static constexpr int kVectorsPerStep = 4;

  explicit HWY_INLINE Fp32Accumulator(const Params& params)
      : divide_(params.divisor != 0), divisor_(broadcast(static_cast<float>(params.divisor))) {}

  HWY_INLINE Vec finish(Vec v) const { return divide_ ? hn::Div(v, divisor_) : v; }
  static HWY_INLINE Vec broadcast(float value) { return hn::Set(DF32(), value); }

 private:
  bool divide_;
  Vec divisor_;
};

HWY_INLINE VF32 canonical_nan(VF32 v) {
  return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(DF32(), hn::Set(DU32(), kFloat32Nan)), v);
}

// fp32 to the code of a small float in each 32-bit lane: nearest even, once.
template <class L>
HWY_INLINE VU32 encode_small_float(VF32 value) {
  const DU32 u;
  const VU32 bits = hn::BitCast(u, value);
  const VU32 sign = hn::And(hn::ShiftRight<L::kSignShift>(bits), hn::Set(u, L::kSign));
  const VU32 magnitude = hn::Min(hn::And(bits, hn::Set(u, 0x7fffffff)), hn::Set(u, L::kClamp));

  const VU32 magic = hn::Set(u, L::kSubnormalMagic);
  const VF32 shifted = hn::Add(hn::BitCast(DF32(), magnitude), hn::BitCast(DF32(), magic));
  const VU32 subnormal = hn::Sub(hn::BitCast(u, shifted), magic);

  const VU32 odd = hn::And(hn::ShiftRight<L::kDropped>(magnitude), hn::Set(u, 1));
  constexpr std::uint32_t kHalfMinus = (1u << (L::kDropped - 1)) - 1;
  const VU32 rebased = hn::Add(magnitude, hn::Set(u, kHalfMinus - L::kRebias));
  const VU32 normal = hn::ShiftRight<L::kDropped>(hn::Add(rebased, odd));

  // Signed: magnitudes are below 2^31, and x86 has no unsigned comparison.
  const DI32 i;
  const auto is_small =
      hn::Lt(hn::BitCast(i, magnitude), hn::Set(i, static_cast<std::int32_t>(L::kSmallestNormal)));
  const VU32 code = hn::IfThenElse(hn::RebindMask(u, is_small), subnormal, normal);
  return hn::IfThenElse(hn::RebindMask(u, hn::IsNaN(value)), hn::Set(u, L::kNan), hn::Or(code, sign));
}

#if HWY_TARGET == HWY_SSE4

// No conversion instructions, and Highway's stand-in truncates.

HWY_INLINE VF32 decode_fp16(VU16 code16) {
  const DU32 u;
  const VU32 code = hn::PromoteTo(u, code16);
  const VU32 sign = hn::ShiftLeft<16>(hn::And(code, hn::Set(u, 0x8000)));
  const VU32 magnitude = hn::And(code, hn::Set(u, 0x7fff));
  const auto signed_magnitude = hn::BitCast(DI32(), magnitude);
  const VF32 tiny = hn::Mul(hn::ConvertTo(DF32(), signed_magnitude), hn::Set(DF32(), 0x1p-24f));

  const VU32 rebias = hn::Set(u, Float16Layout::kRebias);
  const auto is_special = hn::Gt(signed_magnitude, hn::Set(DI32(), 0x7bff));
  const VU32 normal = hn::Add(hn::Add(hn::ShiftLeft<13>(magnitude), rebias),
                              hn::IfThenElseZero(hn::RebindMask(u, is_special), rebias));
  const auto is_tiny = hn::Lt(signed_magnitude, hn::Set(DI32(), 0x400));
  const VU32 bits = hn::IfThenElse(hn::RebindMask(u, is_tiny), hn::BitCast(u, tiny), normal);
  return hn::BitCast(DF32(), hn::Or(bits, sign));
}

HWY_INLINE VU16 encode_fp16(VF32 v) {
  return hn::DemoteTo(DU16(), hn::BitCast(DI32(), encode_small_float<Float16Layout>(v)));
}

#else

// The instructions round to nearest even whatever the control register says (x86) or as it says
// (aarch64), keep subnormals, and turn fp32's canonical NaN into fp16's.

HWY_INLINE VF32 decode_fp16(VU16 code) {
  return hn::PromoteTo(DF32(), hn::BitCast(hn::Rebind<hwy::float16_t, DF32>(), code));
}

HWY_INLINE VU16 encode_fp16(VF32 v) {
  return hn::BitCast(DU16(), hn::DemoteTo(hn::Rebind<hwy::float16_t, DF32>(), canonical_nan(v)));
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rocenante::reduce
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
