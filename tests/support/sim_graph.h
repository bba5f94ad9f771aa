// SPDX-License-Identifier: Apache-2.0
//
// Graphs of the simulated device: what a capture makes, and its runs.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "lib/device/stream_device.h"
#include "tests/support/sim_pool.h"

namespace rocenante::test {

using protocol::Verdict;

// What a stream or a graph does at one of its points. What is no call is always ready.
using SimWork = std::function<Verdict()>;

inline Verdict worse(Verdict a, Verdict b) {
  return a < b ? b : a;
}

// The communicator's event. Whoever owns it keeps it as long as a graph has nodes of it: they hold plain
// pointers, so that AddressSanitizer sees it if not.
class SimEvent final : public StreamEvent {
 public:
  Ticket latest() {
    const std::lock_guard lock(mutex_);
    return latest_;
  }
  Ticket renew() {
    const std::lock_guard lock(mutex_);
    latest_ = std::make_shared<SimTicket>();
    return latest_;
  }

 private:
  std::mutex mutex_;
  Ticket latest_;
};

struct SimNode {
  enum class Kind : std::uint8_t { kWork, kWait, kRecord };

  Kind kind = Kind::kWork;
  SimWork work;               // kWork
  SimEvent* event = nullptr;  // external, else
  std::size_t index = 0;
  std::vector<SimNode*> before;  // what it depends on
};

// A graph, ready to run. Runs of one graph follow each other. Goes before its device.
class SimGraph {
 public:
  explicit SimGraph(SimPool& pool) : pool_(pool) {}
  // Lets go of what was kept, on another thread.
  ~SimGraph();
  SimGraph(const SimGraph&) = delete;
  SimGraph& operator=(const SimGraph&) = delete;

  SimNode* add(SimNode node);
  void keep(std::shared_ptr<void> reference) { kept_.push_back(std::move(reference)); }
  // Whether everything that `node` depends on, however indirectly, includes `earlier`.
  bool follows(const std::vector<SimNode*>& nodes, const SimNode* earlier) const;
  const std::vector<std::unique_ptr<SimNode>>& nodes() const { return nodes_; }

  // Takes part in the order of events now; the returned work runs the graph and ends with it.
  SimWork launch(std::shared_ptr<SimGraph> self);

  // True on a thread that is letting go of what a graph has kept.
  static bool is_letting_go();

 private:
  SimPool& pool_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<std::shared_ptr<void>> kept_;
  std::mutex mutex_;
  Ticket previous_;  // the last run
};

}  // namespace rocenante::test
