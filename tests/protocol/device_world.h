// SPDX-License-Identifier: Apache-2.0
//
// Ranks whose calls are launches of a device: DeviceCall by groups of threads over plain memory, with the
// device kernels' combiners.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "lib/protocol/device_call.h"
#include "tests/protocol/device_kernels.h"
#include "tests/protocol/thread_world.h"

namespace rocenante::test {

// A clock that a test may drive: each look at it lets `tick_ns` pass.
struct TestClock {
  std::atomic<std::uint64_t> now_ns{0};
  std::atomic<std::uint64_t> tick_ns{0};
};

struct DeviceTestEnv : HostEnv {
  TestClock* clock;

  explicit DeviceTestEnv(TestClock& clock) : clock(&clock) {}
  void pause() const { sched_yield(); }
  std::uint64_t clock_ns() const {
    return clock->now_ns.fetch_add(clock->tick_ns, std::memory_order_relaxed);
  }
  bool claim(std::uint64_t* word, std::uint64_t value) const {
    std::uint64_t expected = 0;
    return __atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }
};

struct DeviceRank {
  protocol::DeviceWords words{};
  std::vector<std::uint32_t> states;
  protocol::DeviceLane lane{};
  std::vector<std::vector<const unsigned char*>> sources;  // of each group
  bool second_waits = false;  // the group of part 1 begins only when another one has given up
};

class DeviceWorld {
 public:
  explicit DeviceWorld(const model::ThreadConfig& config) : world(config), ranks(config.ranks) {
    for (std::uint32_t rank = 0; rank < config.ranks; ++rank) {
      model::ThreadRank& host = world.rank(rank);
      DeviceRank& mine = ranks[rank];
      mine.states.resize(config.ranks);
      mine.sources.resize(config.parts, std::vector<const unsigned char*>(config.ranks));
      mine.lane = {host.lane, &host.ring, &host.abort_word, &mine.words, mine.states.data(), kLong,
                   kLong,     kLong};
    }
  }

  static constexpr std::uint64_t kLong = std::uint64_t{1} << 60;

  model::ThreadWorld world;
  std::vector<DeviceRank> ranks;
  TestClock clock;
};

// What the calls here take: of each kind of kernel one or two. device_combine_test has them all.
struct CalledKernels {
  static constexpr bool has(reduce::KernelId id) {
    using enum reduce::KernelId;
    for (const reduce::KernelId one :
         {sum_f32, sum_bf16, sum_f16, avg_bf16, order_8, prod_64, order_f64, scaled_e4m3, scaled_f32}) {
      if (id == one) return true;
    }
    return false;
  }
};

// One thread of one group of a rank.
class DeviceMember {
 public:
  DeviceMember(DeviceWorld& all, std::uint32_t rank, std::uint32_t part, std::uint32_t thread)
      : all_(all),
        rank_(rank),
        part_(part),
        env_(all.clock),
        group_(all.world.rank(rank).meetings[part], thread, all.world.config().threads),
        everybody_(all.world.rank(rank).meetings[all.world.config().parts],
                   part * all.world.config().threads + thread,
                   all.world.config().parts * all.world.config().threads) {}

  // A launch of `groups` groups, from its beginning to its end in all threads of the rank; those of the
  // groups that it does not have take no part. kReady for them.
  protocol::Verdict launch(const Reduction& call, const protocol::Exchange& exchange,
                           std::uint32_t groups) {
    everybody_.sync();
    const protocol::Verdict verdict =
        part_ < groups ? run(call, exchange, protocol::part_of(part_, groups)) : protocol::Verdict::kReady;
    everybody_.sync();
    return verdict;
  }

 private:
  protocol::Verdict run(const Reduction& call, const protocol::Exchange& exchange, protocol::Part part) {
    DeviceRank& mine = all_.ranks[rank_];
    while (part_ == 1 && mine.second_waits && env_.load_acquire(mine.lane.own_abort) == 0) env_.pause();
    protocol::Verdict verdict{};
    with_combiner<CalledKernels>(call, mine.sources[part_].data(), true, [&](auto& combiner) {
      using Combiner = std::remove_reference_t<decltype(combiner)>;
      protocol::DeviceCall<DeviceTestEnv, model::ThreadGroup, Combiner> device_call(
          env_, group_, mine.lane, combiner, part, exchange);
      verdict = device_call.run();
    });
    return verdict;
  }

  DeviceWorld& all_;
  const std::uint32_t rank_, part_;
  DeviceTestEnv env_;
  model::ThreadGroup group_, everybody_;
};

// Runs `member(rank, part, thread)` on a thread for each, to their ends.
template <class Member>
void on_all_threads(const model::ThreadConfig& config, const Member& member) {
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < config.ranks; ++rank) {
    for (std::uint32_t part = 0; part < config.parts; ++part) {
      for (std::uint32_t thread = 0; thread < config.threads; ++thread) {
        threads.emplace_back([&member, rank, part, thread] { member(rank, part, thread); });
      }
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace rocenante::test
