// SPDX-License-Identifier: Apache-2.0
//
// How a call waits: when it yields, when it sleeps, and for how long.
#include "lib/comm/wait_policy.h"

#include "tests/support/catch.h"

namespace rocenante {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

// What a pause does after `waited_ns`: its sleep's limit and nap, or nothing if it does not sleep.
struct Pause {
  bool sleeps = false;
  std::uint64_t limit_ns = 0, nap_ns = 0;
};
Pause pause_after(const WaitPolicy& policy, std::uint64_t waited_ns) {
  Backoff backoff(policy);
  backoff.checked(1);
  backoff.checked(1 + waited_ns);
  Pause pause;
  backoff.pause([&](std::uint64_t limit_ns, std::uint64_t nap_ns) { pause = {true, limit_ns, nap_ns}; });
  return pause;
}

TEST_CASE("Who has waited long sleeps, soon where sleeping is what frees a processor") {
  const WaitPolicy alone = WaitPolicy::choose(2, 2, 20);
  CHECK_FALSE(pause_after(alone, 0).sleeps);
  CHECK_FALSE(pause_after(alone, 5 * kMs).sleeps);
  CHECK(pause_after(alone, 6 * kMs).sleeps);
  const WaitPolicy crowded = WaitPolicy::choose(3, 2, 20);
  CHECK_FALSE(pause_after(crowded, 0).sleeps);
  CHECK(pause_after(crowded, 5 * kMs).sleeps);
  CHECK(pause_after(WaitPolicy::choose(3, 2, 20, true), 0).sleeps);
  CHECK_FALSE(pause_after(WaitPolicy::choose(2, 2, 20, true), 0).sleeps);
}

TEST_CASE("Who sleeps soon yields for 64 looks before") {
  const WaitPolicy policy = WaitPolicy::choose(3, 2, 20, true);
  Backoff backoff(policy);
  int looks = 0;
  while (!backoff.time_to_check()) {
    backoff.pause([](std::uint64_t, std::uint64_t) { FAIL("slept"); });
    ++looks;
  }
  CHECK(looks == 63);
  backoff.checked(1);
  bool slept = false;
  backoff.pause([&](std::uint64_t, std::uint64_t) { slept = true; });
  CHECK(slept);
}

TEST_CASE("A nap that nothing ends is a part of what was waited before it, within bounds") {
  const WaitPolicy policy = WaitPolicy::choose(2, 2, 20);
  CHECK(pause_after(policy, 6 * kMs).nap_ns == 6 * kMs / 64);
  CHECK(pause_after(WaitPolicy::choose(3, 2, 0, true), 1000).nap_ns == 50'000);
  CHECK(pause_after(policy, 32 * kMs).nap_ns == 500'000);
  CHECK(pause_after(policy, 1000 * kMs).nap_ns == kMs);
  CHECK(pause_after(policy, 1000 * kMs).limit_ns == 10 * kMs);
}

}  // namespace
}  // namespace rocenante
