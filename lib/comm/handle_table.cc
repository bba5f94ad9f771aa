// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/handle_table.h"

#include <sched.h>

#include <array>
#include <deque>
#include <mutex>

#include "lib/base/log.h"
#include "lib/net/fork.h"

namespace rocenante {
namespace {

constexpr std::size_t kMaxChunks = 64;
// A closed slot rests until this many others have closed.
constexpr std::size_t kQuarantine = 1024;

constinit std::mutex table_mutex;
[[maybe_unused]] const bool kHooked = net::lock_across_fork<table_mutex>();

struct Table {
  std::array<std::atomic<SlotChunk*>, kMaxChunks> chunks{};
  std::size_t used = 0;  // slots ever given out
  std::deque<CommSlot*> resting;
};

// Never destroyed: handles stay checkable while static objects of the application go.
Table& table() {
  static Table* const instance = new Table;
  return *instance;
}

Status not_a_handle(const void* handle) {
  if (handle == nullptr) return make_error(Code::kInvalidArgument, "comm is NULL");
  return make_error(Code::kInvalidArgument, "comm {} is not a communicator made by rcnCommInitRank",
                    handle);
}

const void* shown(const CommSlot& slot) {
  const void* const alias = slot.alias.load(std::memory_order_relaxed);
  return alias == nullptr ? &slot : alias;
}

Status dead_handle(const CommSlot& slot, std::uint32_t state) {
  const void* const handle = shown(slot);
  switch (state) {
    case CommSlot::kBusy:
      return make_error(
          Code::kInvalidUsage,
          "comm {} is used by another thread: one communicator is used by one thread at a time", handle);
    case CommSlot::kClosing:
      return make_error(Code::kInvalidUsage, "comm {} is being destroyed", handle);
    default:
      return make_error(Code::kInvalidArgument, "comm {} has been destroyed or aborted", handle);
  }
}

Status inherited_handle(const CommSlot& slot) {
  return make_error(Code::kInvalidUsage,
                    "comm {} was made before this process was forked: a child makes its own communicators",
                    shown(slot));
}

}  // namespace

std::atomic<SlotChunk*> first_slots{nullptr};

CommSlot* find_slot_slowly(const void* handle) {
  const auto address = reinterpret_cast<std::uintptr_t>(handle);
  for (const std::atomic<SlotChunk*>& entry : table().chunks) {
    SlotChunk* const chunk = entry.load(std::memory_order_acquire);
    if (chunk == nullptr) break;
    const auto base = reinterpret_cast<std::uintptr_t>(chunk->data());
    if (address < base || address >= base + sizeof(SlotChunk)) continue;
    const std::size_t offset = address - base;
    return offset % sizeof(CommSlot) == 0 ? &(*chunk)[offset / sizeof(CommSlot)] : nullptr;
  }
  return nullptr;
}

CommSlot* adopt_communicator(std::unique_ptr<Communicator> comm) {
  Table& slots = table();
  const std::lock_guard lock(table_mutex);
  CommSlot* slot = nullptr;
  const bool all_chunks_full = slots.used == kSlotsPerChunk * kMaxChunks;
  if (!slots.resting.empty() && (slots.resting.size() > kQuarantine || all_chunks_full)) {
    slot = slots.resting.front();
    slots.resting.pop_front();
  } else {
    if (all_chunks_full) return nullptr;
    std::atomic<SlotChunk*>& chunk = slots.chunks[slots.used / kSlotsPerChunk];
    // Release: a handle's chunk is found by threads that never took the lock.
    if (slots.used % kSlotsPerChunk == 0) {
      auto* const fresh = new SlotChunk;
      chunk.store(fresh, std::memory_order_release);
      if (slots.used == 0) first_slots.store(fresh, std::memory_order_release);
    }
    slot = &(*chunk.load(std::memory_order_relaxed))[slots.used % kSlotsPerChunk];
    ++slots.used;
  }
  slot->alias.store(nullptr, std::memory_order_relaxed);
  slot->comm.store(comm.release(), std::memory_order_seq_cst);
  slot->state.store(CommSlot::kIdle, std::memory_order_seq_cst);
  return slot;
}

void set_alias(void* handle, const void* alias) {
  if (CommSlot* const slot = find_slot(handle); slot != nullptr) {
    slot->alias.store(alias, std::memory_order_relaxed);
  }
}

Status ExclusiveUse::refusal(const void* handle) {
  const CommSlot* const slot = find_slot(handle);
  if (slot == nullptr) return not_a_handle(handle);
  const std::uint32_t state = slot->state.load(std::memory_order_relaxed);
  // Idle by now: it was inherited, or another thread has just left.
  if (state != CommSlot::kIdle) return dead_handle(*slot, state);
  const Result<PinnedUse> use = PinnedUse::begin(const_cast<void*>(handle));
  return use.ok() ? dead_handle(*slot, CommSlot::kBusy) : use.status();
}

// The order that matters: a pin is counted before the pointer is read, and the closer takes the pointer
// away before it counts the pins; sequentially consistent on both sides, so that one of them sees the
// other.
Result<PinnedUse> PinnedUse::begin(void* handle) {
  CommSlot* const slot = find_slot(handle);
  if (slot == nullptr) return not_a_handle(handle);
  slot->pins.fetch_add(1, std::memory_order_seq_cst);
  Communicator* const comm = slot->comm.load(std::memory_order_seq_cst);
  if (comm == nullptr) {
    slot->pins.fetch_sub(1, std::memory_order_release);
    return dead_handle(*slot, slot->state.load(std::memory_order_relaxed));
  }
  PinnedUse use(slot, comm);
  if (use->inherited()) return inherited_handle(*slot);
  return use;
}

Status close_communicator(void* handle, bool aborting) {
  CommSlot* const slot = find_slot(handle);
  if (slot == nullptr) return not_a_handle(handle);
  for (;;) {
    std::uint32_t state = CommSlot::kIdle;
    if (slot->state.compare_exchange_strong(state, CommSlot::kClosing, std::memory_order_acq_rel)) break;
    if (state != CommSlot::kBusy || !aborting) return dead_handle(*slot, state);
    // A call is in progress: tell it to end, then wait for it to leave.
    Result<PinnedUse> use = PinnedUse::begin(handle);
    if (!use.ok()) return use.status();
    use.value()->abort_by_user();
    ::sched_yield();
  }
  std::unique_ptr<Communicator> comm(slot->comm.load(std::memory_order_relaxed));
  const bool inherited = comm->inherited();
  if (aborting && !inherited) comm->abort_by_user();
  slot->comm.store(nullptr, std::memory_order_seq_cst);
  if (inherited) {
    // Pins may be of threads that this process does not have.
    slot->pins.store(0, std::memory_order_seq_cst);
    // Its threads and mappings are the parent's; there is nothing here that could be released.
    [[maybe_unused]] const Communicator* const leaked = comm.release();
  } else {
    while (slot->pins.load(std::memory_order_seq_cst) != 0) ::sched_yield();
    comm.reset();
  }
  Table& slots = table();
  const std::lock_guard lock(table_mutex);
  slot->state.store(CommSlot::kFree, std::memory_order_release);
  slots.resting.push_back(slot);
  return inherited ? inherited_handle(*slot) : Status();
}

}  // namespace rocenante
