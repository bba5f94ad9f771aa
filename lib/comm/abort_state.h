// SPDX-License-Identifier: Apache-2.0
//
// The host's abort word and the story behind it. First cause wins; the details are written before the word
// (failure rule 2).
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "lib/base/status.h"
#include "lib/protocol/abort_word.h"

namespace rocenante {

// How long a transport's error waits for another rank's abort, which may have caused it and be on its way.
inline constexpr std::uint64_t kFirstCauseNs = 300'000'000;

class AbortState {
 public:
  // True if this was the first cause; raised() holds either way once it has returned. Any thread.
  bool raise(protocol::AbortCause cause, Status status) {
    bool expected = false;
    if (!claimed_.compare_exchange_strong(expected, true, std::memory_order_acq_rel)) {
      // The winner stores the word within a few instructions: whoever has called raise() may rely on
      // raised().
      while (!raised()) ::sched_yield();
      return false;
    }
    status_ = std::move(status);
    // Release: whoever acquires the word sees the status.
    __atomic_store_n(&word_, protocol::pack_abort(cause), __ATOMIC_RELEASE);
    return true;
  }

  bool raised() const { return __atomic_load_n(&word_, __ATOMIC_ACQUIRE) != 0; }
  std::uint64_t word() const { return __atomic_load_n(&word_, __ATOMIC_ACQUIRE); }
  const std::uint64_t* address() const { return &word_; }

  // The first cause; only after raised().
  const Status& status() const { return status_; }

 private:
  std::uint64_t word_ = 0;
  std::atomic<bool> claimed_{false};
  Status status_;
};

}  // namespace rocenante
