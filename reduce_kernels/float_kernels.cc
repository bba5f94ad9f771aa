// SPDX-License-Identifier: Apache-2.0
//
// fp32 and fp64: the accumulator is the type itself.
#include "reduce_kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce_kernels/float_kernels.cc"
#include "hwy/foreach_target.h"

#if ROCENANTE_VECTOR_TARGET
#include "reduce_kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rocenante::reduce {
namespace HWY_NAMESPACE {
namespace {

template <class T, class Bits, Bits kNan>
class FloatCodec {
 public:
  using D = hn::ScalableTag<T>;
  using Vec = hn::Vec<D>;
  static constexpr std::size_t kBytes = HWY_MAX_BYTES;
  static constexpr std::size_t kLanes = kBytes / sizeof(T);
  static constexpr int kVectorsPerStep = 4;

  explicit HWY_INLINE FloatCodec(const Params& params)
      : divide_(params.divisor != 0), divisor_(broadcast(static_cast<T>(params.divisor))) {}

  HWY_INLINE Vec load(const std::uint8_t* from) const {
    return hn::BitCast(D(), hn::LoadU(hn::Repartition<std::uint8_t, D>(), from));
  }
  HWY_INLINE Vec finish(Vec v) const { return divide_ ? hn::Div(v, divisor_) : v; }
  HWY_INLINE void store(Vec v, std::uint8_t* to) const {
    const Vec nan = hn::BitCast(D(), hn::Set(hn::Repartition<Bits, D>(), kNan));
    v = hn::IfThenElse(hn::IsNaN(v), nan, v);
    const hn::Repartition<std::uint8_t, D> bytes;
    hn::StoreU(hn::BitCast(bytes, v), bytes, to);
  }
  static HWY_INLINE Vec broadcast(T value) { return hn::Set(D(), value); }

 private:
  bool divide_;
  Vec divisor_;
};

using Codec32 = FloatCodec<float, std::uint32_t, kFloat32Nan>;
using Codec64 = FloatCodec<double, std::uint64_t, kFloat64Nan>;

}  // namespace

void add_float_kernels(Kernels& kernels) {
  add_float_format<Codec32, Float32, DataType::kFloat32>(kernels);
  add_float_format<Codec64, Float64, DataType::kFloat64>(kernels);
}

}  // namespace HWY_NAMESPACE
}  // namespace rocenante::reduce
HWY_AFTER_NAMESPACE();

#endif  // ROCENANTE_VECTOR_TARGET
