// SPDX-License-Identifier: Apache-2.0
#include "reduce_kernels/cuda/all_reduce.cuh"

ROCENANTE_INTEGER_KERNELS(ROCENANTE_DEFINE_KERNEL)
