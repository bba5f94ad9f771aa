// SPDX-License-Identifier: Apache-2.0
//
// The loops of the vector kernels, compiled once per target. A codec moves vectors of elements between
// memory and accumulators:
//
//   Vec                     the accumulator vector
//   kBytes, kLanes          bytes in memory and elements of one vector
//   kVectorsPerStep         vectors that the main loop takes at a time
//   Codec(const Params&)    constants of the call
//   load(const uint8_t*)    any alignment
//   finish(Vec)             what comes between the tree and rounding: the division of an average
//   store(Vec, uint8_t*)    rounds, makes NaNs canonical
//
// Elements do not depend on each other, so how a buffer is cut into vectors cannot change a bit.

#if defined(ROCENANTE_VECTOR_LOOP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ROCENANTE_VECTOR_LOOP_INL_H
#undef ROCENANTE_VECTOR_LOOP_INL_H
#else
#define ROCENANTE_VECTOR_LOOP_INL_H
#endif

#include "hwy/highway.h"
#include "reduce_kernels/scalar.h"
#include "reduce_kernels/tree.h"

// For the pieces that a loop holds many copies of. Inlining them is most of its speed; under
// AddressSanitizer it is minutes of compiling.
#undef ROCENANTE_VECTOR_INLINE
#if defined(__SANITIZE_ADDRESS__)
#define ROCENANTE_VECTOR_INLINE HWY_NOINLINE
#else
#define ROCENANTE_VECTOR_INLINE HWY_INLINE
#endif

HWY_BEFORE_NAMESPACE();
namespace rocenante::reduce {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// What a codec may need to know about the call; plain values, made by the table's entry.
struct Params {
  std::uint32_t divisor = 0;  // 0: no division
  std::uint64_t flip = 0;  // order kernels: xor mask that turns their maximum into the operator asked for
};

// An accumulator of two vectors, for formats whose neighbours share a lane.
template <class V>
struct EvenOdd {
  V even, odd;
};

struct AddOp {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Add(a, b);
  }
  template <class V>
  static HWY_INLINE EvenOdd<V> apply(EvenOdd<V> a, EvenOdd<V> b) {
    return {hn::Add(a.even, b.even), hn::Add(a.odd, b.odd)};
  }
};

struct MulOp {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Mul(a, b);
  }
  template <class V>
  static HWY_INLINE EvenOdd<V> apply(EvenOdd<V> a, EvenOdd<V> b) {
    return {hn::Mul(a.even, b.even), hn::Mul(a.odd, b.odd)};
  }
};

struct MaxOp {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Max(a, b);
  }
};

// kVectors neighbouring vectors, which is what a step takes from every rank. Whole cache lines where there
// is enough: ranks' buffers often lie a multiple of the page size apart, and nine streams through an
// eight-way cache set would fetch a line again for each vector in it. Halves of halves rather than an
// array: members stay in registers.
template <class C, int kVectors>
struct Pack {
  using Half = Pack<C, kVectors / 2>;
  static constexpr std::size_t kBytes = 2 * Half::kBytes;
  Half low, high;

  static HWY_INLINE Pack load(const C& codec, const std::uint8_t* from) {
    return {Half::load(codec, from), Half::load(codec, from + Half::kBytes)};
  }
  static HWY_INLINE Pack fill(typename C::Vec v) { return {Half::fill(v), Half::fill(v)}; }
  HWY_INLINE void store(const C& codec, std::uint8_t* to) const {
    low.store(codec, to);
    high.store(codec, to + Half::kBytes);
  }
  template <class Op>
  static HWY_INLINE Pack apply(const Pack& x, const Pack& y) {
    return {Half::template apply<Op>(x.low, y.low), Half::template apply<Op>(x.high, y.high)};
  }
};

template <class C>
struct Pack<C, 1> {
  static constexpr std::size_t kBytes = C::kBytes;
  typename C::Vec v;

  static ROCENANTE_VECTOR_INLINE Pack load(const C& codec, const std::uint8_t* from) {
    return {codec.load(from)};
  }
  static HWY_INLINE Pack fill(typename C::Vec v) { return {v}; }
  ROCENANTE_VECTOR_INLINE void store(const C& codec, std::uint8_t* to) const {
    codec.store(codec.finish(v), to);
  }
  template <class Op>
  static HWY_INLINE Pack apply(const Pack& x, const Pack& y) {
    return {Op::apply(x.v, y.v)};
  }
};

// Sources: the accumulators at a byte offset.

template <class C, class Op>
struct TwoRanks {
  const C& codec;
  const std::uint8_t* x;
  const std::uint8_t* y;

  template <class P>
  HWY_INLINE P at(std::size_t offset) const {
    return P::template apply<Op>(P::load(codec, x + offset), P::load(codec, y + offset));
  }
};

template <class C, class Op>
struct ManyRanks {
  const C& codec;
  const void* const* inputs;
  std::uint32_t n;

  // The aligned block of kRanks ranks from r on, its shape known at compile time.
  template <class P, std::uint32_t kRanks>
  HWY_INLINE P block(std::uint32_t r, std::size_t offset) const {
    if constexpr (kRanks == 1) {
      return P::load(codec, static_cast<const std::uint8_t*>(inputs[r]) + offset);
    } else {
      const P left = block<P, kRanks / 2>(r, offset);
      return P::template apply<Op>(left, block<P, kRanks / 2>(r + kRanks / 2, offset));
    }
  }

