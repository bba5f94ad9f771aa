// SPDX-License-Identifier: Apache-2.0
//
// The kernels: DeviceCall by the threads of each CTA, over one Combiner. Each family of types is a file
// that includes this and defines those of its list.
#pragma once

#include <cstddef>

#include "lib/protocol/device_call.h"
#include "reduce_kernels/cuda/device_env.cuh"
#include "reduce_kernels/cuda/kernel_arguments.h"

namespace rocenante::reduce {

// Links of so many ranks are copied to shared memory, where looking them up costs no way to memory.
inline constexpr std::uint32_t kSharedPeers = 16;

// Registers of the latency kernels: three CTAs of 512 fit an SM's 65,536 with 40 each. The others may take
// 64.
inline constexpr int kLatencyCtas = 3;
inline constexpr int kOtherCtas = 2;

__device__ inline void copy_words(void* to, const void* from, std::uint64_t bytes) {
  for (std::uint64_t i = threadIdx.x; i < bytes / sizeof(std::uint64_t); i += blockDim.x) {
    static_cast<std::uint64_t*>(to)[i] = static_cast<const std::uint64_t*>(from)[i];
  }
}

// They are copied by words.
static_assert(sizeof(protocol::DeviceLane) % 8 == 0 && sizeof(protocol::PeerLink) % 8 == 0);

template <class Spec, std::uint32_t kRanks>
__device__ inline void run_call(const KernelArguments& call) {
  __shared__ protocol::DeviceLane lane;
  __shared__ protocol::PeerLink links[kSharedPeers];
  __shared__ const unsigned char* sources[kRanks != 0 ? kRanks : kMaxInputs];
  protocol::PeerLink* const far_links = call.lane->lane.peers;
  const bool near = call.reduction.ranks <= kSharedPeers;
  copy_words(&lane, call.lane, sizeof(lane));
  if (near) copy_words(links, far_links, call.reduction.ranks * sizeof(protocol::PeerLink));
  __syncthreads();
  if (near && threadIdx.x == 0) lane.lane.peers = links;
  __syncthreads();

  DeviceEnv env;
  BlockGroup group;
  DeviceCombiner<Spec, kRanks, GlobalMemory> combiner(call.reduction, sources);
  protocol::DeviceCall<DeviceEnv, BlockGroup, DeviceCombiner<Spec, kRanks, GlobalMemory>> device_call(
      env, group, lane, combiner, protocol::Part{blockIdx.x, call.shift}, call.exchange);
  device_call.run();
}

}  // namespace rocenante::reduce

#define ROCENANTE_KERNEL(name, ranks, ctas, spec)                                         \
  extern "C" __global__ void __launch_bounds__(rocenante::reduce::kMostThreads, ctas)     \
      rocenante_##name(const __grid_constant__ rocenante::reduce::KernelArguments call) { \
    using namespace rocenante::reduce;                                                    \
    run_call<spec, ranks>(call);                                                          \
  }
#define ROCENANTE_DEFINE_KERNEL(family, name, spec) \
  ROCENANTE_KERNEL(name, 0, rocenante::reduce::kOtherCtas, spec)
#define ROCENANTE_DEFINE_LATENCY_KERNEL(family, name, ranks, spec) \
  ROCENANTE_KERNEL(name##_##ranks, ranks, rocenante::reduce::kLatencyCtas, spec)
