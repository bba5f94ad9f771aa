// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <thread>

#include "lib/net/deadline.h"
#include "tests/support/catch.h"

using namespace rocenante::net;

TEST_CASE("a cancelled wait is one whose deadline has passed, on that thread alone", "[net]") {
  std::atomic<bool> flag{false};
  const Deadline later = Deadline::after_s(3600);
  {
    const ScopedCancel cancel(flag);
    CHECK_FALSE(cancelled());
    CHECK_FALSE(later.passed());
    CHECK(later.poll_ms() <= static_cast<int>(kCancelPollMs));
    CHECK(Deadline::never().poll_ms() <= static_cast<int>(kCancelPollMs));
    CHECK(Deadline::never().poll_ms() > 0);
    flag = true;
    CHECK(later.passed());
    CHECK(Deadline::never().passed());
    CHECK(later.remaining_ns() == 0);
    CHECK(later.poll_ms() == 0);
    std::jthread([&] { CHECK_FALSE(later.passed()); }).join();
  }
  CHECK_FALSE(later.passed());
  CHECK(Deadline::never().poll_ms() == -1);
}

TEST_CASE("of cancellations around each other either one ends a wait", "[net]") {
  const Deadline later = Deadline::after_s(3600);
  for (const bool outer_is_set : {true, false}) {
    std::atomic<bool> outer{outer_is_set};
    std::atomic<bool> inner{!outer_is_set};
    const ScopedCancel around(outer);
    CHECK(later.passed() == outer_is_set);
    {
      const ScopedCancel within(inner);
      CHECK(later.passed());
    }
    CHECK(later.passed() == outer_is_set);
  }
  CHECK_FALSE(later.passed());
}
