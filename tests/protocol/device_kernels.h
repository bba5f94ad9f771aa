// SPDX-License-Identifier: Apache-2.0
//
// The device kernels' combiners on the CPU, chosen as launches choose them.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "reduce_kernels/device_combine.h"
#include "reduce_kernels/device_formats.h"

namespace rocenante::test {

// One call's reduction, and what is to be done with its combiner: `use` is called with a combiner of the
// kernel that makes the call; `special`: of the one for this number of ranks, if there is one.
struct Reduction {
  reduce::DataType type{};
  reduce::Operator op{};
  bool scaled = false;
  std::array<unsigned char, 8> scalar{};
  std::uint32_t ranks = 1;
};

// Which kernels a program compiles: each takes a compiler a second of its own.
struct EveryKernel {
  static constexpr bool has(reduce::KernelId) { return true; }
};

template <class Kernels = EveryKernel, class Use>
void with_combiner(const Reduction& call, const unsigned char** sources, bool special, const Use& use) {
  using namespace reduce;
  const KernelChoice choice = choose_kernel(call.type, call.op, call.scaled);
  DeviceReduction reduction{0, choice.flip, call.ranks};
  std::memcpy(&reduction.scalar, call.scalar.data(), sizeof(reduction.scalar));
  const auto made = [&]<class Spec, std::uint32_t kRanks>() {
    DeviceCombiner<Spec, kRanks, PlainMemory> combiner(reduction, sources);
    use(combiner);
  };
#define ROCENANTE_X(family, name, known_ranks, spec)                         \
  if constexpr (Kernels::has(KernelId::name)) {                              \
    if (special && choice.id == KernelId::name && call.ranks == known_ranks) \
      return made.template operator()<spec, known_ranks>();                  \
  }
  ROCENANTE_LATENCY_KERNELS(ROCENANTE_X)
#undef ROCENANTE_X
  switch (choice.id) {
#define ROCENANTE_X(family, name, spec)           \
  case KernelId::name:                            \
    if constexpr (Kernels::has(KernelId::name)) { \
      return made.template operator()<spec, 0>(); \
    }                                             \
    break;
    ROCENANTE_DEVICE_KERNELS(ROCENANTE_X)
#undef ROCENANTE_X
    case KernelId::kCount:
      break;
  }
  throw std::logic_error("a call takes a kernel that this program does not have");
}

}  // namespace rocenante::test
