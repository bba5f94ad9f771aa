// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/real_world.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lib/base/log.h"
#include "lib/comm/at_once.h"
#include "lib/comm/boundary.h"
#include "lib/net/deadline.h"
#include "nccl_shim/libnccl/own_world.h"
#include "nccl_shim/libnccl/policy.h"
#include "nccl_shim/libnccl/thread_group.h"

namespace rocenante::nccl {
namespace {

constinit thread_local unsigned inside_depth = 0;

constexpr std::size_t kTail = kUniqueIdPayloadOffset;

Status try_extending(rcnUniqueId* id) {
  RCN_ASSIGN(const Config config, load_settings({}));
  if (!own_side_possible(config)) return {};
  RCN_ASSIGN(const UniqueId made, create_unique_id(config));
  return fill_tail(id, made);
}

void settle(SideEntry& entry, SideEntry::Decision decision, std::string why) {
  entry.why = std::move(why);
  log_info(entry.rank, "communicator of {} ranks beside NCCL: {}: {}", entry.ranks,
           decision == SideEntry::kOurs ? "small calls are ours" : "everything is NCCL's", entry.why);
  // Release: core and why before it.
  entry.decision.store(decision, std::memory_order_seq_cst);
}

Status meet(SideEntry& entry) {
  const net::ScopedCancel cancel(entry.work.cancelled());
  const PendingInit init{&entry.core,
                         entry.id,
                         static_cast<std::uint32_t>(entry.rank),
                         static_cast<std::uint32_t>(entry.ranks),
                         entry.core_config,
                         entry.device};
  return caught([&] { return initialise(init); });
}

}  // namespace

InsideReal::InsideReal() {
  ++inside_depth;
}
InsideReal::~InsideReal() {
  --inside_depth;
}
bool inside_real() {
  return inside_depth != 0;
}

Status fill_tail(rcnUniqueId* id, const UniqueId& ours) {
  const bool is_free = std::all_of(std::begin(id->internal) + kTail, std::end(id->internal),
                                   [](char byte) { return byte == 0; });
  if (!is_free) return make_error(Code::kInvalidUsage, "the real library's id leaves no room for ours");
  std::memcpy(id->internal + kTail, ours.bytes.data() + kTail, ours.bytes.size() - kTail);
  return {};
}

Result<UniqueId> side_id(const rcnUniqueId& id) {
  const UniqueId whole = to_internal(id);
  RCN_ASSIGN(const UniqueIdContents contents,
             decode_unique_id_payload(std::span(whole.bytes).subspan<kUniqueIdPayloadOffset>()));
  return encode_unique_id(contents);
}

void extend_id(rcnUniqueId* id) {
  if (const Status status = try_extending(id); !status.ok()) {
    log_warn(-1, "every call will be NCCL's: {}", status.text());
  }
}

std::unique_ptr<SideEntry> prepare_side(const rcnUniqueId& id, int nranks, int rank, const void* config) {
  if (nranks < 1 || rank < 0 || rank >= nranks) return nullptr;  // the real library will say so
  Result<Config> settings = load_settings({});
  const Result<UniqueId> ours = side_id(id);
  if (!settings.ok() || (!ours.ok() && settings.value().integer(Key::kStats) == 0)) return nullptr;
  Config taken = settings.take();
  Result<std::shared_ptr<Device>> device = open_device(ours.ok() ? taken.text(Key::kDevice) : "host");
  auto entry = std::make_unique<SideEntry>(rank, nranks, std::move(taken), std::move(device));
  const Result<bool> blocking = read_blocking(config);
  entry->blocking = !blocking.ok() || blocking.value();
  if (ours.ok()) {
    entry->id = ours.value();
  } else {
    settle(*entry, SideEntry::kReal, "the id carries no rendezvous of ours");
  }
  return entry;
}

bool adopt_side(void** handle, std::unique_ptr<SideEntry> entry) {
  if (entry == nullptr) return false;
  if (group_is_open()) {
    ThreadGroup::of_this_thread().real_inits.push_back({handle, std::move(entry)});
    return false;
  }
  return adopt_now(handle, std::move(entry));
}

bool adopt_now(void** handle, std::unique_ptr<SideEntry> entry) {
  if (handle == nullptr || *handle == nullptr) return false;
  SideEntry& added = *entry;
  const bool goes_on = !added.blocking && added.decision == SideEntry::kUndecided;
  if (goes_on) {
    wait_with(added, [&added, driver = thread_number()] {
      (void)decide(added);
      set_driver(added, driver);
    });
  }
  const Status status = add_side(*handle, std::move(entry));
  if (!status.ok()) log_warn(-1, "every call of a communicator will be NCCL's: {}", status.text());
  return status.ok() && goes_on;
}

void adopt_all(void** comms, int count, const int* devices) {
  const Status status = [&]() -> Status {
    RCN_ASSIGN(const Config config, load_settings({}));
    if (!own_side_possible(config) || group_is_open()) return {};
    RCN_ASSIGN(const UniqueId id, create_unique_id(config));
    for (int rank = 0; rank < count; ++rank) {
      const int number = devices == nullptr ? rank : devices[rank];
      auto entry =
          std::make_unique<SideEntry>(rank, count, config, open_device(config.text(Key::kDevice), number));
      entry->id = id;
      RCN_TRY(add_side(comms[rank], std::move(entry)));
    }
    return {};
  }();
  if (!status.ok()) log_warn(-1, "calls of some communicators will be NCCL's: {}", status.text());
}

void abort_core(const SideEntry& entry) {
  if (entry.decision.load(std::memory_order_seq_cst) != SideEntry::kOurs) return;
  const Result<PinnedUse> use = PinnedUse::begin(entry.core);
  if (use.ok()) (*use.value()).abort_by_user();
}

SideEntry::Decision decide(SideEntry& entry) {
  const auto decision = static_cast<SideEntry::Decision>(entry.decision.load(std::memory_order_acquire));
  if (decision != SideEntry::kUndecided) return decision;
  if (entry.is_inherited()) return SideEntry::kReal;
  const std::lock_guard lock(entry.deciding);
  if (entry.decision.load(std::memory_order_relaxed) == SideEntry::kUndecided) {
    const Status met = meet(entry);
    if (met.ok()) {
      settle(entry, SideEntry::kOurs, "all ranks take part");
      // Whoever gives the communicator up cancels first and then looks whether it is ours: one of the two
      // sees the other (both sequentially consistent).
      if (entry.work.cancelled().load(std::memory_order_seq_cst)) abort_core(entry);
    } else {
      settle(entry, SideEntry::kReal, met.text());
    }
  }
  return static_cast<SideEntry::Decision>(entry.decision.load(std::memory_order_relaxed));
}

void decide_all(const std::vector<void*>& comms) {
  const std::uint64_t driver = thread_number();
  const std::vector<Status> results = run_at_once(comms.size(), [&](std::size_t i) -> Status {
    const SidePin side(comms[i]);
    if (!side) return {};
    (void)decide(*side);
    set_driver(*side, driver);
    return {};
  });
  // Where no threads can be had, each decides at its own first call.
  for (const Status& result : results) {
    if (!result.ok()) log_warn(-1, "the sides of several communicators have not met: {}", result.text());
  }
}

void wait_with(SideEntry& entry, std::function<void()> todo) {
  const std::lock_guard lock(entry.todo_mutex);
  entry.todo.push_back(std::move(todo));
  // While others are being done it waits for another question after them.
  std::uint32_t progress = SideEntry::kIdle;
  entry.progress.compare_exchange_strong(progress, SideEntry::kWaiting, std::memory_order_release);
}

namespace {

// All that was waiting when the work began; what has come meanwhile waits on.
void do_waiting(SideEntry& entry) {
  std::vector<std::function<void()>> now;
  {
    const std::lock_guard lock(entry.todo_mutex);
    now.swap(entry.todo);
  }
  for (const std::function<void()>& todo : now) {
    (void)guarded([&]() -> Status {
      todo();
      return {};
    });
  }
  const std::lock_guard lock(entry.todo_mutex);
  // Release: all that was done before what the next question finds.
  entry.progress.store(entry.todo.empty() ? SideEntry::kIdle : SideEntry::kWaiting,
                       std::memory_order_release);
}

}  // namespace

void set_driver(const SideEntry& side, std::uint64_t driver) {
  if (side.decision.load(std::memory_order_acquire) != SideEntry::kOurs) return;
  if (const ExclusiveUse use(side.core); use) use->set_driver(driver);
}

bool side_goes_on(void* comm) {
  const SidePin side(comm);
  if (!side || side->is_inherited()) return false;
  SideEntry& entry = *side;
  std::uint32_t progress = SideEntry::kWaiting;
  if (!entry.progress.compare_exchange_strong(progress, SideEntry::kRunning, std::memory_order_acq_rel)) {
    return progress != SideEntry::kIdle;
  }
  const Status started = entry.work.start([&entry] {
    const net::ScopedCancel cancel(entry.work.cancelled());
    do_waiting(entry);
  });
  if (started.ok()) return true;
  log_warn(entry.rank, "our side of a communicator takes no part in anything new: {}", started.text());
  const std::lock_guard lock(entry.deciding);
  if (entry.decision == SideEntry::kUndecided) settle(entry, SideEntry::kReal, started.text());
  const std::lock_guard waiting(entry.todo_mutex);
  entry.todo.clear();
  entry.progress.store(SideEntry::kIdle, std::memory_order_release);
  return false;
}

Status busy_error(const void* comm) {
  return make_error(Code::kInvalidUsage,
                    "comm {} is still busy with the call before: wait until ncclCommGetAsyncError says "
                    "ncclSuccess, or abort it",
                    comm);
}

bool is_busy(const void* comm) {
  const SidePin side(comm);
  return side && side->progress.load(std::memory_order_acquire) != SideEntry::kIdle;
}

void abandon_side(void* comm) {
  const SidePin side(comm);
  if (!side || side->is_inherited()) return;
  // Whoever waits for the meeting, or for what a call before has begun; a shrink that follows waits anew.
  const bool goes_on = side->progress.load(std::memory_order_acquire) != SideEntry::kIdle;
  if (goes_on || side->decision == SideEntry::kUndecided) side->work.cancel();
  abort_core(*side);
  const std::lock_guard lock(side->deciding);
  if (side->decision == SideEntry::kUndecided)
    side->why = "the communicator was given up before its ranks had met";
  side->decision.store(SideEntry::kReal, std::memory_order_release);
}

// The order of an abort: our word first, so that nobody waits in a call of ours while the real library is
// told; the entry goes before the real call, whose address may be used again.
void end_side(void* comm, bool aborting) {
  {
    const SidePin side(comm);
    if (!side) return;
    side->work.cancel();
    if (aborting) abort_core(*side);
  }
  const std::unique_ptr<SideEntry> entry = remove_side(comm);
  if (entry == nullptr) return;
  // What is still being done waits for ranks, and would go on with a communicator that is no more.
  if (entry->progress.load(std::memory_order_acquire) == SideEntry::kRunning) abort_core(*entry);
  entry->work.stop();
  write_stats(entry->config, entry->rank, entry->ranks, entry->why, entry->core, entry->forwarded);
  if (entry->core == nullptr) return;
  if (const Status status = close_communicator(entry->core, aborting); !status.ok()) {
    log_warn(entry->rank, "leaving our side of a communicator: {}", status.text());
  }
  entry->core = nullptr;
}

std::uint64_t message_bytes(const CollectiveCall& call, int ranks) {
  const bool blocks = sends_blocks(call.collective) || receives_blocks(call.collective);
  const std::uint64_t unit = reduce::element_size(call.type) * (blocks ? static_cast<unsigned>(ranks) : 1U);
  std::uint64_t bytes = 0;
  return __builtin_mul_overflow(call.count, unit, &bytes) ? UINT64_MAX : bytes;
}

Reason why_not_ours(const SideEntry& side, const CollectiveCall& call) {
  if (call.op >= reduce::kNumOperators) return Reason::kOperator;
  const bool fits =
      message_bytes(call, side.ranks) <= side.max_bytes[static_cast<std::size_t>(call.collective)];
  return fits ? Reason::kNotTakingPart : Reason::kSize;
}

// By what all ranks share: size, operator, and what they have decided together.
Route route(SideEntry& side, const CollectiveCall& call, void* comm) {
  const bool can_be_ours =
      call.count != 0 && side.decision.load(std::memory_order_acquire) != SideEntry::kReal;
  const Reason reason = why_not_ours(side, call);
  const bool eligible = can_be_ours && reason == Reason::kNotTakingPart;
  if (eligible && side.progress.load(std::memory_order_acquire) != SideEntry::kIdle)
    return Route::kTooEarly;
  if (group_is_open()) {
    if (eligible) return Route::kCandidate;
    if (ThreadGroup::of_this_thread().holds(comm)) return Route::kHeld;
  } else if (eligible && decide(side) == SideEntry::kOurs) {
    return Route::kOurs;
  }
  side.forwarded.count(kind_of(call.collective), message_bytes(call, side.ranks), reason);
  return Route::kReal;
}

}  // namespace rocenante::nccl
