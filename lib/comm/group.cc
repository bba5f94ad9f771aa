// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/group.h"

#include <time.h>

#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "lib/comm/handle_table.h"

namespace rocenante {
namespace {

void keep_first(Status* first, Status next) {
  if (first->ok()) *first = std::move(next);
}

// The calls of one communicator, in issue order; the front one is being performed.
struct Queue {
  void* handle;
  std::optional<ExclusiveUse> use;
  std::deque<const AllReduceCall*> waiting;
  std::unique_ptr<Operation> running;
  std::uint64_t started_ns = 0;
  std::uint64_t epoch = 0;
};

// Starts the next call of the queue; false when there is none or it failed.
bool start_next(Queue& queue, Status* first) {
  while (!queue.waiting.empty()) {
    const AllReduceCall& call = *queue.waiting.front();
    queue.waiting.pop_front();
    Result<std::unique_ptr<Operation>> made = (*queue.use)->make_operation(call);
    if (!made.ok()) {
      keep_first(first, made.status());
      queue.waiting.clear();
      return false;
    }
    queue.running = made.take();
    queue.started_ns = monotonic_ns();
    queue.epoch = queue.running->epoch();
    return true;
  }
  return false;
}

// One look at every queue; false when all are done.
bool step_all(std::vector<Queue>& queues, bool look_after, Status* first, bool* progressed) {
  bool pending = false;
  for (Queue& queue : queues) {
    while (queue.running != nullptr) {
      const protocol::Verdict verdict = queue.running->step();
      if (verdict == protocol::Verdict::kPending) {
        pending = true;
        if (queue.epoch != queue.running->epoch()) {
          queue.epoch = queue.running->epoch();
          queue.started_ns = monotonic_ns();
          *progressed = true;
        }
        (*queue.use)->progress(*queue.running);
        if (look_after) (*queue.use)->look_after(*queue.running, monotonic_ns() - queue.started_ns);
        break;
      }
      *progressed = true;
      Status status = (*queue.use)->finish(*queue.running, verdict);
      queue.running.reset();
      if (!status.ok()) {
        keep_first(first, std::move(status));
        queue.waiting.clear();
      }
      start_next(queue, first);
    }
  }
  return pending;
}

}  // namespace

Status CallGroup::end() {
  if (depth_ == 0) return make_error(Code::kInvalidUsage, "rcnGroupEnd without rcnGroupStart");
  if (--depth_ != 0) return {};
  Status first = run_inits(std::exchange(inits_, {}));
  keep_first(&first, run_calls(std::exchange(calls_, {})));
  return first;
}

// Ranks of one world wait for each other while they connect, so each gets a thread for as long as that
// takes.
Status CallGroup::run_inits(std::vector<PendingInit> inits) {
  if (inits.empty()) return {};
  std::vector<Status> results(inits.size());
  std::vector<std::jthread> threads;
  const std::uint64_t driver = thread_number();
  for (std::size_t i = 0; i < inits.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = initialise(inits[i]); });
  }
  threads.clear();  // joins
  Status first;
  for (std::size_t i = 0; i < inits.size(); ++i) {
    if (results[i].ok()) {
      // Made by a helper thread, but this thread's to drive.
      if (const ExclusiveUse use(*inits[i].handle); use) use->set_driver(driver);
    }
    keep_first(&first, std::move(results[i]));
  }
  return first;
}

Status CallGroup::run_calls(const std::vector<PendingCall>& calls) {
  std::vector<Queue> queues;
  Status first;
  for (const PendingCall& pending : calls) {
    auto at = std::find_if(queues.begin(), queues.end(),
                           [&](const Queue& q) { return q.handle == pending.handle; });
    if (at == queues.end()) {
      ExclusiveUse use(pending.handle);
      if (!use) {
        keep_first(&first, ExclusiveUse::refusal(pending.handle));
        continue;
      }
      queues.push_back(Queue{pending.handle, std::nullopt, {}, nullptr, 0, 0});
      at = std::prev(queues.end());
      at->use.emplace(std::move(use));
      (*at->use)->set_driver(thread_number());
    }
    at->waiting.push_back(&pending.call);
  }
  const reduce::ScopedFpEnvironment environment;
  for (Queue& queue : queues) start_next(queue, &first);
  const WaitPolicy policy = WaitPolicy::choose(static_cast<std::uint32_t>(queues.size()), 1, 0);
  std::optional<Backoff> backoff;
  for (;;) {
    const bool check = backoff.has_value() && backoff->time_to_check();
    if (check) backoff->checked(monotonic_ns());
    bool progressed = false;
    if (!step_all(queues, check, &first, &progressed)) break;
    if (progressed || !backoff.has_value()) backoff.emplace(policy);
    // Several communicators are waited for at once, so there is no one line to sleep on.
    backoff->pause([](std::uint64_t) {
      const timespec nap{0, 50'000};
      ::nanosleep(&nap, nullptr);
    });
  }
  return first;
}

Status initialise(const PendingInit& init) {
  RCN_ASSIGN(std::unique_ptr<Communicator> comm,
             Communicator::create(init.id, init.rank, init.ranks, init.config));
  CommSlot* const slot = adopt_communicator(std::move(comm));
  if (slot == nullptr) {
    return make_error(Code::kInvalidUsage, "65536 communicators are alive in this process: destroy some");
  }
  *init.handle = slot;
  return {};
}

}  // namespace rocenante
