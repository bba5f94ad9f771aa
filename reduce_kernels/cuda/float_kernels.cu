// SPDX-License-Identifier: Apache-2.0
#include "reduce_kernels/cuda/all_reduce.cuh"

ROCENANTE_FLOAT_KERNELS(ROCENANTE_DEFINE_KERNEL)
ROCENANTE_FOR_LATENCY_RANKS(ROCENANTE_DEFINE_LATENCY_KERNEL, sum_f32, SumOf<Float32>)
