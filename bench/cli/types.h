// SPDX-License-Identifier: Apache-2.0
//
// Names of data types and operators on the command line, as in nccl-tests.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "rocenante/rocenante.h"

namespace rocenante::bench {

struct TypeInfo {
  const char* name;
  rcnDataType_t value;
  std::size_t size;  // bytes of one element
};

// The first five have the numbers of rcnRedOp_t; the last is made with rcnRedOpCreatePreMulSum.
enum class OpKind { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4, kMulSum = 5 };

struct OpInfo {
  const char* name;
  OpKind kind;
};

// In the order of the numbers, which is also that of "all".
std::span<const TypeInfo> all_types();
std::span<const OpInfo> all_ops();
// "none", for collectives that reduce nothing.
const OpInfo& no_op();

// Bytes of one element.
std::size_t element_size(rcnDataType_t type);

// By name or alias ("fp16", "float32", ...); null if there is none.
const TypeInfo* find_type(std::string_view name);
const OpInfo* find_op(std::string_view name);

}  // namespace rocenante::bench
