// SPDX-License-Identifier: Apache-2.0
//
// The agents of a scenario. Ranks drive the library's own CallRounds; the NICs, the progress thread and
// whoever aborts are written here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "lib/protocol/call_rounds.h"
#include "tests/protocol/model/slices.h"
#include "tests/protocol/model/world.h"

namespace rocenante::model {

[[noreturn]] inline void wrong(Machine& machine, const char* what) {
  machine.note(what);
  machine.leave();
}

// Hands rounds to the queue pairs of unmapped members, directly or through the doorbell.
template <class ModelEnv>
class Port {
 public:
  Port(ModelEnv& env, World& world, std::uint32_t rank, std::uint32_t progress)
      : env_(env), world_(world), rank_(rank), progress_(progress) {}

  void post(const protocol::Lane&, std::uint64_t epoch, const protocol::Piece& piece) {
    if (progress_ == 0) return post_all(epoch);
    protocol::ring_doorbell(env_, *world_.rank(rank_).ring, epoch, {piece.carried, piece.tag});
    env_.machine.observe(epoch - env_.machine.stage_of(progress_));
  }

  bool drained() {
    if (progress_ != 0) return true;  // a device does not wait: its slots are the protocol's
    bool all = true;
    each([&](QueuePair& queue) { all = all && env_.load_acquire(&queue.completed) >= posted_; });
    return all;
  }

  void post_all(std::uint64_t epoch) {
    posted_ = epoch;
    // All in one step: a post is seen by one NIC alone, which may take its time.
    bool attached = false;
    each(
        [&](QueuePair& queue) { env_.store_release(&queue.posted, epoch, std::exchange(attached, true)); });
  }

 private:
  template <class Do>
  void each(Do&& act) {
    for (std::uint32_t peer = 0; peer < world_.scenario().ranks; ++peer) {
      if (peer == rank_ || world_.mapped(rank_, peer)) continue;
      for (std::uint32_t rail = 0; rail < world_.scenario().rails; ++rail)
        act(world_.queue(rank_, peer, rail));
    }
  }

  ModelEnv& env_;
  World& world_;
  const std::uint32_t rank_;
  const std::uint32_t progress_;  // agent that takes the doorbell's entries; 0: nobody
  std::uint64_t posted_ = 0;
};

// Checks every word it combines: the right rank's, of this operation, of this place.
template <class ModelEnv, bool kChanges>
class Combiner {
 public:
  static constexpr bool reads_slot(const protocol::Piece&) { return kChanges; }

  Combiner(ModelEnv& env, World& world, std::uint32_t rank, std::uint32_t operation)
      : env_(env), world_(world), rank_(rank), operation_(operation) {}

  // Rounds that it has combined, and whether it has been asked for anything.
  std::uint32_t combined() const { return combined_; }
  bool used() const { return used_; }

  template <class Threads>
  void stage(ModelEnv& env, const Threads& group, void* to, const void* from, std::uint64_t bytes) {
    used_ = true;
    std::uint64_t begin, end;
    protocol::range_of(group.id(), group.size(), 0, bytes, begin, end);
    for (std::uint64_t i = begin / sizeof(Word); i < end / sizeof(Word); ++i) {
      env.store_relaxed(static_cast<Word*>(to) + i, env.load_relaxed(static_cast<const Word*>(from) + i) +
                                                        (kChanges ? kStagingBias : 0));
    }
  }

  template <class Threads, class Source>
  void combine(Threads& group, const protocol::Piece& piece, std::uint64_t begin, std::uint64_t end,
               Source&& source) {
    std::uint64_t from, to;
    protocol::range_of(group.id(), group.size(), begin, end, from, to);
    looked_ = false;
    used_ = true;
    ++combined_;
    Word* const output = static_cast<Word*>(piece.output);
    const auto offset = reinterpret_cast<unsigned char*>(output) - world_.output(rank_, operation_);
    for (std::uint64_t word = from / sizeof(Word); word < to / sizeof(Word); ++word) {
      Word sum = 0;
      for (std::uint32_t rank = 0; rank < world_.scenario().ranks; ++rank) {
        const Word found = look(reinterpret_cast<const Word*>(source(rank)) + word);
        const Word expected =
            world_.payload(rank, operation_, static_cast<std::uint64_t>(offset) / sizeof(Word) + word);
        if (found != expected) {
          env_.machine.note("combines " + std::to_string(found) + " as rank " + std::to_string(rank) +
                            "'s payload, which is " + std::to_string(expected));
          env_.machine.leave();
        }
        sum += found;
      }
      env_.store_relaxed(output + word, sum);
    }
  }

