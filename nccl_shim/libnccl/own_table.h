// SPDX-License-Identifier: Apache-2.0
//
// Communicators of our own world, as clients hold them. A handle points at a slot; slots lie in one range
// of addresses, are never freed and rest before they are used again, so that any value can be judged
// without touching memory that is not ours.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "lib/base/config.h"
#include "lib/base/status.h"
#include "lib/device/registry.h"
#include "nccl_shim/libnccl/background.h"
#include "nccl_shim/libnccl/layout.h"

// Where the slots begin; far from any address as long as there are none. Read by forwarders.S.
extern "C" __attribute__((visibility("hidden"))) std::uintptr_t rcn_nccl_own_base;

namespace rocenante::nccl {

// A communicator's device, opened on its client's thread: which one is current is a thread's.
struct OwnDevice {
  int label = -1;  // what clients call it: host memory has none
  Result<std::shared_ptr<Device>> opened;
};

// What there is to a communicator beside the one of lib/comm.
struct OwnComm {
  enum Phase : std::uint32_t {
    kInitialising,
    kReady,
    kWorking,  // was ready, and a call that only began is being finished
    kFailed,   // one of the two has failed
  };

  OwnComm(int rank_number, int rank_count, OwnDevice on, bool is_blocking, Config settings);

  const int rank;
  const int ranks;
  const OwnDevice device;
  const bool blocking;
  const Config config;
  const std::uint64_t fork_generation;
  std::atomic<std::uint32_t> phase{kInitialising};
  Status error;          // before phase becomes kFailed
  void* core = nullptr;  // the communicator of lib/comm, before phase becomes kReady
  std::atomic<bool> finalized{false};
  std::atomic<bool> left{false};         // finalized, and its core is gone
  std::atomic<bool> revoked{false};      // by its client, also to shrink
  std::atomic<bool> has_grow_id{false};  // ncclCommGetUniqueId made one that is not used up
  std::atomic<bool> meeting{false};      // a thread initialises it
  Background work;  // what ends that thread's waits, and what goes on in the background
};

struct alignas(64) OwnSlot {
  static constexpr std::uint64_t kMagic = 0x4e43434c2d52434e;  // "NCCL-RCN"
  enum State : std::uint32_t { kFree, kLive, kClosing };

  std::uint64_t magic = kMagic;
  std::atomic<std::uint32_t> state{kFree};
  std::atomic<std::uint32_t> pins{0};
  // OwnComm::core as long as calls may use it.
  std::atomic<void*> core{nullptr};
  std::atomic<OwnComm*> own{nullptr};
};
inline constexpr std::size_t kOwnSlots = RCN_NCCL_OWN_BYTES / sizeof(OwnSlot);
static_assert(sizeof(OwnSlot) == 64);

// The slot a handle points at, or null. Any value is safe.
inline OwnSlot* own_slot(const void* handle) {
  const std::uintptr_t base = std::atomic_ref(rcn_nccl_own_base).load(std::memory_order_acquire);
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(handle) - base;
  if (offset >= RCN_NCCL_OWN_BYTES || offset % sizeof(OwnSlot) != 0) return nullptr;
  return static_cast<OwnSlot*>(const_cast<void*>(handle));
}

// Takes a slot, which owns `own` from now on and is live. InvalidUsage if all are taken.
Result<OwnSlot*> reserve_slot(std::unique_ptr<OwnComm> own);

// Keeps a communicator's OwnComm alive; for everything but the calls themselves.
class OwnPin {
 public:
  static Result<OwnPin> begin(OwnSlot* slot);
  OwnPin(OwnPin&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)), own_(other.own_) {}
  OwnPin& operator=(OwnPin&&) = delete;
  ~OwnPin() {
    if (slot_ != nullptr) slot_->pins.fetch_sub(1, std::memory_order_release);
  }
  OwnComm* operator->() const { return own_; }
  OwnComm& operator*() const { return *own_; }
  OwnSlot& slot() const { return *slot_; }

 private:
  OwnPin(OwnSlot* slot, OwnComm* own) : slot_(slot), own_(own) {}
  OwnSlot* slot_;
  OwnComm* own_;
};

// Ends a communicator and frees its slot. InvalidUsage where it is used by another thread or, unless
// aborting, initialising or working; it then lives on.
Status close_own(OwnSlot* slot, bool aborting);

// Why calls on it are refused now; success if they are not.
Status why_not_ready(OwnSlot* slot);

// The error of a handle that nobody made.
Status not_a_communicator(const void* handle);

}  // namespace rocenante::nccl
