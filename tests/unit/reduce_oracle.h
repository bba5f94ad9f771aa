// SPDX-License-Identifier: Apache-2.0
//
// What the reduction kernels must return, computed slowly from the definitions in docs/numerics.md. Shares
// no code with the kernels: small floats are decoded field by field and encoded by searching the list of
// all of the format's numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reduce_kernels/reduce.h"

namespace rocenante::reduce::oracle {

using Bytes = std::vector<std::uint8_t>;

const char* type_name(DataType type);
const char* operator_name(Operator op);
bool is_float(DataType type);

// The pattern of the only NaN that may be a result.
std::uint64_t canonical_nan(DataType type);

// An element's pattern at index i of an unaligned buffer, and back.
std::uint64_t get_bits(DataType type, const void* data, std::size_t i);
void set_bits(DataType type, void* data, std::size_t i, std::uint64_t bits);

// The number that a pattern of a float format of at most 32 bits stands for.
double decode(DataType type, std::uint64_t bits);

// Expected output, `count` elements.
Bytes reduce(DataType type, Operator op, const std::vector<const void*>& inputs, std::size_t count);
Bytes scale(DataType type, const void* in, std::size_t count, const void* scalar);

}  // namespace rocenante::reduce::oracle
