// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/abort_state.h"

#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

using rocenante::AbortState;
using rocenante::Code;
using rocenante::Status;
using rocenante::protocol::AbortCause;
using rocenante::protocol::AbortReason;

TEST_CASE("Whoever has raised an abort finds it raised, first or not") {
  constexpr std::uint32_t kThreads = 3;
  for (int round = 0; round < 2000; ++round) {
    AbortState state;
    std::atomic<std::uint32_t> ready{0}, first{0}, unraised{0};
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        ++ready;
        while (ready < kThreads) std::this_thread::yield();
        first += state.raise(AbortCause{AbortReason::kMismatch, i, 7},
                             Status(Code::kInvalidUsage, std::to_string(i)));
        unraised += !state.raised();
      });
    }
    for (std::thread& thread : threads) thread.join();
    REQUIRE(first == 1);
    REQUIRE(unraised == 0);
    // The word and the text are of the same cause.
    REQUIRE(state.status().text() == std::to_string(rocenante::protocol::unpack_abort(state.word()).peer));
  }
}
