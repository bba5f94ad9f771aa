// SPDX-License-Identifier: Apache-2.0
//
// The threads of the simulated device.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace rocenante::test {

// A task never waits for another to end: it gets an idle thread or a new one, because tasks wait for each
// other.
class SimPool {
 public:
  SimPool() = default;
  // Waits for all tasks.
  ~SimPool();
  SimPool(const SimPool&) = delete;
  SimPool& operator=(const SimPool&) = delete;

  void run(std::function<void()> task);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::size_t idle_ = 0;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

// Something that happens once and may be waited for.
class SimTicket {
 public:
  void finish() {
    const std::lock_guard lock(mutex_);
    is_done_ = true;
    done_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return is_done_; });
  }
  bool is_done() {
    const std::lock_guard lock(mutex_);
    return is_done_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool is_done_ = false;
};
using Ticket = std::shared_ptr<SimTicket>;

}  // namespace rocenante::test
