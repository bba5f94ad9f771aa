// SPDX-License-Identifier: Apache-2.0
//
// The threads that carry what devices ask for: one for each device that this process drives, serving all
// its communicators. Started with a device's first work, ended with its last, or when the library is
// unloaded or the process exits. It receives no signals and is named "rcn-progress".
//
// It spins while there is work and for a time after, so that an operation does not wait for it to wake;
// then it looks every 50 us, because a device cannot wake it: only words that CPUs write are slept on
// (protocol rule 5). Whoever enqueues an operation from a CPU calls wake(), and it spins before the device
// has rung.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lib/base/config.h"
#include "lib/base/status.h"
#include "lib/fabric/fabric.h"
#include "lib/fabric/processors.h"

namespace rocenante {

// Something a progress thread looks after. Called by that thread only, one work at a time.
class ProgressWork {
 public:
  virtual ~ProgressWork() = default;
  // Looks once and never waits; true if there was an operation to carry.
  virtual bool look() = 0;
  // look() has thrown and is not called again.
  virtual void on_exception(Status status) noexcept = 0;
};

struct ProgressSettings {
  std::uint64_t spin_ns = 0;  // after the last operation or wake(); of a thread's works the longest counts
  // The longest sleep between looks; of a thread's works the shortest counts. Tests of waking set it high.
  std::uint64_t nap_ns = 50'000;
  // More threads than processors: gives the processor up between looks. For all works if for one.
  bool crowded = false;
  // Where the thread may run; empty: wherever its starter may. The work that starts a thread decides.
  fabric::Processors processors;

  // From the settings, `ports`, which are those that this rank uses, and how many processors the ranks of
  // this host have. InvalidArgument for processors that are not there or not allowed.
  static Result<ProgressSettings> from(const Config& config, std::span<const fabric::Port> ports,
                                       std::uint32_t ranks_here, std::uint32_t processors_here,
                                       const std::string& sysfs = "/sys");
};

class ProgressThread;

// A work's place on a thread. Movable; gives the place up when destroyed.
class ProgressPlace {
 public:
  ProgressPlace() = default;
  ProgressPlace(ProgressPlace&& other) noexcept = default;
  ProgressPlace& operator=(ProgressPlace&& other) noexcept;
  ~ProgressPlace() { leave(); }

  // An operation is about to be enqueued, or has been. Any thread; no system call unless the progress
  // thread sleeps.
  void wake() const;
  // Returns when no look at the work is in progress and none will be. Any thread that holds nothing which
  // the work's look() may wait for. From within a look of the same thread, the work's own included, it does
  // not wait: that look ends, and no other follows. In a child of fork() it does nothing.
  void leave();
  bool empty() const { return thread_ == nullptr; }

 private:
  friend class Progress;
  ProgressPlace(std::shared_ptr<ProgressThread> thread, ProgressWork* work, std::uint64_t generation)
      : thread_(std::move(thread)), work_(work), generation_(generation) {}

  std::shared_ptr<ProgressThread> thread_;
  ProgressWork* work_ = nullptr;
  std::uint64_t generation_ = 0;  // of forks
};

class Progress {
 public:
  // Has the thread of `device` look at `work`, which outlives its place. Devices are told apart by address.
  // SystemError if no thread can be started, InvalidUsage when the library is being unloaded. Any thread.
  static Result<ProgressPlace> add(const void* device, ProgressWork* work,
                                   const ProgressSettings& settings);
  // Is this a progress thread?
  static bool is_own_thread();
  // How many there are. For tests.
  static std::size_t threads();
};

}  // namespace rocenante
