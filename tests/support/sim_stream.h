// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/support/sim_device.h"

namespace rocenante::test {

// One stream. Its work runs in order, one at a time.
class SimStream : public std::enable_shared_from_this<SimStream> {
 public:
  explicit SimStream(SimPool& pool) : pool_(pool) {}

  void enqueue(SimWork work);
  // Waits for all that is enqueued; the worst verdict since the last time.
  Verdict drain();

  // The program's side, under the device's mutex.
  std::shared_ptr<SimCapture> capture;
  bool is_origin = false;          // of its capture
  std::vector<SimNode*> frontier;  // what comes next in the capture depends on these

 private:
  void work();

  SimPool& pool_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<SimWork> queue_;
  bool is_running_ = false;
  Verdict worst_ = Verdict::kReady;
};

}  // namespace rocenante::test
