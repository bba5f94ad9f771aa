// SPDX-License-Identifier: Apache-2.0
//
// What a communicator does while its client does something else: the set-up that a non-blocking call only
// begins, one piece of work at a time, on a thread of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "lib/base/status.h"

namespace rocenante::nccl {

class Background {
 public:
  Background() = default;
  ~Background() { stop(); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Runs `work`, which must watch cancelled() and may neither start nor stop work of this kind. What ran
  // before must be at its end. InvalidUsage after stop() and once the library is being unloaded,
  // SystemError if there is no thread to be had.
  Status start(std::function<void()> work);

  // For net::ScopedCancel. Set by cancel() and stop(), and when the library goes.
  const std::atomic<bool>& cancelled() const { return cancelled_; }
  // Any thread; does not wait.
  void cancel() { cancelled_.store(true, std::memory_order_seq_cst); }
  // Cancels and waits for the work to end; in a child of a fork, which has no such thread, it does not.
  // Takes no lock where nothing was started: work may give up what it has made while the library goes.
  void stop();

 private:
  friend class BackgroundAtUnload;
  void link();
  void unlink();

  std::atomic<bool> cancelled_{false};
  // Sequentially consistent: of a start and a stop at the same time one sees the other.
  std::atomic<bool> is_stopped_{false};
  std::atomic<bool> is_linked_{false};
  // The rest under the lock of all of them.
  std::thread thread_;
  std::uint64_t fork_generation_ = 0;
  Background* next_ = nullptr;
  Background* previous_ = nullptr;
};

}  // namespace rocenante::nccl
