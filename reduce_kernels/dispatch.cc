// SPDX-License-Identifier: Apache-2.0
//
// Which targets this binary holds and which of them this processor runs.
#include "reduce_kernels/targets.h"
// Only for HWY_TARGETS.
#include "hwy/detect_targets.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "reduce_kernels/scalar.h"

namespace rocenante::reduce {

namespace {

#if defined(__x86_64__)

// What the processor has and the operating system saves across a context switch.
struct X86Features {
  bool sse4 = false;
  bool avx2 = false;
  bool avx512 = false;
};

std::uint64_t read_xcr0() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

constexpr bool has_all(std::uint64_t value, std::uint64_t mask) {
  return (value & mask) == mask;
}

X86Features detect_x86() {
  X86Features features;
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t c = 0;
  std::uint32_t d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return features;
  features.sse4 = has_all(c, bit_SSE3 | bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2);
  const bool avx = features.sse4 && has_all(c, bit_OSXSAVE | bit_AVX | bit_F16C);
  if (!avx) return features;

  constexpr std::uint64_t kYmmState = 0x6;
  constexpr std::uint64_t kZmmState = 0xe6;
  const std::uint64_t saved = read_xcr0();
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
  features.avx2 = has_all(saved, kYmmState) && has_all(b, bit_AVX2);
  features.avx512 = features.avx2 && has_all(saved, kZmmState) &&
                    has_all(b, bit_AVX512F | bit_AVX512VL | bit_AVX512DQ | bit_AVX512BW);
  return features;
}

const X86Features& x86() {
  static const X86Features features = detect_x86();
  return features;
}

#endif

struct Target {
  const char* name;
  bool (*supported)();
  const Kernels* (*kernels)();
};

#define ROCENANTE_DEFINE_TARGET(target_namespace, function, name) \
  const Kernels* function() {                                     \
    static const Kernels kernels = [] {                           \
      Kernels made{};                                             \
      made.target = name;                                         \
      target_namespace::add_float_kernels(made);                  \
      target_namespace::add_half_kernels(made);                   \
      target_namespace::add_fp8_kernels(made);                    \
      target_namespace::add_integer_kernels(made);                \
      target_namespace::add_order_kernels(made);                  \
      target_namespace::add_copy_kernel(made);                    \
      return made;                                                \
    }();                                                          \
    return &kernels;                                              \
  }

#if HWY_TARGETS & HWY_AVX3
ROCENANTE_DEFINE_TARGET(N_AVX3, avx512_kernels, "avx512")
#endif
#if HWY_TARGETS & HWY_AVX2
ROCENANTE_DEFINE_TARGET(N_AVX2, avx2_kernels, "avx2")
#endif
#if HWY_TARGETS & HWY_SSE4
ROCENANTE_DEFINE_TARGET(N_SSE4, sse4_kernels, "sse4")
#endif
// The one that is the baseline; a version of Highway that does not know a name has no such target.
#ifdef __aarch64__
#if defined(HWY_NEON_BF16) && HWY_STATIC_TARGET == HWY_NEON_BF16
ROCENANTE_DEFINE_TARGET(N_NEON_BF16, neon_kernels, "neon")
#elif defined(HWY_NEON_WITHOUT_AES) && HWY_STATIC_TARGET == HWY_NEON_WITHOUT_AES
ROCENANTE_DEFINE_TARGET(N_NEON_WITHOUT_AES, neon_kernels, "neon")
#else
ROCENANTE_DEFINE_TARGET(N_NEON, neon_kernels, "neon")
#endif
#endif

// Best first.
constexpr Target kTargets[] = {
#if HWY_TARGETS & HWY_AVX3
    {"avx512", [] { return x86().avx512; }, avx512_kernels},
#endif
#if HWY_TARGETS & HWY_AVX2
    {"avx2", [] { return x86().avx2; }, avx2_kernels},
#endif
#if HWY_TARGETS & HWY_SSE4
    {"sse4", [] { return x86().sse4; }, sse4_kernels},
#endif
#ifdef __aarch64__
    {"neon", [] { return true; }, neon_kernels},
#endif
    {"scalar", [] { return true; }, [] { return &kScalarKernels; }},
};

constexpr std::size_t kNumTargets = sizeof(kTargets) / sizeof(kTargets[0]);

struct Names {
  const char* list[kNumTargets + 1];
};

constexpr Names kNames = [] {
  Names names{};
  for (std::size_t i = 0; i < kNumTargets; ++i) names.list[i] = kTargets[i].name;
  return names;
}();

const Target* find_target(const char* name) {
  for (const Target& target : kTargets) {
    if (std::strcmp(name, target.name) == 0) return &target;
  }
  return nullptr;
}

}  // namespace

const char* const* built_targets() {
  return kNames.list;
}

bool target_supported(const char* name) {
  const Target* target = find_target(name);
  return target != nullptr && target->supported();
}

const Kernels* find_kernels(const char* name) {
  if (std::strcmp(name, "auto") == 0) {
    for (const Target& target : kTargets) {
      if (target.supported()) return target.kernels();
    }
  }
  const Target* target = find_target(name);
  return target != nullptr && target->supported() ? target->kernels() : nullptr;
}

}  // namespace rocenante::reduce
