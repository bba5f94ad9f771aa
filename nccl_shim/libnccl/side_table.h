// SPDX-License-Identifier: Apache-2.0
//
// Communicators of the real library that our side has something to do with, by their handles. The client
// holds the real handle; a handle that is not here goes straight through.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/config.h"
#include "lib/base/status.h"
#include "lib/comm/unique_id.h"
#include "lib/device/registry.h"
#include "nccl_shim/libnccl/background.h"
#include "nccl_shim/libnccl/counters.h"

namespace rocenante::nccl {

// Our side of one real communicator.
struct SideEntry {
  enum Decision : std::uint32_t { kUndecided, kOurs, kReal };
  enum Progress : std::uint32_t {
    kIdle,
    kWaiting,  // there is something to do once the real library is done
    kRunning,
  };

  // `opened`: by the client's thread, as which one is current is a thread's.
  SideEntry(int rank_number, int rank_count, Config settings, Result<std::shared_ptr<Device>> opened);
  // One that nobody ended: its communicator is closed as if given up, so that the other ranks are told.
  ~SideEntry();

  const int rank;
  const int ranks;
  const Config config;
  const Config core_config;  // of our side's communicator: its counters come out in our line
  const Result<std::shared_ptr<Device>> device;
  // The largest call of ours, by Collective: bytes of the larger of its buffers.
  const std::array<std::uint64_t, kNumCollectives> max_bytes;
  const std::uint64_t fork_generation;
  bool is_inherited() const;  // by a child of a fork, in which it cannot be used
  bool blocking = true;
  UniqueId id;  // where our side meets; meaningless once decided

  std::atomic<std::uint32_t> decision{kUndecided};
  std::mutex deciding;
  void* core = nullptr;  // before the decision becomes kOurs
  std::string why;       // before the decision
  ForwardCounters forwarded;

  // Of a non-blocking communicator: what our side does after a call that the real library has finished,
  // begun by the client's next question whether it has (wait_with, side_goes_on).
  std::mutex todo_mutex;
  std::vector<std::function<void()>> todo;
  std::atomic<std::uint32_t> progress{kIdle};
  Background work;  // does it; its cancellation ends every wait of our side for other ranks
};

// Adds; replaces what an address that was used again stood for.
Status add_side(void* comm, std::unique_ptr<SideEntry> entry);

// Takes it out, waiting for calls in progress to leave it; null if it is not there, or was inherited
// through a fork.
std::unique_ptr<SideEntry> remove_side(void* comm);

namespace detail {
struct SideBucket {
  std::atomic<std::uintptr_t> key;
  std::atomic<SideEntry*> entry;
  std::atomic<std::uint32_t> pins;
};
inline constexpr std::size_t kSideBuckets = std::size_t{1} << 17;
// Null as long as there are none.
extern std::atomic<SideBucket*> side_buckets;

// Handles are addresses from an allocator: the low bits say nothing.
inline std::size_t side_hash(std::uintptr_t key) {
  return (key * 0x9e3779b97f4a7c15U) >> 47;
}
}  // namespace detail

// An entry that stays as long as this does. Lock-free.
class SidePin {
 public:
  explicit SidePin(const void* comm) {
    detail::SideBucket* const buckets = detail::side_buckets.load(std::memory_order_acquire);
    const auto key = reinterpret_cast<std::uintptr_t>(comm);
    // Odd values are no handles but marks of the table.
    if (buckets == nullptr || key == 0 || key % alignof(void*) != 0) return;
    for (std::size_t at = detail::side_hash(key);; at = (at + 1) % detail::kSideBuckets) {
      detail::SideBucket& bucket = buckets[at];
      const std::uintptr_t found = bucket.key.load(std::memory_order_acquire);
      if (found == 0) return;
      if (found != key) continue;
      // Counted before it is looked at again; the remover takes the key away before it counts.
      bucket.pins.fetch_add(1, std::memory_order_seq_cst);
      if (bucket.key.load(std::memory_order_seq_cst) == key) {
        bucket_ = &bucket;
        entry_ = bucket.entry.load(std::memory_order_acquire);
        return;
      }
      bucket.pins.fetch_sub(1, std::memory_order_release);
    }
  }
  SidePin(SidePin&& other) noexcept
      : bucket_(std::exchange(other.bucket_, nullptr)), entry_(std::exchange(other.entry_, nullptr)) {}
  SidePin& operator=(SidePin&&) = delete;
  ~SidePin() { leave(); }

  // Before a call of the real library, which may take any time.
  void leave() {
    if (bucket_ != nullptr) bucket_->pins.fetch_sub(1, std::memory_order_release);
    bucket_ = nullptr;
    entry_ = nullptr;
  }
  explicit operator bool() const { return entry_ != nullptr; }
  SideEntry* operator->() const { return entry_; }
  SideEntry& operator*() const { return *entry_; }

 private:
  detail::SideBucket* bucket_ = nullptr;
  SideEntry* entry_ = nullptr;
};

}  // namespace rocenante::nccl
