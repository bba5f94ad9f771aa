// SPDX-License-Identifier: Apache-2.0
//
// The floating-point environment that the kernels assume. Inline because an 8-byte all-reduce pays for it
// in full: one register read where the caller already runs with the defaults.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#include <cfenv>
#endif

namespace rocenante::reduce {

namespace fp_control {

#if defined(__x86_64__)

// MXCSR: bits 0-5 are sticky flags and nobody's business here, 6 is denormals-are-zero, 7-12 mask the
// exceptions, 13-14 round, 15 flushes to zero. x87 is not used on x86-64.
inline constexpr std::uint64_t kControlBits = 0xffc0;
inline constexpr std::uint64_t kWanted = 0x1f80;

inline std::uint64_t read() {
  return _mm_getcsr();
}
inline void write(std::uint64_t value) {
  _mm_setcsr(static_cast<unsigned>(value));
  asm volatile("" ::: "memory");
}

#elif defined(__aarch64__)

// FPCR: 22-23 round, 24 flushes to zero, 25 makes every NaN the default one, 26 selects the alternative
// half precision, 19 flushes fp16, 8-15 enable traps, 0-2 are FEAT_AFP. All zero is IEEE.
inline constexpr std::uint64_t kControlBits = 0x07cf9f07;
inline constexpr std::uint64_t kWanted = 0;

inline std::uint64_t read() {
  std::uint64_t value;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
inline void write(std::uint64_t value) {
  asm volatile("msr fpcr, %0" ::"r"(value) : "memory");
}

#else

// Elsewhere only the rounding mode can be named portably.
inline constexpr std::uint64_t kControlBits = ~std::uint64_t{0};
inline constexpr std::uint64_t kWanted = FE_TONEAREST;

inline std::uint64_t read() {
  return static_cast<std::uint64_t>(std::fegetround());
}
inline void write(std::uint64_t value) {
  std::fesetround(static_cast<int>(value));
}

#endif

}  // namespace fp_control

// Sets the calling thread to round-to-nearest without flush-to-zero or denormals-are-zero and masked
// exceptions, and restores the caller's control register. Costs a register read where nothing differs.
class ScopedFpEnvironment {
 public:
  ScopedFpEnvironment()
      : saved_(fp_control::read()), changed_((saved_ & fp_control::kControlBits) != fp_control::kWanted) {
    if (changed_) [[unlikely]] {
      fp_control::write((saved_ & ~fp_control::kControlBits) | fp_control::kWanted);
    }
  }
  ~ScopedFpEnvironment() {
    if (changed_) [[unlikely]] {
      fp_control::write(saved_);
    }
  }
  ScopedFpEnvironment(const ScopedFpEnvironment&) = delete;
  ScopedFpEnvironment& operator=(const ScopedFpEnvironment&) = delete;

 private:
  std::uint64_t saved_;
  bool changed_;
};

}  // namespace rocenante::reduce