 private:
  // Where the scenario is coarse all words are read in one step. They are judged one by one, and reading
  // disturbs nobody: whatever word some schedule lets be wrong when it is read, reading all of them at that
  // moment finds wrong too.
  Word look(const Word* address) {
    if (!world_.scenario().coarse) return env_.load_relaxed(address);
    const bool attached = std::exchange(looked_, true);
    return attached ? env_.load_attached(address) : env_.load_relaxed(address);
  }

  ModelEnv& env_;
  World& world_;
  const std::uint32_t rank_;
  const std::uint32_t operation_;
  bool looked_ = false;
  bool used_ = false;
  std::uint32_t combined_ = 0;
};

// One thread of one group of a rank: all operations, then leaving.
template <protocol::Mutation kMutant>
class RankThread final : public Program {
 public:
  RankThread(World& world, std::uint32_t rank, std::uint32_t part, std::uint32_t thread,
             std::uint32_t progress)
      : world_(world), rank_(rank), part_(part), thread_(thread), progress_(progress) {}

  void run(Machine& machine, std::uint32_t stage) override {
    ModelEnv env{machine};
    const Scenario& scenario = world_.scenario();
    for (std::uint32_t operation = stage; operation < world_.calls_of(rank_); ++operation) {
      if (scenario.user_buffer) rewrite_input(env, operation);
      const bool done = scenario.gathers      ? scenario.stages_own
                                                    ? operate<SliceCombiner<ModelEnv, true>>(env, operation)
                                                    : operate<SliceCombiner<ModelEnv, false>>(env, operation)
                             : scenario.stages_own ? operate<Combiner<ModelEnv, true>>(env, operation)
                                              : operate<Combiner<ModelEnv, false>>(env, operation);
      if (!done) return;
      join(env);
      machine.commit(operation + 1);
    }
    if (scenario.user_buffer) rewrite_input(env, scenario.operations);
    if (scenario.leaves) leave(env);
    if (scenario.goes) env.store_release(world_.rank(rank_).goodbye, Word{1});
  }

 private:
  using ModelEnv = Env<kMutant>;

  void rewrite_input(ModelEnv& env, std::uint32_t operation) {
    Word* const input = reinterpret_cast<Word*>(world_.input(rank_, operation));
    for (std::uint32_t word = 0; word < world_.scenario().words; ++word) {
      env.store_relaxed(input + word, world_.contribution(rank_, operation, word));
    }
  }

  template <class Combiner>
  bool operate(ModelEnv& env, std::uint32_t operation) {
    RankMemory& mine = world_.rank(rank_);
    Group<ModelEnv> group(env, mine.meetings + part_, thread_, world_.threads_of(rank_, part_));
    Port<ModelEnv> port(env, world_, rank_, progress_);
    Combiner combiner(env, world_, rank_, operation);
    const protocol::Exchange exchange{.input = world_.input(rank_, operation),
                                      .output = world_.output(rank_, operation),
                                      .bytes = world_.operation_bytes(),
                                      .piece_bytes = world_.piece_bytes(),
                                      .tag = world_.tag(rank_, operation),
                                      .in_line = world_.scenario().in_line,
                                      .closing_round = world_.scenario().user_buffer,
                                      .sliced = world_.scenario().gathers,
                                      .gathers = world_.scenario().gathers};
    protocol::CallRounds<ModelEnv, Group<ModelEnv>, Port<ModelEnv>, Combiner> shot(
        env, group, mine.lane, port, combiner, protocol::part_of(part_, world_.parts_of(rank_)), exchange);
    const protocol::Verdict verdict = drive(env, shot);
    // Aborted while it drained, it has completed its rounds.
    const bool completed = verdict == protocol::Verdict::kReady || shot.draining();
    return conclude(env, verdict, completed ? shot.epoch() : shot.epoch() - 1);
  }

