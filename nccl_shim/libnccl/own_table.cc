// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/own_table.h"

#include <sched.h>
#include <sys/mman.h>

#include <deque>
#include <mutex>
#include <new>

#include "lib/comm/handle_table.h"
#include "lib/net/fork.h"
#include "lib/net/keep_forever.h"

namespace {
// No handle is less than 4 MiB above it.
constexpr std::uintptr_t kNowhere = std::uintptr_t{1} << 63;
}  // namespace

std::uintptr_t rcn_nccl_own_base = kNowhere;

namespace rocenante::nccl {
namespace {

// A closed slot rests until this many others have closed.
constexpr std::size_t kQuarantine = 1024;

constinit std::mutex table_mutex;
[[maybe_unused]] const bool kHooked = net::lock_across_fork<table_mutex>();

struct Table {
  OwnSlot* slots = nullptr;
  std::size_t used = 0;
  std::size_t live = 0;
  std::deque<OwnSlot*> resting;
};

// Freed when the library goes only if no handle is alive: an application may end while its static objects
// still hold some.
struct TableOwner {
  Table* table = new Table;
  ~TableOwner() {
    if (table->live != 0) return;
    rcn_nccl_own_base = kNowhere;
    if (table->slots != nullptr) ::munmap(table->slots, RCN_NCCL_OWN_BYTES);
    delete table;
  }
};
Table& table() {
  static TableOwner owner;
  return *owner.table;
}

Status destroyed(const OwnSlot* slot, std::uint32_t state) {
  if (state == OwnSlot::kClosing) {
    return make_error(Code::kInvalidUsage, "comm {} is being destroyed", static_cast<const void*>(slot));
  }
  return make_error(Code::kInvalidArgument, "comm {} has been destroyed or aborted",
                    static_cast<const void*>(slot));
}

Status inherited(const OwnSlot* slot) {
  return make_error(Code::kInvalidUsage,
                    "comm {} was made before this process was forked: a child makes its own communicators",
                    static_cast<const void*>(slot));
}

Status in_progress(const OwnSlot* slot, std::uint32_t phase) {
  return make_error(Code::kInvalidUsage,
                    "comm {} is still {}: wait until ncclCommGetAsyncError says ncclSuccess, or abort it",
                    static_cast<const void*>(slot),
                    phase == OwnComm::kInitialising ? "initialising" : "busy with the call before");
}

void free_slot(OwnSlot* slot) {
  OwnComm* const own = slot->own.exchange(nullptr, std::memory_order_seq_cst);
  if (own->fork_generation == net::fork_generation()) {
    while (slot->pins.load(std::memory_order_seq_cst) != 0) ::sched_yield();
    delete own;
  } else {
    // Pins may be of threads that this process does not have, and its own thread is the parent's.
    slot->pins.store(0, std::memory_order_seq_cst);
    net::keep_forever(std::unique_ptr<OwnComm>(own));
  }
  Table& all = table();
  const std::lock_guard lock(table_mutex);
  slot->state.store(OwnSlot::kFree, std::memory_order_release);
  all.resting.push_back(slot);
  --all.live;
}

}  // namespace

OwnComm::OwnComm(int rank_number, int rank_count, OwnDevice on, bool is_blocking, Config settings)
    : rank(rank_number),
      ranks(rank_count),
      device(std::move(on)),
      blocking(is_blocking),
      config(std::move(settings)),
      fork_generation(net::fork_generation()) {}

Result<OwnSlot*> reserve_slot(std::unique_ptr<OwnComm> own) {
  Table& all = table();
  const std::lock_guard lock(table_mutex);
  if (all.slots == nullptr) {
    void* const memory = ::mmap(nullptr, RCN_NCCL_OWN_BYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return errno_error("mmap for communicator handles");
    all.slots = static_cast<OwnSlot*>(memory);
    std::atomic_ref(rcn_nccl_own_base)
        .store(reinterpret_cast<std::uintptr_t>(memory), std::memory_order_release);
  }
  OwnSlot* slot = nullptr;
  const bool all_used = all.used == kOwnSlots;
  if (!all.resting.empty() && (all.resting.size() > kQuarantine || all_used)) {
    slot = all.resting.front();
    all.resting.pop_front();
  } else if (!all_used) {
    slot = new (all.slots + all.used++) OwnSlot;
  } else {
    return make_error(Code::kInvalidUsage, "{} communicators are alive in this process: destroy some",
                      kOwnSlots);
  }
  ++all.live;
  slot->core.store(nullptr, std::memory_order_relaxed);
  slot->own.store(own.release(), std::memory_order_seq_cst);
  slot->state.store(OwnSlot::kLive, std::memory_order_seq_cst);
  return slot;
}

// As in lib/comm/handle_table: a pin is counted before the pointer is read, and the closer takes the
// pointer away before it counts the pins.
Result<OwnPin> OwnPin::begin(OwnSlot* slot) {
  slot->pins.fetch_add(1, std::memory_order_seq_cst);
  OwnComm* const own = slot->own.load(std::memory_order_seq_cst);
  if (own == nullptr) {
    slot->pins.fetch_sub(1, std::memory_order_release);
    return destroyed(slot, slot->state.load(std::memory_order_relaxed));
  }
  OwnPin pin(slot, own);
  if (own->fork_generation != net::fork_generation()) return inherited(slot);
  return pin;
}

Status close_own(OwnSlot* slot, bool aborting) {
  std::uint32_t state = OwnSlot::kLive;
  if (!slot->state.compare_exchange_strong(state, OwnSlot::kClosing, std::memory_order_acq_rel)) {
    return destroyed(slot, state);
  }
  OwnComm* const own = slot->own.load(std::memory_order_relaxed);
  const bool is_inherited = own->fork_generation != net::fork_generation();
  if (!is_inherited) {
    const std::uint32_t phase = own->phase.load(std::memory_order_acquire);
    if (!aborting && (phase == OwnComm::kInitialising || phase == OwnComm::kWorking)) {
      slot->state.store(OwnSlot::kLive, std::memory_order_release);
      return in_progress(slot, phase);
    }
    if (phase == OwnComm::kWorking) {
      // What it works on may wait for other ranks.
      const Result<PinnedUse> use = PinnedUse::begin(own->core);
      if (use.ok()) (*use.value()).abort_by_user();
    }
    // Else with the slot: a destruction that is refused changes nothing.
    if (aborting) own->work.stop();
    // Sequentially consistent, as is the cancellation: a thread that begins now sees that.
    while (aborting && own->meeting.load(std::memory_order_seq_cst)) ::sched_yield();
  }
  Status status;
  if (own->core != nullptr && !own->left) {
    status = close_communicator(own->core, aborting || own->revoked);
    if (!status.ok() && !is_inherited) {
      slot->state.store(OwnSlot::kLive, std::memory_order_release);
      return status;
    }
  }
  slot->core.store(nullptr, std::memory_order_release);
  free_slot(slot);
  return is_inherited ? inherited(slot) : status;
}

Status why_not_ready(OwnSlot* slot) {
  RCN_ASSIGN(const OwnPin own, OwnPin::begin(slot));
  const void* const handle = slot;
  switch (const std::uint32_t phase = own->phase.load(std::memory_order_acquire); phase) {
    case OwnComm::kInitialising:
    case OwnComm::kWorking:
      return in_progress(slot, phase);
    case OwnComm::kFailed:
      return own->error;
    default:
      break;
  }
  if (own->revoked)
    return make_error(Code::kInvalidUsage, "comm {} has been revoked, or aborted to shrink", handle);
  if (own->finalized) {
    return make_error(Code::kInvalidUsage, "comm {} has been finalized: only destroying it is left",
                      handle);
  }
  return {};
}

Status not_a_communicator(const void* handle) {
  if (handle == nullptr) return make_error(Code::kInvalidArgument, "comm is NULL");
  return make_error(Code::kInvalidArgument, "comm {} is not a communicator", handle);
}

}  // namespace rocenante::nccl
