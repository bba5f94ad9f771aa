// SPDX-License-Identifier: Apache-2.0
//
// Which SIMD targets are built, and what each of them defines. Every vector file includes this before any
// Highway header. Highway is used for its operations and for foreach_target.h only: no part of its library
// is linked, and no -m flag is given, which would let wide instructions leak into shared inline functions.
#pragma once

#include "reduce_kernels/reduce.h"

// HWY_SCALAR and HWY_EMU128 are Highway's own fallbacks: it insists on one as baseline, the vector files
// compile to nothing for it.
#ifdef __aarch64__
// NEON is part of every aarch64, so the compiler's baseline is all there is to build. Highway's versions
// have several targets for it, by the instructions that go beyond, and one of them is that baseline. To
// choose at run time Highway would enable AES, which not every processor has; this macro of its is how to
// say no.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define TOOLCHAIN_MISS_SYS_AUXV_H
#else
#define HWY_DISABLED_TARGETS (~(HWY_AVX3 | HWY_AVX2 | HWY_SSE4 | HWY_EMU128 | HWY_SCALAR))
#endif
// Not needed, so neither asked of the processor nor within the compiler's reach.
#define HWY_DISABLE_PCLMUL_AES
#define HWY_DISABLE_BMI2_FMA
// Highway's debug assertions call a function of its library.
#define HWY_IS_DEBUG_BUILD 0

// True in the passes over a vector file whose code is wanted.
#define ROCENANTE_VECTOR_TARGET (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)

// The families of kernels of one target; each fills its part of the table.
#define ROCENANTE_DECLARE_FAMILIES(target_namespace) \
  namespace target_namespace {                       \
  void add_float_kernels(Kernels& kernels);          \
  void add_half_kernels(Kernels& kernels);           \
  void add_fp8_kernels(Kernels& kernels);            \
  void add_integer_kernels(Kernels& kernels);        \
  void add_order_kernels(Kernels& kernels);          \
  void add_copy_kernel(Kernels& kernels);            \
  }

namespace rocenante::reduce {
ROCENANTE_DECLARE_FAMILIES(N_AVX3)
ROCENANTE_DECLARE_FAMILIES(N_AVX2)
ROCENANTE_DECLARE_FAMILIES(N_SSE4)
ROCENANTE_DECLARE_FAMILIES(N_NEON)
ROCENANTE_DECLARE_FAMILIES(N_NEON_WITHOUT_AES)
ROCENANTE_DECLARE_FAMILIES(N_NEON_BF16)
}  // namespace rocenante::reduce
