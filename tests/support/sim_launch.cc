// SPDX-License-Identifier: Apache-2.0
#include "tests/support/sim_launch.h"

#include <sched.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "lib/comm/host_reduce.h"
#include "tests/protocol/thread_world.h"

namespace rocenante::test {
namespace {

using model::MeetingPlace;
using model::ThreadGroup;
using protocol::Verdict;

class SimEnv : public HostEnv {
 public:
  void pause() const { ::sched_yield(); }  // there are more threads than processors
  std::uint64_t clock_ns() const { return monotonic_ns(); }
  bool claim(std::uint64_t* word, std::uint64_t value) const {
    std::uint64_t expected = 0;
    return __atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }
};

template <bool kScaled>
Verdict run_thread(const CallLaunch& call, MeetingPlace& place, protocol::Part part, std::uint32_t thread,
                   std::uint32_t threads) {
  const reduce::Kernels& kernels = *reduce::find_kernels("auto");
  const reduce::ScopedFpEnvironment environment;
  std::vector<const void*> inputs(call.ranks);
  const auto type = static_cast<std::size_t>(call.type);
  const HostReduction work{kernels.reduce[type][static_cast<std::size_t>(call.op)],
                           kScaled ? kernels.scale[type] : nullptr,
                           kernels.copy,
                           call.scalar,
                           reduce::element_size(call.type),
                           call.ranks,
                           inputs.data()};
  SimEnv env;
  ThreadGroup group(place, thread, threads);
  HostCombiner<kScaled> combiner(work);
  protocol::DeviceCall<SimEnv, ThreadGroup, HostCombiner<kScaled>> device_call(
      env, group, *call.lane, combiner, part, call.exchange);
  return device_call.run();
}

}  // namespace

Verdict run_launch(SimPool& pool, const CallLaunch& call, std::uint32_t threads,
                   std::uint64_t bytes_per_group) {
  const std::uint32_t groups = protocol::groups_for(call.exchange, bytes_per_group, call.groups);
  std::vector<MeetingPlace> places(groups);
  const std::uint32_t members = groups * threads;
  std::vector<Verdict> verdicts(members);
  std::atomic<std::uint32_t> left{members};
  const auto done = std::make_shared<SimTicket>();
  const auto member = [&, done](std::uint32_t index) {
    const std::uint32_t group = index / threads;
    const protocol::Part part = protocol::part_of(group, groups);
    const std::uint32_t thread = index % threads;
    verdicts[index] = call.scaled ? run_thread<true>(call, places[group], part, thread, threads)
                                  : run_thread<false>(call, places[group], part, thread, threads);
    if (left.fetch_sub(1, std::memory_order_acq_rel) == 1) done->finish();
  };
  for (std::uint32_t index = 1; index < members; ++index) pool.run([&member, index] { member(index); });
  member(0);
  done->wait();
  // A group whose threads part would hang at the next barrier of a GPU (failure rule 2).
  for (std::uint32_t index = 0; index < members; ++index) {
    if (verdicts[index] == verdicts[index / threads * threads]) continue;
    std::fprintf(stderr, "the verdict differs within a group\n");
    std::abort();
  }
  Verdict worst = Verdict::kReady;
  for (const Verdict verdict : verdicts) worst = verdict > worst ? verdict : worst;
  return worst;
}

}  // namespace rocenante::test
