// SPDX-License-Identifier: Apache-2.0
#include "tests/support/sim_graph.h"

#include <utility>

namespace rocenante::test {
namespace {

thread_local bool letting_go = false;

// One run: nodes start when all that they depend on have ended, each on a thread of its own.
class SimRun : public std::enable_shared_from_this<SimRun> {
 public:
  SimRun(std::shared_ptr<SimGraph> graph, SimPool& pool)
      : graph_(std::move(graph)),
        pool_(pool),
        states_(graph_->nodes().size()),
        left_(graph_->nodes().size()) {
    for (const auto& node : graph_->nodes()) {
      states_[node->index].missing = node->before.size();
      for (const SimNode* before : node->before) states_[before->index].after.push_back(node.get());
    }
    // What a run waits for came before it, its own records after.
    for (const auto& node : graph_->nodes()) {
      if (node->kind == SimNode::Kind::kWait) states_[node->index].ticket = node->event->latest();
    }
    for (const auto& node : graph_->nodes()) {
      if (node->kind == SimNode::Kind::kRecord) states_[node->index].ticket = node->event->renew();
    }
  }

  const Ticket& done() const { return done_; }

  Verdict execute() {
    if (left_ == 0) done_->finish();
    for (const auto& node : graph_->nodes()) {
      if (node->before.empty()) start(*node);
    }
    done_->wait();
    return worst_.load();
  }

 private:
  struct State {
    std::atomic<std::size_t> missing{0};
    std::vector<const SimNode*> after;
    Ticket ticket;
  };

  void start(const SimNode& node) {
    pool_.run([self = shared_from_this(), &node] { self->perform(node); });
  }

  void perform(const SimNode& first) {
    const SimNode* node = &first;
    while (node != nullptr) {
      const SimNode* next = nullptr;
      act(*node);
      for (const SimNode* after : states_[node->index].after) {
        if (states_[after->index].missing.fetch_sub(1) != 1) continue;
        if (next != nullptr) start(*next);
        next = after;
      }
      if (left_.fetch_sub(1) == 1) done_->finish();
      node = next;
    }
  }

  void act(const SimNode& node) {
    const Ticket& ticket = states_[node.index].ticket;
    switch (node.kind) {
      case SimNode::Kind::kWork: {
        const Verdict verdict = node.work();
        Verdict worst = worst_.load();
        while (worse(worst, verdict) != worst && !worst_.compare_exchange_weak(worst, verdict)) {
        }
        break;
      }
      case SimNode::Kind::kWait:
        if (ticket != nullptr) ticket->wait();
        break;
      case SimNode::Kind::kRecord:
        ticket->finish();
        break;
    }
  }

  const std::shared_ptr<SimGraph> graph_;
  SimPool& pool_;
  std::vector<State> states_;
  std::atomic<std::size_t> left_;
  std::atomic<Verdict> worst_{Verdict::kReady};
  const Ticket done_ = std::make_shared<SimTicket>();
};

}  // namespace

SimGraph::~SimGraph() {
  if (kept_.empty()) return;
  pool_.run([kept = std::move(kept_)]() mutable {
    letting_go = true;
    kept.clear();
    letting_go = false;
  });
}

bool SimGraph::is_letting_go() {
  return letting_go;
}

SimNode* SimGraph::add(SimNode node) {
  node.index = nodes_.size();
  nodes_.push_back(std::make_unique<SimNode>(std::move(node)));
  return nodes_.back().get();
}

bool SimGraph::follows(const std::vector<SimNode*>& nodes, const SimNode* earlier) const {
  std::vector<bool> seen(nodes_.size());
  std::vector<SimNode*> left = nodes;
  while (!left.empty()) {
    const SimNode* const node = left.back();
    left.pop_back();
    if (node == earlier) return true;
    if (seen[node->index]) continue;
    seen[node->index] = true;
    left.insert(left.end(), node->before.begin(), node->before.end());
  }
  return false;
}

SimWork SimGraph::launch(std::shared_ptr<SimGraph> self) {
  auto run = std::make_shared<SimRun>(std::move(self), pool_);
  Ticket previous;
  {
    const std::lock_guard lock(mutex_);
    previous = std::exchange(previous_, run->done());
  }
  return [run = std::move(run), previous = std::move(previous)] {
    if (previous != nullptr) previous->wait();
    return run->execute();
  };
}

}  // namespace rocenante::test
