// SPDX-License-Identifier: Apache-2.0
//
// A rank whose calls are launches: DeviceCall by the threads of its groups, and what its host does beside
// them. A launch begins although the one before it has failed, as enqueued ones do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lib/protocol/device_call.h"
#include "tests/protocol/model/agents.h"

namespace rocenante::model {

// Each look is one of the machine's. Time stands until the scenario's timer lets it go on, and then goes on
// with every look: twice after whatever the thread does, which is what a limit of 1 takes to pass.
template <protocol::Mutation kMutant>
class DeviceEnv : public Env<kMutant> {
 public:
  static constexpr std::uint32_t kLooksPerClock = 1;

  DeviceEnv(Machine& machine, World& world, std::uint32_t progress)
      : Env<kMutant>{machine}, mine_(world.rank(0)), progress_(progress) {}

  template <class T>
  void store_release(T* address, T value) {
    acts();
    Env<kMutant>::store_release(address, value);
    if constexpr (sizeof(T) == sizeof(Word)) {
      if (progress_ != 0 && address == &mine_.ring->entries[value % protocol::kDoorbellEntries].epoch)
        this->machine.observe(value - this->machine.stage_of(progress_));
    }
  }
  template <class T>
  void store_relaxed(T* address, T value) {
    acts();
    Env<kMutant>::store_relaxed(address, value);
  }
  template <class T>
  T fetch_add(T* address, T value) {
    acts();
    return Env<kMutant>::fetch_add(address, value);
  }
  bool claim(Word* word, Word value) {
    acts();
    return this->machine.access({Kind::kClaim, this->machine.locate(word), kNowhere, value}) == 0;
  }

  std::uint64_t clock_ns() {
    if (this->load_relaxed(mine_.clock) != 0 && ticks_ < 2) ++ticks_, ++now_ns_;
    return now_ns_;
  }

  // Between two looks. One in which time stood has left the thread as it was: all that it keeps is since
  // when it waits, and that the next would find again.
  void pause() {
    if (looking_ && now_ns_ == look_ns_) this->machine.pending(look_);
    looking_ = true;
    look_ = this->machine.position();
    look_ns_ = now_ns_;
  }

 private:
  void acts() {
    looking_ = false;
    ticks_ = 0;
  }

  RankMemory& mine_;
  const std::uint32_t progress_;  // agent that takes the doorbell's entries; 0: nobody
  std::uint64_t now_ns_ = 1;
  unsigned ticks_ = 0;
  bool looking_ = false;
  std::size_t look_ = 0;
  std::uint64_t look_ns_ = 0;
};

// One thread of one group of the device: a launch for each operation.
template <protocol::Mutation kMutant>
class DeviceThread final : public Program {
 public:
  DeviceThread(World& world, std::uint32_t part, std::uint32_t thread, std::uint32_t progress)
      : world_(world), part_(part), thread_(thread), progress_(progress) {}

  void run(Machine& machine, std::uint32_t stage) override {
    for (std::uint32_t operation = stage; operation < world_.scenario().operations; ++operation) {
      ModelEnv env(machine, world_, progress_);
      launch(env, operation);
      Group<ModelEnv>(env, world_.rank(0).meetings + world_.parts_of(0), agent(), world_.agents_of(0))
          .sync();
      machine.commit(operation + 1);
    }
  }

 private:
  using ModelEnv = DeviceEnv<kMutant>;
  using Verdict = protocol::Verdict;

  std::uint32_t agent() const { return world_.agent_of(0, part_, thread_); }

  void launch(ModelEnv& env, std::uint32_t operation) {
    RankMemory& mine = world_.rank(0);
    // Looked at in the same step as the end of the operation before.
    const bool failed =
        (env.load_attached(mine.abort_word) | env.load_attached(&mine.words->host_abort)) != 0;
    Group<ModelEnv> group(env, mine.meetings + part_, thread_, world_.threads_of(0, part_));
    Combiner<ModelEnv, false> combiner(env, world_, 0, operation);
    const protocol::Exchange exchange{.input = world_.input(0, operation),
                                      .output = world_.output(0, operation),
                                      .bytes = world_.operation_bytes(),
                                      .piece_bytes = world_.piece_bytes(),
                                      .tag = world_.tag(0, operation),
                                      .in_line = world_.scenario().in_line,
                                      .closing_round = false};
    protocol::DeviceCall<ModelEnv, Group<ModelEnv>, Combiner<ModelEnv, false>> call(
        env, group, mine.device, combiner, protocol::part_of(part_, world_.parts_of(0)), exchange);
    const Verdict verdict = call.run();
    Word* const outcome = mine.outcome + agent();
    env.fetch_add(outcome, Word{combiner.combined()});
    if (const char* const what = find_fault(operation, verdict, combiner, failed && thread_ == 0))
      wrong(env.machine, what);
    if (env.machine.memory().newest(env.machine.locate(mine.epoch)) >
        env.machine.memory().newest(env.machine.locate(outcome)))
      wrong(env.machine, "a round that did not complete has advanced");
  }

