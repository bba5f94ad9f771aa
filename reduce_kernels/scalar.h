// SPDX-License-Identifier: Apache-2.0
//
// The "scalar" target, and what the vector targets take from it.
#pragma once

#include "reduce_kernels/reduce.h"

namespace rocenante::reduce {

// Constant-initialised: the vector kernels hand it counts below one vector.
extern const Kernels kScalarKernels;

// values[i] /= n, truncating, for the integer types: the second pass of an integer average.
void divide_integers(DataType type, void* values, std::uint32_t n, std::size_t count);

}  // namespace rocenante::reduce
