// SPDX-License-Identifier: Apache-2.0
#include "reduce_kernels/device_formats.h"

namespace rocenante::reduce {

namespace {

struct Row {
  KernelId sum, prod, avg, scaled, order;
  std::uint64_t unsigned_flip;  // makes the type's order signed
};

constexpr std::uint64_t kTop8 = 0x80, kTop32 = 0x8000'0000, kTop64 = 0x8000'0000'0000'0000;

constexpr Row row_of(DataType type) {
  using enum KernelId;
  switch (type) {
    case DataType::kInt8:
      return {sum_8, prod_8, avg_i8, scaled_8, order_8, 0};
    case DataType::kUint8:
      return {sum_8, prod_8, avg_u8, scaled_8, order_8, kTop8};
    case DataType::kInt32:
      return {sum_32, prod_32, avg_i32, scaled_32, order_32, 0};
    case DataType::kUint32:
      return {sum_32, prod_32, avg_u32, scaled_32, order_32, kTop32};
    case DataType::kInt64:
      return {sum_64, prod_64, avg_i64, scaled_64, order_64, 0};
    case DataType::kUint64:
      return {sum_64, prod_64, avg_u64, scaled_64, order_64, kTop64};
    case DataType::kFloat16:
      return {sum_f16, prod_f16, avg_f16, scaled_f16, order_f16, 0};
    case DataType::kFloat32:
      return {sum_f32, prod_f32, avg_f32, scaled_f32, order_f32, 0};
    case DataType::kFloat64:
      return {sum_f64, prod_f64, avg_f64, scaled_f64, order_f64, 0};
    case DataType::kBfloat16:
      return {sum_bf16, prod_bf16, avg_bf16, scaled_bf16, order_bf16, 0};
    case DataType::kFloat8e4m3:
      return {sum_e4m3, prod_e4m3, avg_e4m3, scaled_e4m3, order_e4m3, 0};
    case DataType::kFloat8e5m2:
      return {sum_e5m2, prod_e5m2, avg_e5m2, scaled_e5m2, order_e5m2, 0};
  }
  return {};
}

}  // namespace

KernelChoice choose_kernel(DataType type, Operator op, bool scaled) {
  const Row row = row_of(type);
  if (scaled) return {row.scaled, 0};
  switch (op) {
    case Operator::kSum:
      return {row.sum, 0};
    case Operator::kProd:
      return {row.prod, 0};
    case Operator::kMax:
      return {row.order, row.unsigned_flip};
    case Operator::kMin:
      return {row.order, ~row.unsigned_flip};
    case Operator::kAvg:
      return {row.avg, 0};
  }
  return {row.sum, 0};
}

}  // namespace rocenante::reduce
