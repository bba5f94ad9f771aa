// SPDX-License-Identifier: Apache-2.0
#include "reduce_kernels/scalar.h"

#include <cstring>

#include "reduce_kernels/tree.h"

namespace rocenante::reduce {

namespace {

// An average is a sum with one more step.
struct Avg {};

template <class F, class Op>
void reduce(void* out, const void* const* inputs, std::uint32_t n, std::size_t count) {
  auto* to = static_cast<unsigned char*>(out);
  if constexpr (std::is_same_v<Op, Avg>) {
    for (std::size_t at = 0; at < count * F::kSize; at += F::kSize) {
      const auto load = [=](std::uint32_t r) {
        return F::load(static_cast<const unsigned char*>(inputs[r]) + at);
      };
      F::store(to + at, divide_by_ranks(combine_ranks<Sum>(load, n), n));
    }
  } else if (n == 2) {
    const auto* a = static_cast<const unsigned char*>(inputs[0]);
    const auto* b = static_cast<const unsigned char*>(inputs[1]);
    for (std::size_t at = 0; at < count * F::kSize; at += F::kSize) {
      F::store(to + at, Op::apply(F::load(a + at), F::load(b + at)));
    }
  } else {
    for (std::size_t at = 0; at < count * F::kSize; at += F::kSize) {
      const auto load = [=](std::uint32_t r) {
        return F::load(static_cast<const unsigned char*>(inputs[r]) + at);
      };
      F::store(to + at, combine_ranks<Op>(load, n));
    }
  }
}

template <class F>
void scale(void* out, const void* in, std::size_t count, const void* scalar) {
  const auto* from = static_cast<const unsigned char*>(in);
  auto* to = static_cast<unsigned char*>(out);
  const auto factor = F::load(scalar);
  for (std::size_t at = 0; at < count * F::kSize; at += F::kSize) {
    F::store(to + at, Prod::apply(F::load(from + at), factor));
  }
}

template <class F>
constexpr void add_format(Kernels& kernels, DataType type) {
  const auto row = static_cast<std::size_t>(type);
  ReduceFn* reduce_row = kernels.reduce[row];
  reduce_row[static_cast<std::size_t>(Operator::kSum)] = reduce<F, Sum>;
  reduce_row[static_cast<std::size_t>(Operator::kProd)] = reduce<F, Prod>;
  reduce_row[static_cast<std::size_t>(Operator::kMax)] = reduce<F, Max>;
  reduce_row[static_cast<std::size_t>(Operator::kMin)] = reduce<F, Min>;
  reduce_row[static_cast<std::size_t>(Operator::kAvg)] = reduce<F, Avg>;
  kernels.scale[row] = scale<F>;
}

void copy(void* out, const void* in, std::size_t bytes) {
  std::memcpy(out, in, bytes);
}

constexpr Kernels make_kernels() {
  Kernels kernels{};
  kernels.target = "scalar";
  add_format<Integer<std::int8_t>>(kernels, DataType::kInt8);
  add_format<Integer<std::uint8_t>>(kernels, DataType::kUint8);
  add_format<Integer<std::int32_t>>(kernels, DataType::kInt32);
  add_format<Integer<std::uint32_t>>(kernels, DataType::kUint32);
  add_format<Integer<std::int64_t>>(kernels, DataType::kInt64);
  add_format<Integer<std::uint64_t>>(kernels, DataType::kUint64);
  add_format<Float16>(kernels, DataType::kFloat16);
  add_format<Float32>(kernels, DataType::kFloat32);
  add_format<Float64>(kernels, DataType::kFloat64);
  add_format<Bfloat16>(kernels, DataType::kBfloat16);
  add_format<Float8e4m3>(kernels, DataType::kFloat8e4m3);
  add_format<Float8e5m2>(kernels, DataType::kFloat8e5m2);
  kernels.copy = copy;
  return kernels;
}

template <class T>
void divide_all(void* values, std::uint32_t n, std::size_t count) {
  auto* at = static_cast<unsigned char*>(values);
  for (std::size_t i = 0; i < count; ++i, at += sizeof(T)) {
    store_raw(at, divide_by_ranks(load_raw<T>(at), n));
  }
}

}  // namespace

constinit const Kernels kScalarKernels = make_kernels();

void divide_integers(DataType type, void* values, std::uint32_t n, std::size_t count) {
  switch (type) {
    case DataType::kInt8:
      return divide_all<std::int8_t>(values, n, count);
    case DataType::kUint8:
      return divide_all<std::uint8_t>(values, n, count);
    case DataType::kInt32:
      return divide_all<std::int32_t>(values, n, count);
    case DataType::kUint32:
      return divide_all<std::uint32_t>(values, n, count);
    case DataType::kInt64:
      return divide_all<std::int64_t>(values, n, count);
    case DataType::kUint64:
      return divide_all<std::uint64_t>(values, n, count);
    default:
      return;  // floats divide in the accumulator
  }
}

}  // namespace rocenante::reduce
