// SPDX-License-Identifier: Apache-2.0
//
// Integer sums, averages and products modulo 2^w: one text for signed and unsigned. What vectors are no
// help with is left to the scalar kernels: 64-bit products and every division.
#include "reduce_kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce_kernels/integer_kernels.cc"
#include "hwy/foreach_target.h"

#if ROCENANTE_VECTOR_TARGET
#include "reduce_kernels/vector_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rocenante::reduce {
namespace HWY_NAMESPACE {
namespace {

template <class T>
class WordCodec {
 public:
  using D = hn::ScalableTag<T>;
  using Vec = hn::Vec<D>;
  static constexpr std::size_t kBytes = HWY_MAX_BYTES;
  static constexpr std::size_t kLanes = kBytes / sizeof(T);
  static constexpr int kVectorsPerStep = 4;

  explicit HWY_INLINE WordCodec(const Params&) {}
  HWY_INLINE Vec load(const std::uint8_t* from) const {
    return hn::BitCast(D(), hn::LoadU(hn::Repartition<std::uint8_t, D>(), from));
  }
  HWY_INLINE Vec finish(Vec v) const { return v; }
  HWY_INLINE void store(Vec v, std::uint8_t* to) const {
    const hn::Repartition<std::uint8_t, D> bytes;
    hn::StoreU(hn::BitCast(bytes, v), bytes, to);
  }
  static HWY_INLINE Vec broadcast(T value) { return hn::Set(D(), value); }
};

// Bytes in 16-bit lanes, for products: the low byte of a product needs only the low bytes of its factors.
class ByteProductCodec {
 public:
  using D = hn::ScalableTag<std::uint16_t>;
  using D8 = hn::Rebind<std::uint8_t, D>;
  using Vec = hn::Vec<D>;
  static constexpr std::size_t kBytes = HWY_MAX_BYTES / 2;
  static constexpr std::size_t kLanes = kBytes;
  static constexpr int kVectorsPerStep = 4;

  explicit HWY_INLINE ByteProductCodec(const Params&) {}
  HWY_INLINE Vec load(const std::uint8_t* from) const { return hn::PromoteTo(D(), hn::LoadU(D8(), from)); }
  HWY_INLINE Vec finish(Vec v) const { return v; }
  HWY_INLINE void store(Vec v, std::uint8_t* to) const {
    const Vec low = hn::And(v, hn::Set(D(), 0xff));
    hn::StoreU(hn::DemoteTo(D8(), hn::BitCast(hn::RebindToSigned<D>(), low)), D8(), to);
  }
  static HWY_INLINE Vec broadcast(std::uint8_t value) { return hn::Set(D(), value); }
};

template <class C, DataType kType>
void average_entry(void* out, const void* const* inputs, std::uint32_t n, std::size_t count) {
  if (count < C::kLanes) return scalar_reduce(kType, Operator::kAvg)(out, inputs, n, count);
  reduce_vectors<C, AddOp>(out, inputs, n, count, Params{});
  divide_integers(kType, out, n, count);
}

template <class T, DataType kType>
HWY_INLINE void add_sums(Kernels& kernels) {
  set(kernels, kType, Operator::kSum, reduce_entry<WordCodec<T>, AddOp, kType, Operator::kSum>);
  set(kernels, kType, Operator::kAvg, average_entry<WordCodec<T>, kType>);
}

template <class C, class T, DataType kType>
HWY_INLINE void add_products(Kernels& kernels) {
  set(kernels, kType, Operator::kProd, reduce_entry<C, MulOp, kType, Operator::kProd>);
  kernels.scale[static_cast<std::size_t>(kType)] = scale_entry<C, Integer<T>, kType>;
}

HWY_INLINE void take_scalar_products(Kernels& kernels, DataType type) {
  set(kernels, type, Operator::kProd, scalar_reduce(type, Operator::kProd));
  kernels.scale[static_cast<std::size_t>(type)] = kScalarKernels.scale[static_cast<std::size_t>(type)];
}

}  // namespace

void add_integer_kernels(Kernels& kernels) {
  add_sums<std::uint8_t, DataType::kInt8>(kernels);
  add_sums<std::uint8_t, DataType::kUint8>(kernels);
  add_sums<std::uint32_t, DataType::kInt32>(kernels);
  add_sums<std::uint32_t, DataType::kUint32>(kernels);
  add_sums<std::uint64_t, DataType::kInt64>(kernels);
  add_sums<std::uint64_t, DataType::kUint64>(kernels);
  add_products<ByteProductCodec, std::uint8_t, DataType::kInt8>(kernels);
  add_products<ByteProductCodec, std::uint8_t, DataType::kUint8>(kernels);
  add_products<WordCodec<std::uint32_t>, std::uint32_t, DataType::kInt32>(kernels);
  add_products<WordCodec<std::uint32_t>, std::uint32_t, DataType::kUint32>(kernels);
  take_scalar_products(kernels, DataType::kInt64);
  take_scalar_products(kernels, DataType::kUint64);
}

}  // namespace HWY_NAMESPACE
}  // namespace rocenante::reduce
HWY_AFTER_NAMESPACE();

#endif  // ROCENANTE_VECTOR_TARGET
