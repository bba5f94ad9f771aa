// SPDX-License-Identifier: Apache-2.0
#include "tests/support/sim_stream.h"

#include <utility>

namespace rocenante::test {

void SimStream::enqueue(SimWork work) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  if (is_running_) return;
  is_running_ = true;
  pool_.run([self = shared_from_this()] { self->work(); });
}

void SimStream::work() {
  std::unique_lock lock(mutex_);
  while (!queue_.empty()) {
    SimWork work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    const Verdict verdict = work();
    work = nullptr;
    lock.lock();
    worst_ = worse(worst_, verdict);
  }
  is_running_ = false;
  idle_.notify_all();
}

Verdict SimStream::drain() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return !is_running_; });
  return std::exchange(worst_, Verdict::kReady);
}

}  // namespace rocenante::test