  // tree.h's binary counter, counting blocks of four ranks.
  template <class P>
  ROCENANTE_VECTOR_INLINE P at(std::size_t offset) const {
    P open[kTreeLevels];
    std::uint32_t depth = 0;
    std::uint32_t r = 0;
    for (; r + 4 <= n; r += 4) {
      P value = block<P, 4>(r, offset);
      for (std::uint32_t carry = r / 4; carry & 1; carry >>= 1) {
        value = P::template apply<Op>(open[--depth], value);
      }
      open[depth++] = value;
    }
    if (n & 2) {
      open[depth++] = block<P, 2>(r, offset);
      r += 2;
    }
    if (n & 1) open[depth++] = block<P, 1>(r, offset);
    P value = open[--depth];
    while (depth > 0) value = P::template apply<Op>(open[--depth], value);
    return value;
  }
};

template <class C>
struct Scaled {
  const C& codec;
  const std::uint8_t* in;
  typename C::Vec factor;

  template <class P>
  HWY_INLINE P at(std::size_t offset) const {
    return P::template apply<MulOp>(P::load(codec, in + offset), P::fill(factor));
  }
};

// Runs over at least one step. The last, which may overlap the one before it, is read first and stored at
// the end, because `out` may be an input and then holds results later on.
template <class P, class C, class Source>
HWY_INLINE void sweep_in_steps(const C& codec, const Source& source, std::uint8_t* out, std::size_t bytes) {
  const std::size_t last = bytes - P::kBytes;
  const P tail = source.template at<P>(last);
  for (std::size_t offset = 0; offset < last; offset += P::kBytes) {
    source.template at<P>(offset).store(codec, out + offset);
  }
  tail.store(codec, out + last);
}

template <class C, class Source>
HWY_INLINE void sweep(const C& codec, const Source& source, void* out, std::size_t bytes) {
  using Wide = Pack<C, C::kVectorsPerStep>;
  auto* to = static_cast<std::uint8_t*>(out);
  if (bytes >= Wide::kBytes) {
    sweep_in_steps<Wide>(codec, source, to, bytes);
  } else {
    sweep_in_steps<Pack<C, 1>>(codec, source, to, bytes);
  }
}

// Out of line: shared by the entries whose Params differ only.
template <class C, class Op>
HWY_NOINLINE void reduce_two(void* out, const void* const* inputs, std::size_t bytes, Params params) {
  const C codec(params);
  const TwoRanks<C, Op> source{codec, static_cast<const std::uint8_t*>(inputs[0]),
                               static_cast<const std::uint8_t*>(inputs[1])};
  sweep(codec, source, out, bytes);
}

template <class C, class Op>
HWY_NOINLINE void reduce_many(void* out, const void* const* inputs, std::uint32_t n, std::size_t bytes,
                              Params params) {
  const C codec(params);
  const ManyRanks<C, Op> source{codec, inputs, n};
  sweep(codec, source, out, bytes);
}

// At least one vector of elements; below that the scalar kernels are quicker.
template <class C, class Op>
HWY_INLINE void reduce_vectors(void* out, const void* const* inputs, std::uint32_t n, std::size_t count,
                               Params params) {
  const std::size_t bytes = count * (C::kBytes / C::kLanes);
  if (n == 2) {
    reduce_two<C, Op>(out, inputs, bytes, params);
  } else {
    reduce_many<C, Op>(out, inputs, n, bytes, params);
  }
}

HWY_INLINE ReduceFn scalar_reduce(DataType type, Operator op) {
  return kScalarKernels.reduce[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
}

// Table entries of the arithmetic operators.
template <class C, class Op, DataType kType, Operator kOp>
void reduce_entry(void* out, const void* const* inputs, std::uint32_t n, std::size_t count) {
  if (count < C::kLanes) return scalar_reduce(kType, kOp)(out, inputs, n, count);
  Params params;
  if (kOp == Operator::kAvg) params.divisor = n;
  reduce_vectors<C, Op>(out, inputs, n, count, params);
}

// F is the element's scalar format: it decodes the factor.
template <class C, class F, DataType kType>
void scale_entry(void* out, const void* in, std::size_t count, const void* scalar) {
  if (count < C::kLanes) {
    return kScalarKernels.scale[static_cast<std::size_t>(kType)](out, in, count, scalar);
  }
  const C codec{Params{}};
  const Scaled<C> source{codec, static_cast<const std::uint8_t*>(in), codec.broadcast(F::load(scalar))};
  sweep(codec, source, out, count * F::kSize);
}

HWY_INLINE void set(Kernels& kernels, DataType type, Operator op, ReduceFn fn) {
  kernels.reduce[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)] = fn;
}

// Sum, product, average and scaling of a float format.
template <class C, class F, DataType kType>
HWY_INLINE void add_float_format(Kernels& kernels) {
  set(kernels, kType, Operator::kSum, reduce_entry<C, AddOp, kType, Operator::kSum>);
  set(kernels, kType, Operator::kAvg, reduce_entry<C, AddOp, kType, Operator::kAvg>);
  set(kernels, kType, Operator::kProd, reduce_entry<C, MulOp, kType, Operator::kProd>);
  kernels.scale[static_cast<std::size_t>(kType)] = scale_entry<C, F, kType>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace rocenante::reduce
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
