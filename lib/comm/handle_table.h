// SPDX-License-Identifier: Apache-2.0
//
// What a public handle points to. Slots are never freed and are used again only after many others, so that
// a stale or wrong handle is told from a live one without touching freed memory.
//
// A slot's owner is whoever moved it from kIdle: calls move it to kBusy and back, destroy and abort to
// kClosing for good. Other threads (error queries, abort) pin it instead; the one that closes waits for
// pins before it frees.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "lib/base/status.h"
#include "lib/comm/communicator.h"

namespace rocenante {

struct alignas(64) CommSlot {
  static constexpr std::uint64_t kMagic = 0x524f43454e414e54;  // "ROCENANT"

  enum State : std::uint32_t { kFree, kIdle, kBusy, kClosing };

  std::uint64_t magic = kMagic;
  std::atomic<std::uint32_t> state{kFree};
  std::atomic<std::uint32_t> pins{0};
  std::atomic<Communicator*> comm{nullptr};
  // What clients know it by, for error texts; null where that is the slot itself.
  std::atomic<const void*> alias{nullptr};
  std::uint64_t end_magic = kMagic;
};

// Takes a slot for `comm`, which it owns from now on; null if 65536 are alive.
CommSlot* adopt_communicator(std::unique_ptr<Communicator> comm);

// Errors name `alias` from now on, for interfaces that hand out handles of their own.
void set_alias(void* handle, const void* alias);

// The slots that were made first, which hold every handle of a process with up to 1024 communicators; null
// until then.
inline constexpr std::size_t kSlotsPerChunk = 1024;
using SlotChunk = std::array<CommSlot, kSlotsPerChunk>;
extern std::atomic<SlotChunk*> first_slots;

// The slot a handle points at, or null. Any value of `handle` is safe.
CommSlot* find_slot_slowly(const void* handle);
inline CommSlot* find_slot(const void* handle) {
  const SlotChunk* const chunk = first_slots.load(std::memory_order_acquire);
  const std::uintptr_t offset =
      reinterpret_cast<std::uintptr_t>(handle) - reinterpret_cast<std::uintptr_t>(chunk);
  if (chunk != nullptr && offset < sizeof(SlotChunk) && offset % sizeof(CommSlot) == 0) [[likely]] {
    return static_cast<CommSlot*>(const_cast<void*>(handle));
  }
  return find_slot_slowly(handle);
}

// Exclusive use by a call of one thread. Empty where the communicator is destroyed, being destroyed, used
// by another thread or inherited through a fork; refusal() then says which.
class ExclusiveUse {
 public:
  explicit ExclusiveUse(void* handle) : slot_(find_slot(handle)) {
    std::uint32_t state = CommSlot::kIdle;
    // Acquire: pairs with the release of the last user.
    if (slot_ == nullptr ||
        !slot_->state.compare_exchange_strong(state, CommSlot::kBusy, std::memory_order_acquire,
                                              std::memory_order_relaxed)) [[unlikely]] {
      slot_ = nullptr;
      return;
    }
    comm_ = slot_->comm.load(std::memory_order_relaxed);
    if (comm_->inherited()) [[unlikely]]
      end();
  }
  ExclusiveUse(ExclusiveUse&& other) noexcept
      : slot_(std::exchange(other.slot_, nullptr)), comm_(other.comm_) {}
  ExclusiveUse& operator=(ExclusiveUse&&) = delete;
  ~ExclusiveUse() { end(); }

  explicit operator bool() const { return slot_ != nullptr; }
  // Why `handle` could not be used: never success.
  static Status refusal(const void* handle);

  Communicator& operator*() const { return *comm_; }
  Communicator* operator->() const { return comm_; }

 private:
  void end() {
    // Release: the next user sees what this call wrote.
    if (slot_ != nullptr) slot_->state.store(CommSlot::kIdle, std::memory_order_release);
    slot_ = nullptr;
  }

  CommSlot* slot_;
  Communicator* comm_ = nullptr;
};

// Shared use from any thread, for queries and abort.
class PinnedUse {
 public:
  static Result<PinnedUse> begin(void* handle);
  PinnedUse(PinnedUse&& other) noexcept : slot_(other.slot_), comm_(other.comm_) { other.slot_ = nullptr; }
  PinnedUse& operator=(PinnedUse&&) = delete;
  ~PinnedUse() {
    if (slot_ != nullptr) slot_->pins.fetch_sub(1, std::memory_order_release);
  }
  Communicator& operator*() const { return *comm_; }
  Communicator* operator->() const { return comm_; }

 private:
  PinnedUse(CommSlot* slot, Communicator* comm) : slot_(slot), comm_(comm) {}
  CommSlot* slot_;
  Communicator* comm_;
};

// Ends a communicator: waits until no call or query uses it, then frees it. With `aborting`, calls in
// progress are told to end first.
Status close_communicator(void* handle, bool aborting);

}  // namespace rocenante