  template <class Shot>
  protocol::Verdict drive(ModelEnv& env, Shot& shot) {
    using protocol::Verdict;
    Verdict verdict = shot.step();
    while (verdict == Verdict::kPending) {
      if (!world_.scenario().sleeps) env.machine.pending();
      // All that is left of the looks and naps until here. (Sleepers have one rail.)
      env.machine.forget(shot.epoch() << 8 | shot.missing());
      auto* const wake = reinterpret_cast<protocol::WakeLine*>(world_.rank(rank_).inbox);
      protocol::sleep_unless(env, wake, 0, [&] {
        verdict = shot.step();
        return verdict != Verdict::kPending;
      });
      if (verdict == Verdict::kPending) verdict = shot.step();
    }
    return verdict;
  }

  bool conclude(ModelEnv& env, protocol::Verdict verdict, std::uint64_t completed) {
    using protocol::Verdict;
    RankMemory& mine = world_.rank(rank_);
    Word* const outcome = mine.outcome + world_.agent_of(rank_, part_, thread_);
    env.store_relaxed(outcome, Word{completed});
    if (verdict == Verdict::kReady) {
      if (world_.scenario().mismatch) wrong(env.machine, "another call was taken for the same");
      return true;
    }
    if (verdict == Verdict::kMismatch && !world_.scenario().mismatch) wrong(env.machine, "mismatch");
    if (env.machine.memory().newest(env.machine.locate(mine.epoch)) > completed) {
      wrong(env.machine, "a round that did not complete has advanced");
    }
    join(env);
    return false;
  }

  // An operation is over for a rank when it is over for all its threads: a kernel's end, or a join. Before
  // that the lane's epoch may not be there yet.
  void join(ModelEnv& env) {
    const std::uint32_t all = world_.agents_of(rank_);
    Meeting* const meeting = world_.rank(rank_).meetings + world_.parts_of(rank_);
    Group<ModelEnv>(env, meeting, world_.agent_of(rank_, part_, thread_), all).sync();
  }

  // Failure rule 5. (Only with one thread per rank.)
  void leave(ModelEnv& env) {
    if constexpr (kMutant != protocol::Mutation::kNoGoodbye) {
      env.store_release(world_.rank(rank_).goodbye, Word{1});
      for (std::uint32_t peer = 0; peer < world_.scenario().ranks; ++peer) {
        if (peer != rank_) env.await(world_.rank(peer).goodbye, 1);
      }
    }
    env.machine.access({Kind::kFree, kNowhere, kNowhere, rank_});
  }

  World& world_;
  const std::uint32_t rank_, part_, thread_, progress_;
};

// A queue pair's send side and the memory at its other end. Payload words move one by one, at any time
// after the post; then the signal; then the local completion. A word is read and written in one step:
// reading earlier only shows less, and writing later is another schedule of the same step.
template <protocol::Mutation kMutant>
class Nic final : public Program {
 public:
  Nic(World& world, std::uint32_t from, std::uint32_t to, std::uint32_t rail)
      : world_(world), from_(from), to_(to), rail_(rail) {}

  void run(Machine& machine, std::uint32_t stage) override {
    Env<kMutant> env{machine};
    QueuePair& queue = world_.queue(from_, to_, rail_);
    for (std::uint64_t epoch = stage + 1; epoch <= world_.rounds().size(); ++epoch) {
      env.await(&queue.posted, epoch);
      move_payload(machine, epoch);
      if (carries(epoch)) {
        const std::uint64_t line = protocol::line_of<Env<kMutant>>(epoch);
        const bool all = world_.striped(world_.rounds()[epoch - 1]);
        env.store_release(&world_.line(to_, from_, line, all ? rail_ : 0)->epoch, epoch);
      }
      if (world_.scenario().loses_completion && from_ == 0 && epoch == world_.rounds().size()) return;
      // In the same step: only the sender's end of operation waits for it, and may do so longer.
      env.store_release(&queue.completed, epoch, true);
      machine.commit(static_cast<std::uint32_t>(epoch));
    }
  }

