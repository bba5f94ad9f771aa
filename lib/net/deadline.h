// SPDX-License-Identifier: Apache-2.0
//
// Points in time on the monotonic clock. Every wait takes one, so that a chain of waits shares one budget.
#pragma once

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

namespace rocenante::net {

inline constexpr std::uint64_t kNanosecondsPerSecond = 1'000'000'000;
inline constexpr std::uint64_t kNanosecondsPerMillisecond = 1'000'000;

// CLOCK_MONOTONIC in nanoseconds; the clock of every time in this library.
inline std::uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * kNanosecondsPerSecond +
         static_cast<std::uint64_t>(now.tv_nsec);
}

inline timespec timespec_of(std::uint64_t ns) {
  return {static_cast<time_t>(ns / kNanosecondsPerSecond), static_cast<long>(ns % kNanosecondsPerSecond)};
}

// Sleeps for about so long; a signal ends it early.
inline void sleep_ns(std::uint64_t ns) {
  const timespec time = timespec_of(ns);
  ::nanosleep(&time, nullptr);
}

class ScopedCancel;
namespace detail {
inline constinit thread_local const ScopedCancel* innermost_cancel = nullptr;
}

// While it lives, every deadline of the calling thread has passed as soon as the flag, or that of one
// around it, is set; waits notice within kCancelPollMs.
class ScopedCancel {
 public:
  explicit ScopedCancel(const std::atomic<bool>& flag) : flag_(flag), outer_(detail::innermost_cancel) {
    detail::innermost_cancel = this;
  }
  ~ScopedCancel() { detail::innermost_cancel = outer_; }
  ScopedCancel(const ScopedCancel&) = delete;
  ScopedCancel& operator=(const ScopedCancel&) = delete;

  bool is_set() const {
    return flag_.load(std::memory_order_relaxed) || (outer_ != nullptr && outer_->is_set());
  }

 private:
  const std::atomic<bool>& flag_;
  const ScopedCancel* const outer_;
};
inline constexpr std::uint64_t kCancelPollMs = 50;

// Whether the calling thread's wait was cancelled.
inline bool cancelled() {
  return detail::innermost_cancel != nullptr && detail::innermost_cancel->is_set();
}

// An immutable value; copies are cheap.
class Deadline {
 public:
  static Deadline never() { return Deadline(std::numeric_limits<std::uint64_t>::max()); }
  static Deadline at_ns(std::uint64_t ns) { return Deadline(ns); }
  static Deadline after_ns(std::uint64_t ns) { return never_or_sum(monotonic_ns(), ns); }
  static Deadline after_ms(std::uint64_t ms) { return after_ns(ms * kNanosecondsPerMillisecond); }
  static Deadline after_s(std::uint64_t s) { return after_ns(s * kNanosecondsPerSecond); }

  std::uint64_t ns() const { return ns_; }
  bool is_never() const { return ns_ == std::numeric_limits<std::uint64_t>::max(); }
  bool passed() const { return cancelled() || (!is_never() && monotonic_ns() >= ns_); }
  // 0 once passed.
  std::uint64_t remaining_ns() const {
    if (cancelled()) return 0;
    const std::uint64_t now = monotonic_ns();
    return now >= ns_ ? 0 : ns_ - now;
  }
  // For poll(2) and epoll_wait(2): rounded up, so that a wait never ends just before its deadline; -1 for
  // never. At most a minute at a time: callers loop anyway.
  int poll_ms() const {
    if (is_never() && detail::innermost_cancel == nullptr) return -1;
    const std::uint64_t longest = detail::innermost_cancel == nullptr ? 60'000 : kCancelPollMs;
    const std::uint64_t ns = remaining_ns();
    const std::uint64_t ms =
        ns / kNanosecondsPerMillisecond + (ns % kNanosecondsPerMillisecond == 0 ? 0 : 1);
    return static_cast<int>(std::min(longest, ms));
  }
  Deadline later_by_ns(std::uint64_t ns) const { return never_or_sum(ns_, ns); }
  Deadline sooner(Deadline other) const { return Deadline(std::min(ns_, other.ns_)); }

 private:
  explicit Deadline(std::uint64_t ns) : ns_(ns) {}
  static Deadline never_or_sum(std::uint64_t a, std::uint64_t b) {
    const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    return Deadline(a > most - b ? most : a + b);
  }

  std::uint64_t ns_;
};

}  // namespace rocenante::net
