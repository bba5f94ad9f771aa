// SPDX-License-Identifier: Apache-2.0
//
// Negative controls of the ThreadSanitizer lane: the threads of threads_test.cc with a fault in the
// protocol text. ThreadSanitizer must report each ("none" it must not).
#include <cstdio>
#include <cstring>
#include <thread>

#include "tests/protocol/thread_world.h"

namespace {

using namespace rocenante::model;
using rocenante::protocol::Mutation;

constexpr std::uint64_t kOperations = 500;
constexpr std::uint64_t kMostCount = 100;

// With a fault the results may be wrong and a rank may wait for ever; neither is this program's to judge.
template <Mutation kMutant>
void run(const ThreadConfig& config, std::uint64_t count) {
  ThreadWorld world(config);
  std::vector<std::vector<std::uint64_t>> inputs(config.ranks), outputs(config.ranks);
  for (auto& input : inputs) input.assign(kMostCount, 1);
  for (auto& output : outputs) output.assign(kMostCount, 0);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < config.ranks; ++rank) {
    for (std::uint32_t part = 0; part < config.parts; ++part) {
      threads.emplace_back([&, rank, part] {
        ThreadMember<kMutant, std::uint64_t> self(world, rank, part, 0);
        for (std::uint64_t i = 0; i < kOperations; ++i) {
          self.all_reduce(inputs[rank].data(), outputs[rank].data(), count, 4096, 0);
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

// The sanitizer ends the program at the first fault that it sees. On a busy machine it may see none for a
// while: the threads then take turns.
template <Mutation kMutant>
void run_until_seen(const ThreadConfig& config, std::uint64_t count) {
  constexpr int kMostRuns = 50;
  for (int i = 0; i < kMostRuns; ++i) run<kMutant>(config, count);
}

}  // namespace

int main(int argc, char** argv) {
  const char* const fault = argc > 1 ? argv[1] : "";
  if (std::strcmp(fault, "none") == 0) {
    run<Mutation::kNone>({}, kMostCount);
    run<Mutation::kNone>({}, 2);
    run<Mutation::kNone>({.parts = 2}, kMostCount);
  } else if (std::strcmp(fault, "relaxed-signal") == 0) {
    run_until_seen<Mutation::kRelaxedSignal>({}, kMostCount);
  } else if (std::strcmp(fault, "relaxed-signal-inline") == 0) {
    run_until_seen<Mutation::kRelaxedSignal>({}, 2);
  } else if (std::strcmp(fault, "signal-first") == 0) {
    run_until_seen<Mutation::kSignalFirst>({}, 2);
  } else if (std::strcmp(fault, "early-publish") == 0) {
    run_until_seen<Mutation::kEarlyPublish>({.parts = 2}, kMostCount);
  } else {
    std::fprintf(stderr,
                 "usage: race none|relaxed-signal|relaxed-signal-inline|signal-first|early-publish\n");
    return 2;
  }
  return 0;
}
