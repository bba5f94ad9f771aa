// SPDX-License-Identifier: Apache-2.0
//
// How a call waits: spin, then yield, then sleep, so that more ranks than processors work and an idle job
// burns nothing.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstdint>

#include "lib/comm/host_env.h"

namespace rocenante {

struct WaitPolicy {
  std::uint32_t tight_polls = 0;  // looks without a pause before anything else
  std::uint64_t spin_ns = 0;      // then with a pause, for this long
  std::uint64_t yield_ns = 0;     // then giving up the processor between looks, for this long; then asleep
  std::uint64_t sleep_ns = 0;     // longest sleep; bounds how late an abort that nobody signalled is seen

  // Sleeps that nothing ends before their time. As a part of what was waited before they cost a call
  // little, and a wait of seconds costs the processor little.
  static constexpr std::uint64_t kLeastNapNs = 50'000;
  static constexpr std::uint64_t kMostNapNs = 1'000'000;
  static constexpr std::uint64_t kWaitedPerNap = 64;

  // More runnable ranks than processors: a spinning rank keeps the one it waits for from running. So does
  // one that yields, where who has work has run for longer than who has none: the scheduler is fair. Ranks
  // that also drive an adapter in software are so unequal that they sleep after a few looks, if
  // something wakes them.
  static WaitPolicy choose(std::uint32_t ranks_here, std::uint32_t processors, std::uint64_t spin_us,
                           bool wants_processors = false) {
    WaitPolicy policy;
    const bool crowded = ranks_here > processors;
    policy.tight_polls = crowded ? 1 : 512;
    policy.spin_ns = crowded ? 0 : spin_us * 1000;
    policy.yield_ns = crowded && wants_processors ? 0 : 5'000'000;
    policy.sleep_ns = 10'000'000;
    return policy;
  }
};

// State of one wait. `round` counts looks since the last progress.
class Backoff {
 public:
  explicit Backoff(const WaitPolicy& policy)
      : policy_(policy), stage_(policy.spin_ns == 0 ? Stage::kYield : Stage::kSpin) {}

  // Forgets how long it has waited: there was progress.
  void restart() { *this = Backoff(policy_); }

  // True once per 64 looks, and at every look that gave up the processor for longer: time to read the clock
  // and look at everything that is not a signal (rule 9).
  bool time_to_check() const { return (looks_ & 63) == 63 || stage_ == Stage::kSleep; }
  // `now_ns` is of the last check.
  void checked(std::uint64_t now_ns) {
    if (start_ns_ == 0) start_ns_ = now_ns;
    const std::uint64_t waited = now_ns - start_ns_;
    stage_ = waited < policy_.spin_ns                      ? Stage::kSpin
             : waited < policy_.spin_ns + policy_.yield_ns ? Stage::kYield
                                                           : Stage::kSleep;
    nap_ns_ =
        std::clamp(waited / WaitPolicy::kWaitedPerNap, WaitPolicy::kLeastNapNs, WaitPolicy::kMostNapNs);
  }
  std::uint64_t waited_ns(std::uint64_t now_ns) const { return start_ns_ == 0 ? 0 : now_ns - start_ns_; }

  // One pause. Where it is time to sleep, `sleep` is called with the longest time if something wakes the
  // sleeper, and with how long to sleep if nothing does.
  template <class Sleep>
  void pause(Sleep&& sleep) {
    ++looks_;
    switch (stage_) {
      case Stage::kSpin:
        cpu_pause();
        break;
      case Stage::kYield:
        ::sched_yield();
        break;
      case Stage::kSleep:
        sleep(policy_.sleep_ns, nap_ns_);
        break;
    }
  }

 private:
  enum class Stage : std::uint8_t { kSpin, kYield, kSleep };

  WaitPolicy policy_;
  std::uint64_t start_ns_ = 0;
  std::uint64_t nap_ns_ = WaitPolicy::kLeastNapNs;
  std::uint32_t looks_ = 0;
  Stage stage_;
};

}  // namespace rocenante
