// SPDX-License-Identifier: Apache-2.0
//
// The protocol's Env and Group on a GPU, and the memory of its Combiner. Everything that a peer, a NIC or
// the host also touches is accessed at system scope: the other side is a CPU, a NIC or another GPU.
#pragma once

#include <cstdint>

#include "lib/protocol/call_rounds.h"
#include "reduce_kernels/device_combine.h"

namespace rocenante::reduce {

// All memory of a call is global. The conversion is free; the instructions for global memory are cheaper.
__device__ inline std::uint64_t global(const void* address) {
  return static_cast<std::uint64_t>(__cvta_generic_to_global(address));
}

// Relaxed at system scope: coherent with everybody's writes, never from a cache that is not.
struct GlobalMemory {
  template <class T>
  __device__ static T load(const unsigned char* from) {
    if constexpr (sizeof(T) == sizeof(Pack)) {
      T pack;
      asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(pack.words[0]), "=r"(pack.words[1]), "=r"(pack.words[2]), "=r"(pack.words[3])
                   : "l"(global(from))
                   : "memory");
      return pack;
    } else if constexpr (sizeof(T) == 8) {
      T pack;
      asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];"
                   : "=r"(pack.words[0]), "=r"(pack.words[1])
                   : "l"(global(from))
                   : "memory");
      return pack;
    } else if constexpr (sizeof(T) == 4) {
      std::uint32_t value;
      asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(global(from)) : "memory");
      return value;
    } else if constexpr (sizeof(T) == 2) {
      std::uint16_t value;
      asm volatile("ld.relaxed.sys.global.u16 %0, [%1];" : "=h"(value) : "l"(global(from)) : "memory");
      return value;
    } else {
      std::uint32_t value;
      asm volatile("ld.relaxed.sys.global.u8 %0, [%1];" : "=r"(value) : "l"(global(from)) : "memory");
      return static_cast<T>(value);
    }
  }

  // Weak: what others read is released by a signal or by the end of the kernel.
  template <class T>
  __device__ static void store(unsigned char* to, const T& value) {
    if constexpr (sizeof(T) == sizeof(Pack)) {
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(global(to)), "r"(value.words[0]),
                   "r"(value.words[1]), "r"(value.words[2]), "r"(value.words[3])
                   : "memory");
    } else if constexpr (sizeof(T) == 8) {
      asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(global(to)), "r"(value.words[0]),
                   "r"(value.words[1])
                   : "memory");
    } else {
      *reinterpret_cast<T*>(to) = value;
    }
  }
};

struct DeviceEnv {
  static constexpr protocol::Mutation kMutation = protocol::Mutation::kNone;

  __device__ std::uint64_t load_acquire(const std::uint64_t* word) const {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(global(word)) : "memory");
    return value;
  }
  __device__ std::uint32_t load_acquire(const std::uint32_t* word) const {
    std::uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(global(word)) : "memory");
    return value;
  }
  __device__ std::uint64_t load_relaxed(const std::uint64_t* word) const {
    std::uint64_t value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(global(word)) : "memory");
    return value;
  }
  __device__ std::uint32_t load_relaxed(const std::uint32_t* word) const {
    std::uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(global(word)) : "memory");
    return value;
  }
  __device__ void store_release(std::uint64_t* word, std::uint64_t value) const {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(global(word)), "l"(value) : "memory");
  }
  __device__ void store_relaxed(std::uint64_t* word, std::uint64_t value) const {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(global(word)), "l"(value) : "memory");
  }

  // Arrivals of sibling groups: of this device alone.
  __device__ std::uint64_t fetch_add(std::uint64_t* word, std::uint64_t value) const {
    std::uint64_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(global(word)), "l"(value)
                 : "memory");
    return before;
  }
  __device__ bool claim(std::uint64_t* word, std::uint64_t value) const {
    std::uint64_t before;
    asm volatile("atom.acq_rel.gpu.global.cas.b64 %0, [%1], %2, %3;"
                 : "=l"(before)
                 : "l"(global(word)), "l"(std::uint64_t{0}), "l"(value)
                 : "memory");
    return before == 0;
  }

  __device__ void copy(void* to, const void* from, std::uint64_t bytes) const {
    copy_packs<GlobalMemory>(static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from),
                             static_cast<std::uint32_t>(bytes));
  }

  __device__ std::uint64_t clock_ns() const {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
  }
  __device__ void pause() const {}
  __device__ void acquire_from_nic() const {}  // ld.acquire.sys covers the whole system
  __device__ void pull(const void*) const {}   // no cache of its own to bring it to
};

// The threads of a CTA. A barrier that gathers a predicate costs what a plain one does.
struct BlockGroup {
  using FewRegisters = void;
  __device__ static std::uint32_t id() { return threadIdx.x; }
  __device__ static std::uint32_t size() { return blockDim.x; }
  __device__ static void sync() { __syncthreads(); }
  __device__ static bool broadcast(bool value) { return __syncthreads_or(threadIdx.x == 0 && value) != 0; }
  __device__ static protocol::Verdict worst(protocol::Verdict value) {
    using protocol::Verdict;
    if (__syncthreads_or(value != Verdict::kReady) == 0) return Verdict::kReady;
    if (__syncthreads_or(value == Verdict::kMismatch) != 0) return Verdict::kMismatch;
    return __syncthreads_or(value == Verdict::kAborted) != 0 ? Verdict::kAborted : Verdict::kPending;
  }
};

}  // namespace rocenante::reduce
