// SPDX-License-Identifier: Apache-2.0
//
// fp8, both kinds, accumulated in fp32. Decoding goes through fp16, which holds every fp8 number exactly;
// encoding starts from fp32, because rounding twice is wrong.
#include "reduce_kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce_kernels/fp8_kernels.cc"
#include "hwy/foreach_target.h"

#if ROCENANTE_VECTOR_TARGET
#include "reduce_kernels/small_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rocenante::reduce {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE VU16 load_u8(const std::uint8_t* from) {
  return hn::PromoteTo(DU16(), hn::LoadU(DU8(), from));
}

template <class L>
HWY_INLINE void store_u8(VF32 v, std::uint8_t* to) {
  hn::StoreU(hn::DemoteTo(DU8(), hn::BitCast(DI32(), encode_small_float<L>(v))), DU8(), to);
}

class E4m3Codec : public Fp32Accumulator {
 public:
  static constexpr std::size_t kBytes = kLanes;
  explicit HWY_INLINE E4m3Codec(const Params& params) : Fp32Accumulator(params) {}

  HWY_INLINE VF32 load(const std::uint8_t* from) const {
    const DU16 u;
    const VU16 code = load_u8(from);
    const VU16 sign = hn::And(hn::ShiftLeft<8>(code), hn::Set(u, 0x8000));
    const VU16 magnitude = hn::ShiftLeft<7>(hn::And(code, hn::Set(u, 0x7f)));
    const auto is_nan = hn::Eq(magnitude, hn::Set(u, 0x7f << 7));
    const VU16 half = hn::IfThenElse(is_nan, hn::Set(u, Float16Layout::kNan), hn::Or(magnitude, sign));
    // Four exponent bits in fp16's place make a number 2^(15 - 7) too small.
    return hn::Mul(decode_fp16(half), hn::Set(DF32(), 256.0f));
  }
  HWY_INLINE void store(VF32 v, std::uint8_t* to) const { store_u8<Float8e4m3Layout>(v, to); }
};

class E5m2Codec : public Fp32Accumulator {
 public:
  static constexpr std::size_t kBytes = kLanes;
  explicit HWY_INLINE E5m2Codec(const Params& params) : Fp32Accumulator(params) {}

  HWY_INLINE VF32 load(const std::uint8_t* from) const {
    return decode_fp16(hn::ShiftLeft<8>(load_u8(from)));
  }
  HWY_INLINE void store(VF32 v, std::uint8_t* to) const { store_u8<Float8e5m2Layout>(v, to); }
};

}  // namespace

void add_fp8_kernels(Kernels& kernels) {
  add_float_format<E4m3Codec, Float8e4m3, DataType::kFloat8e4m3>(kernels);
  add_float_format<E5m2Codec, Float8e5m2, DataType::kFloat8e5m2>(kernels);
}

}  // namespace HWY_NAMESPACE
}  // namespace rocenante::reduce
HWY_AFTER_NAMESPACE();

#endif  // ROCENANTE_VECTOR_TARGET
