// SPDX-License-Identifier: Apache-2.0
//
// The protocol's Env and Group for host memory: the calling thread alone drives a round.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "lib/net/deadline.h"
#include "lib/protocol/layout.h"
#include "lib/protocol/mutation.h"

namespace rocenante {

using net::monotonic_ns;

inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // yield is a no-op on most cores
#endif
}

class HostEnv {
 public:
  static constexpr protocol::Mutation kMutation = protocol::Mutation::kNone;

  template <class T>
  T load_acquire(const T* word) const {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
  }
  template <class T>
  T load_relaxed(const T* word) const {
    return __atomic_load_n(word, __ATOMIC_RELAXED);
  }
  template <class T>
  void store_release(T* word, T value) const {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
  }
  template <class T>
  void store_relaxed(T* word, T value) const {
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
  }
  template <class T>
  T fetch_add(T* word, T value) const {
    return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
  }

  void copy(void* to, const void* from, std::uint64_t bytes) const {
    // The smallest messages are the most frequent; a call of memcpy costs more than they do.
    if (bytes == 8) {
      std::memcpy(to, from, 8);
    } else if (bytes == 4) {
      std::memcpy(to, from, 4);
    } else if (bytes >= 16 && bytes <= protocol::kInlineBytes) {
      auto* const target = static_cast<unsigned char*>(to);
      const auto* const source = static_cast<const unsigned char*>(from);
      std::uint64_t at = 0;
      for (; at + 16 < bytes; at += 16) std::memcpy(target + at, source + at, 16);
      std::memcpy(target + bytes - 16, source + bytes - 16, 16);
    } else {
      std::memcpy(to, from, bytes);
    }
  }

  void fence() const {
#if defined(ROCENANTE_TSAN)
    // ThreadSanitizer knows no fences; a read-modify-write of one shared word orders at least as much.
    static std::atomic<int> word{0};
    word.fetch_add(1, std::memory_order_seq_cst);
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }

  // An acquire orders against other processors. What a NIC has written is ordered by a load barrier that
  // covers devices.
  void acquire_from_nic() const {
#if defined(__aarch64__)
    asm volatile("dmb oshld" ::: "memory");
#endif
  }

  // Brings the cache line of `at` here without looking at it: another thread may be writing it. Where
  // caches of two processors are far apart, a prefetch that finds the line taken is dropped, so x86 loads.
  void pull(const void* at) const {
#if defined(__x86_64__)
    std::uint64_t unused;
    asm volatile("movq (%1), %0" : "=r"(unused) : "r"(at));
#else
    __builtin_prefetch(at);
#endif
  }

  // The words lie in memory shared between processes: no FUTEX_PRIVATE_FLAG.
  void wait(const std::uint32_t* word, std::uint32_t expected, std::uint64_t limit_ns) const {
    const timespec limit = net::timespec_of(limit_ns);
    ::syscall(SYS_futex, word, FUTEX_WAIT, expected, &limit, nullptr, 0);
  }
  void notify(const std::uint32_t* word) const {
    ::syscall(SYS_futex, word, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
  }
};

// One thread.
class SoloGroup {
 public:
  static constexpr std::uint32_t id() { return 0; }
  static constexpr std::uint32_t size() { return 1; }
  static constexpr void sync() {}
  template <class T>
  static constexpr T broadcast(T value) {
    return value;
  }
  template <class T>
  static constexpr T worst(T value) {
    return value;
  }
};

}  // namespace rocenante