  // `failed`: the communicator had when the launch began. A group asks once, by its first thread.
  const char* find_fault(std::uint32_t operation, Verdict verdict,
                         const Combiner<ModelEnv, false>& combiner, bool failed) const {
    const Scenario& scenario = world_.scenario();
    if (failed && (verdict != Verdict::kAborted || combiner.used()))
      return "a launch on a communicator that has failed went on";
    if (verdict == Verdict::kReady) {
      if (scenario.mismatch) return "another call was taken for the same";
      if (operation >= world_.calls_of(scenario.ranks - 1))
        return "a call that a peer has not made ended well";
      if (combiner.combined() != world_.rounds_per_operation()) return "a call ended before its rounds";
      return nullptr;
    }
    if (verdict == Verdict::kPending) return "a launch ended in the middle";
    if (verdict == Verdict::kMismatch && !scenario.mismatch) return "mismatch";
    const bool may_end = scenario.aborts || scenario.deadline || scenario.silent || scenario.mismatch;
    if (!may_end && operation < world_.calls_of(scenario.ranks - 1)) return "gave up although all came";
    return nullptr;
  }

  World& world_;
  const std::uint32_t part_, thread_, progress_;
};

// The device's host: reads why the device gave up and passes it on to the other ranks.
template <protocol::Mutation kMutant>
class DeviceHost final : public Program {
 public:
  explicit DeviceHost(World& world) : world_(world) {}

  void run(Machine& machine, std::uint32_t) override {
    Env<kMutant> env{machine};
    const protocol::DeviceWords& words = *world_.rank(0).words;
    env.await(&words.device_abort, 1);
    const protocol::AbortCause cause = protocol::unpack_abort(env.load_attached(&words.device_abort));
    const Word epoch = env.load_relaxed(&words.failure.epoch);
    const Word peer = env.load_relaxed(&words.failure.peer);
    const Word seen = env.load_relaxed(&words.failure.seen);
    const Word expected = env.load_relaxed(&words.failure.expected);
    if (epoch != cause.epoch || peer != cause.peer || epoch == 0 || epoch > world_.rounds().size() ||
        expected != world_.tag(0, world_.rounds()[epoch - 1].operation)) {
      wrong(machine, "the record is not that of the device's abort");
    }
    if (cause.reason != expected_reason()) wrong(machine, "another reason than the scenario's");
    if (cause.reason == protocol::AbortReason::kPeerGone && seen >= epoch)
      wrong(machine, "a peer that has signalled was taken for gone");
    for (std::uint32_t rank = 1; rank < world_.scenario().ranks; ++rank) {
      env.store_release(world_.rank(rank).abort_word,
                        protocol::pack_abort({protocol::AbortReason::kRemote, 0, cause.epoch}));
    }
  }

 private:
  protocol::AbortReason expected_reason() const {
    const Scenario& scenario = world_.scenario();
    if (scenario.mismatch) return protocol::AbortReason::kMismatch;
    if (scenario.deadline) return protocol::AbortReason::kDeadline;
    return scenario.silent ? protocol::AbortReason::kSuspect : protocol::AbortReason::kPeerGone;
  }

  World& world_;
};

// What happens outside: the deadline passes, a peer falls silent, or it has ended and the host hears of it.
template <protocol::Mutation kMutant>
class Event final : public Program {
 public:
  enum class What { kTime, kSilent, kGone };
  Event(World& world, What what, std::uint32_t peer) : world_(world), what_(what), peer_(peer) {}

  void run(Machine& machine, std::uint32_t) override {
    Env<kMutant> env{machine};
    RankMemory& mine = world_.rank(0);
    if (what_ == What::kTime) return env.store_release(mine.clock, Word{1});
    if (what_ == What::kSilent)
      return env.store_release(mine.peer_states + peer_, std::uint32_t{protocol::kSilent});
    env.await(world_.rank(peer_).goodbye, 1);
    env.store_release(mine.peer_states + peer_, std::uint32_t{protocol::kGone});
    env.store_release(&mine.words->absent, std::uint32_t{1});
  }

 private:
  World& world_;
  const What what_;
  const std::uint32_t peer_;
};

// What a device has beside its threads. Its host may have nothing to read, and a peer may never end.
template <protocol::Mutation kMutant>
void add_host(Machine& machine, World& world) {
  const Scenario& scenario = world.scenario();
  using Happens = Event<kMutant>;
  const auto add = [&](const std::string& name, typename Happens::What what, std::uint32_t peer) {
    machine.add_agent(name, std::make_unique<Happens>(world, what, peer), true);
  };
  machine.add_agent("host0", std::make_unique<DeviceHost<kMutant>>(world), true);
  if (scenario.deadline || scenario.silent) add("time", Happens::What::kTime, 0);
  if (scenario.silent) add("silence", Happens::What::kSilent, scenario.ranks - 1);
  for (std::uint32_t peer = 1; scenario.goes && peer < scenario.ranks; ++peer)
    add("news" + std::to_string(peer), Happens::What::kGone, peer);
}

}  // namespace rocenante::model