 private:
  // A round that takes one rail takes the last: its line then is not that of its rail.
  bool carries(std::uint64_t epoch) const {
    return rail_ + 1 == world_.scenario().rails || world_.striped(world_.rounds()[epoch - 1]);
  }

  // Not if the slot has the same one since the last round that used it.
  bool brings_tag(std::uint64_t epoch) const {
    if (!world_.scenario().tagged) return false;
    const Round& round = world_.rounds()[epoch - 1];
    const std::uint64_t before = kMutant == protocol::Mutation::kOneSentTag ? 1 : protocol::kParities;
    return epoch <= before || round.carried == 0 ||
           world_.tag(from_, round.operation) !=
               world_.tag(from_, world_.rounds()[epoch - 1 - before].operation);
  }

  void move_payload(Machine& machine, std::uint64_t epoch) {
    if (!carries(epoch)) return;
    const Round& round = world_.rounds()[epoch - 1];
    const std::uint64_t parity = protocol::parity_of<Env<kMutant>>(epoch);
    const unsigned char* source = world_.scenario().user_buffer
                                      ? world_.input(from_, round.operation) + round.offset
                                      : world_.rank(from_).lane.send[parity];
    if (round.sliced) source += to_ * protocol::slice_stride(round.carried);
    unsigned char* const slot = world_.recv_slot(to_, from_, parity);
    std::uint64_t begin = 0, end = round.carried;
    if (world_.striped(round))
      protocol::range_of(rail_, world_.scenario().rails, 0, round.carried, begin, end);
    // With the payload's beginning, or alone.
    if (brings_tag(epoch) && (rail_ == 0 || !world_.striped(round))) {
      machine.access({Kind::kMove, machine.locate(slot - protocol::kSlotTagBytes),
                      machine.locate(source - protocol::kSlotTagBytes)});
    }
    // Noticing the post goes with the first word: nobody sees it, and it could be noticed later instead.
    for (std::uint64_t at = begin; at < end; at += sizeof(Word)) {
      machine.access({Kind::kMove, machine.locate(slot + at), machine.locate(source + at), 0, at == begin});
    }
  }

  World& world_;
  const std::uint32_t from_, to_, rail_;
};

// Takes the doorbell's entries and posts them. The scheduler may leave it aside for as long as it likes.
template <protocol::Mutation kMutant>
class Progress final : public Program {
 public:
  Progress(World& world, std::uint32_t rank) : world_(world), rank_(rank) {}

  void run(Machine& machine, std::uint32_t stage) override {
    Env<kMutant> env{machine};
    Port<Env<kMutant>> port(env, world_, rank_, 0);
    for (std::uint64_t next = stage + 1; next <= world_.rounds().size(); ++next) {
      protocol::PutDescriptor put{};
      const protocol::Taken taken = protocol::take_doorbell(env, *world_.rank(rank_).ring, next, put);
      if (taken == protocol::Taken::kNothing) machine.pending();
      if (taken == protocol::Taken::kOverrun) wrong(machine, "the doorbell ring was overrun");
      const Round& round = world_.rounds()[next - 1];
      if (put.bytes != round.carried || put.tag != world_.tag(rank_, round.operation)) {
        wrong(machine, "a doorbell entry does not describe its round");
      }
      port.post_all(next);
      machine.commit(static_cast<std::uint32_t>(next));
    }
  }

 private:
  World& world_;
  const std::uint32_t rank_;
};

// Somebody aborts a rank, at any time, and wakes it.
template <protocol::Mutation kMutant>
class Aborter final : public Program {
 public:
  Aborter(World& world, std::uint32_t rank) : world_(world), rank_(rank) {}

  void run(Machine& machine, std::uint32_t) override {
    Env<kMutant> env{machine};
    RankMemory& mine = world_.rank(rank_);
    env.store_release(mine.words != nullptr ? &mine.words->host_abort : mine.abort_word,
                      protocol::pack_abort({protocol::AbortReason::kExplicit, rank_, 0}));
    if (!world_.scenario().sleeps) return;
    env.fence();
    protocol::notify_if_sleeping(env, reinterpret_cast<protocol::WakeLine*>(world_.rank(rank_).inbox));
  }

 private:
  World& world_;
  const std::uint32_t rank_;
};

}  // namespace rocenante::model
