// SPDX-License-Identifier: Apache-2.0
//
// ScopedFpEnvironment against everything a caller can have done to the control register.
#include <cfenv>

#include "tests/support/catch.h"
#include "tests/unit/reduce_cases.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace rocenante::reduce {
namespace {

using cases::Bytes;

#if defined(__x86_64__)

std::uint64_t read_control() {
  return _mm_getcsr();
}
void write_control(std::uint64_t value) {
  _mm_setcsr(static_cast<unsigned>(value));
}

struct Setting {
  const char* name;
  std::uint64_t bits;
  bool changes_results;
};

// Of MXCSR. Bit 5 is a sticky flag, which is the caller's.
constexpr std::uint64_t kDefault = 0x1f80;
constexpr std::uint64_t kSticky = 0x3f;
constexpr Setting kSettings[] = {
    {"default", 0x1f80, false},           {"a sticky flag", 0x1fa0, false}, {"flush to zero", 0x9f80, true},
    {"denormals are zero", 0x1fc0, true}, {"both", 0x9fc0, true},           {"round down", 0x3f80, true},
    {"round up", 0x5f80, true},           {"round to zero", 0x7f80, true},  {"all of it", 0xffc0, true},
    {"traps on inexact", 0x0f80, false},
};

#elif defined(__aarch64__)

std::uint64_t read_control() {
  std::uint64_t value;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void write_control(std::uint64_t value) {
  asm volatile("msr fpcr, %0" ::"r"(value) : "memory");
}

struct Setting {
  const char* name;
  std::uint64_t bits;
  bool changes_results;
};

constexpr std::uint64_t kDefault = 0;
constexpr std::uint64_t kSticky = 0;
constexpr Setting kSettings[] = {
    {"default", 0, false},
    {"flush to zero", 1u << 24, true},
    {"round up", 1u << 22, true},
    {"round down", 2u << 22, true},
    {"round to zero", 3u << 22, true},
    {"default NaN", 1u << 25, false},
    {"alternative half precision", 1u << 26, false},
};

#endif

// Results that need subnormals and nearest even: tiny numbers, and sums that do not fit.
struct Case {
  DataType type;
  cases::Inputs inputs;
  std::size_t count;
  Bytes expected;
};

std::vector<Case> sensitive_cases() {
  std::mt19937_64 random(cases::seed());
  std::vector<Case> all;
  constexpr std::size_t kCount = 140;
  for (const DataType type : cases::all_types()) {
    if (!oracle::is_float(type)) continue;
    cases::Inputs inputs(cases::random_ranks(type, 3, kCount, random), 0);
    Bytes expected = oracle::reduce(type, Operator::kAvg, inputs.pointers(), kCount);
    all.push_back({type, std::move(inputs), kCount, std::move(expected)});
  }
  return all;
}

Bytes average(const Kernels& kernels, const Case& c) {
  Bytes out(c.count * element_size(c.type));
  cases::reduce_of(kernels, c.type, Operator::kAvg)(out.data(), c.inputs.pointers().data(), 3, c.count);
  return out;
}

}  // namespace

#if defined(__x86_64__) || defined(__aarch64__)

TEST_CASE("kernels do not see the caller's floating-point environment, and it is given back", "[reduce]") {
  const std::vector<Case> all = sensitive_cases();
  const std::uint64_t before = read_control();
  for (const Setting& setting : kSettings) {
    INFO("setting: " << setting.name << ", seed " << cases::seed());
    for (const Kernels* kernels : cases::runnable_kernels()) {
      INFO("target " << kernels->target);
      for (const Case& c : all) {
        write_control(setting.bits);
        std::uint64_t inside = 0;
        Bytes guarded;
        {
          const ScopedFpEnvironment environment;
          inside = read_control();
          guarded = average(*kernels, c);
        }
        const std::uint64_t after = read_control();
        write_control(before);
        CHECK((inside & ~kSticky) == kDefault);
        CHECK((after & ~kSticky) == (setting.bits & ~kSticky));
        CHECK(cases::difference(c.type, c.expected.data(), guarded.data(), c.count) == "");
      }
    }
  }
}

// The other way round: inputs that came out right anyway would prove nothing.
TEST_CASE("without ScopedFpEnvironment each of those settings changes a result", "[reduce]") {
  const std::vector<Case> all = sensitive_cases();
  const std::uint64_t before = read_control();
  for (const Setting& setting : kSettings) {
    if (!setting.changes_results) continue;
    INFO("setting: " << setting.name);
    for (const Kernels* kernels : cases::runnable_kernels()) {
      INFO("target " << kernels->target);
      bool differs = false;
      for (const Case& c : all) {
        write_control(setting.bits);
        const Bytes bare = average(*kernels, c);
        write_control(before);
        differs = differs || bare != c.expected;
      }
      CHECK(differs);
    }
  }
}

#endif

TEST_CASE("the rounding mode set through the standard library is neutralised and restored", "[reduce]") {
  for (const int mode : {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO}) {
    REQUIRE(std::fesetround(mode) == 0);
    int inside = 0;
    {
      const ScopedFpEnvironment environment;
      inside = std::fegetround();
    }
    const int after = std::fegetround();
    std::fesetround(FE_TONEAREST);
#if defined(__x86_64__)
    // fegetround reads x87's copy, which SSE code never looks at; the register is checked above.
    (void)inside;
#else
    CHECK(inside == FE_TONEAREST);
#endif
    CHECK(after == mode);
  }
}

}  // namespace rocenante::reduce
