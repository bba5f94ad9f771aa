// SPDX-License-Identifier: Apache-2.0
//
// What a progress thread does for one lane of a device: takes the doorbell's entries in order, puts them to
// every member that is carried, and keeps their transports going.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "lib/comm/host_env.h"
#include "lib/comm/progress.h"
#include "lib/protocol/abort_word.h"
#include "lib/protocol/doorbell.h"
#include "lib/protocol/round.h"
#include "transports/transport.h"

namespace rocenante {

class DoorbellPuts final : public ProgressWork {
 public:
  // All of it outlives the work. Pointers are the host's.
  struct Setup {
    protocol::DoorbellRing* ring = nullptr;
    // `rank`, `ranks`, `striped_bytes`, `send` and the `rails` of its peers are used, and copied.
    const protocol::Lane* lane = nullptr;
    std::uint64_t slot_bytes = 0;
    // Per rank; null for the own and for those that are mapped. Nobody else calls their post() and
    // progress() while the work has its place.
    std::vector<Transport*> carriers;
    std::uint64_t first_epoch = 1;
    // The host's abort word: nothing is put any more once it is set.
    const std::uint64_t* abort_word = nullptr;
    // How long a transport's error waits for the abort of another rank that may have caused it.
    std::uint64_t first_cause_ns = 0;
    // Called at most once, by the progress thread: why nothing more is put, unless the abort word has said
    // so before.
    std::function<void(protocol::AbortCause, Status)> on_failure;
  };

  explicit DoorbellPuts(Setup setup);

  bool look() override;
  void on_exception(Status status) noexcept override;

  // True once everything rung so far has been put and is no longer read from the slots, or nothing will be
  // put any more (has_stopped). Who has seen the device's work end, and then this, may free the slots. Any
  // thread.
  bool drained() const;
  bool has_stopped() const { return stopped_.load(std::memory_order_acquire); }
  // The epoch that is expected next. Any thread.
  std::uint64_t next_epoch() const { return next_.load(std::memory_order_acquire); }

 private:
  // The puts of one transport, of which only what changes is written for each entry.
  struct Batch {
    Transport* transport;
    std::vector<Put> puts;
    std::vector<std::uint32_t> rails;
  };

  static std::vector<Batch> make_batches(const Setup& setup);
  bool take_next();
  Status put(std::uint64_t epoch, const protocol::PutDescriptor& descriptor);
  void keep_going();
  void fail(protocol::AbortReason reason, std::uint64_t epoch, Status status);
  void report();
  void stop() { stopped_.store(true, std::memory_order_release); }
  bool is_aborted() const { return env_.load_acquire(abort_word_) != 0; }

  HostEnv env_;
  protocol::DoorbellRing* const ring_;
  const std::uint64_t slot_bytes_;
  const std::uint64_t striped_bytes_;
  const std::array<const void*, protocol::kParities> send_;
  const std::uint64_t* const abort_word_;
  const std::uint64_t first_cause_ns_;
  const std::function<void(protocol::AbortCause, Status)> on_failure_;
  std::vector<Batch> batches_;

  std::atomic<std::uint64_t> next_;
  std::atomic<bool> idle_{true};  // nothing put is under way; cleared before next_ moves on
  std::atomic<bool> stopped_{false};
  // The first failure, which may wait for the abort that has caused it.
  protocol::AbortCause cause_{};
  Status failure_;
  std::uint64_t report_ns_ = 0;
  bool is_reported_ = false;
};

}  // namespace rocenante
