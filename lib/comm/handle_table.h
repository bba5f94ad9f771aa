// SPDX-License-Identifier: Apache-2.0
//
// What a public handle points to. Slots are never freed and are used again only after many others, so that
// a stale or wrong handle is told from a live one without touching freed memory.
//
// A slot's owner is whoever moved it from kIdle: calls move it to kBusy and back, destroy and abort to
// kClosing for good. Other threads (error queries, abort) pin it instead; the one that closes waits for
// pins before it frees.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

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
  std::uint64_t end_magic = kMagic;
};

// Takes a slot for `comm`, which it owns from now on; null if 65536 are alive.
CommSlot* adopt_communicator(std::unique_ptr<Communicator> comm);

// Whether a handle points at a slot at all; the error says why not.
Status check_handle(const void* handle);

// Exclusive use by a call of one thread. The error says whether the communicator is destroyed, being
// destroyed, used by another thread or inherited through a fork.
class ExclusiveUse {
 public:
  static Result<ExclusiveUse> begin(void* handle);
  ExclusiveUse(ExclusiveUse&& other) noexcept : slot_(other.slot_) { other.slot_ = nullptr; }
  ExclusiveUse& operator=(ExclusiveUse&&) = delete;
  ~ExclusiveUse() {
    // Release: the next user sees what this call wrote.
    if (slot_ != nullptr) slot_->state.store(CommSlot::kIdle, std::memory_order_release);
  }
  Communicator& operator*() const { return *slot_->comm.load(std::memory_order_relaxed); }
  Communicator* operator->() const { return slot_->comm.load(std::memory_order_relaxed); }

 private:
  explicit ExclusiveUse(CommSlot* slot) : slot_(slot) {}
  CommSlot* slot_;
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
