// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/types.h"

namespace rocenante::bench {

namespace {

constexpr TypeInfo kTypes[] = {
    {"int8", rcnInt8, 1},         {"uint8", rcnUint8, 1},       {"int32", rcnInt32, 4},
    {"uint32", rcnUint32, 4},     {"int64", rcnInt64, 8},       {"uint64", rcnUint64, 8},
    {"half", rcnFloat16, 2},      {"float", rcnFloat32, 4},     {"double", rcnFloat64, 8},
    {"bfloat16", rcnBfloat16, 2}, {"f8e4m3", rcnFloat8e4m3, 1}, {"f8e5m2", rcnFloat8e5m2, 1},
};

constexpr OpInfo kOps[] = {
    {"sum", OpKind::kSum}, {"prod", OpKind::kProd}, {"max", OpKind::kMax},
    {"min", OpKind::kMin}, {"avg", OpKind::kAvg},   {"mulsum", OpKind::kMulSum},
};

constexpr OpInfo kNoOp = {"none", OpKind::kSum};

struct Alias {
  std::string_view alias;
  std::string_view name;
};

constexpr Alias kAliases[] = {
    {"float16", "half"},       {"f16", "half"},           {"fp16", "half"},       {"float32", "float"},
    {"f32", "float"},          {"fp32", "float"},         {"float64", "double"},  {"f64", "double"},
    {"fp64", "double"},        {"bf16", "bfloat16"},      {"fp8_e4m3", "f8e4m3"}, {"fp8_e5m2", "f8e5m2"},
    {"float8_e4m3", "f8e4m3"}, {"float8_e5m2", "f8e5m2"},
};

}  // namespace

std::span<const TypeInfo> all_types() {
  return kTypes;
}
std::span<const OpInfo> all_ops() {
  return kOps;
}

const OpInfo& no_op() {
  return kNoOp;
}

std::size_t element_size(rcnDataType_t type) {
  return kTypes[static_cast<std::size_t>(type)].size;
}

const TypeInfo* find_type(std::string_view name) {
  for (const Alias& entry : kAliases) {
    if (entry.alias == name) name = entry.name;
  }
  for (const TypeInfo& type : kTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

const OpInfo* find_op(std::string_view name) {
  for (const OpInfo& op : kOps) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

}  // namespace rocenante::bench
