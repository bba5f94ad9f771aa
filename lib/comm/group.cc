// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/group.h"

#include <deque>
#include <optional>
#include <utility>

#include "lib/comm/at_once.h"
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
  std::deque<const CollectiveCall*> waiting;
  std::unique_ptr<Operation> running;
  std::uint64_t started_ns = 0;
  std::uint64_t epoch = 0;
};

// A call to be enqueued, of the communicator that `queue` holds.
struct StreamCall {
  std::size_t queue;
  const CollectiveCall* call;
  void* stream;
};

// Starts the next call of the queue; false when there is none or it failed.
bool start_next(Queue& queue, Status* first) {
  while (!queue.waiting.empty()) {
    const CollectiveCall& call = *queue.waiting.front();
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

std::string capture_text(const StreamCapture& capture) {
  return capture.active ? fmt::format("in capture {}", capture.id) : "in no capture";
}

// Of a group in two captures, or half in one, the order of a communicator's calls would say that some wait
// for others which run at another time.
Status check_captures(const std::vector<Queue>& queues, const std::vector<StreamCall>& calls) {
  std::optional<StreamCapture> first;
  for (const StreamCall& call : calls) {
    RCN_ASSIGN(const StreamCapture capture, (*queues[call.queue].use)->capture_of(call.stream));
    if (!first.has_value()) first = capture;
    if (capture.active == first->active && capture.id == first->id) continue;
    return make_error(Code::kInvalidUsage,
                      "stream {} is {}, another of the group is {}: the streams of a group are all in no "
                      "capture or all in one",
                      call.stream, capture_text(capture), capture_text(*first));
  }
  return {};
}

// Returns when all are enqueued. A communicator that has failed does nothing more.
void enqueue_all(std::vector<Queue>& queues, const std::vector<StreamCall>& calls, Status* first) {
  for (const StreamCall& call : calls)
    keep_first(first, (*queues[call.queue].use)->enqueue(*call.call, call.stream));
}

}  // namespace

Status CallGroup::end() {
  if (depth_ == 0) return make_error(Code::kInvalidUsage, "rcnGroupEnd without rcnGroupStart");
  if (--depth_ != 0) return {};
  const std::vector<PendingInit> inits = std::exchange(inits_, {});
  const std::vector<PendingCall> calls = std::exchange(calls_, {});
  const Status refused = std::exchange(refused_, {});
  if (!refused.ok()) {
    return make_error(refused.code(), "nothing of the group was performed: {}", refused.text());
  }
  Status first = run_inits(inits);
  keep_first(&first, run_calls(calls));
  return first;
}

void CallGroup::refuse(const Status& status) {
  keep_first(&refused_, status);
}

void CallGroup::discard() {
  if (--depth_ != 0) return;
  inits_.clear();
  calls_.clear();
  refused_ = {};
}

// Ranks of one world wait for each other while they connect, so each gets a thread for as long as that
// takes. None starts before all are there: those that could would wait for the one that could not.
Status CallGroup::run_inits(const std::vector<PendingInit>& inits) {
  if (inits.empty()) return {};
  const std::uint64_t driver = thread_number();
  std::vector<Status> results =
      run_at_once(inits.size(), [&](std::size_t i) { return initialise(inits[i]); });
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
  std::vector<StreamCall> stream_calls;
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
    if ((*at->use)->on_streams()) {
      stream_calls.push_back(
          {static_cast<std::size_t>(at - queues.begin()), &pending.call, pending.stream});
    } else {
      at->waiting.push_back(&pending.call);
    }
  }
  RCN_TRY(check_captures(queues, stream_calls));
  enqueue_all(queues, stream_calls, &first);
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
    backoff->pause([](std::uint64_t, std::uint64_t nap_ns) { net::sleep_ns(nap_ns); });
  }
  return first;
}

Status initialise(const PendingInit& init) {
  RCN_ASSIGN(
      std::unique_ptr<Communicator> comm,
      Communicator::create(init.id, init.rank, init.ranks, init.config, builtin_transports(), init.device));
  CommSlot* const slot = adopt_communicator(std::move(comm));
  if (slot == nullptr) {
    return make_error(Code::kInvalidUsage, "65536 communicators are alive in this process: destroy some");
  }
  *init.handle = slot;
  return {};
}

}  // namespace rocenante
