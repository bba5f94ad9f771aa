// SPDX-License-Identifier: Apache-2.0
//
// How launches of a device fail, by groups of threads.
#include <cstring>

#include "lib/protocol/abort_word.h"
#include "tests/protocol/device_world.h"
#include "tests/support/catch.h"

namespace {

using namespace rocenante;
using model::ThreadConfig;
using protocol::AbortReason;
using protocol::Verdict;
using reduce::DataType;
using reduce::Operator;
using test::DeviceMember;
using test::DeviceWorld;

constexpr std::uint64_t kSlotBytes = 4096;

// One float sum of a few elements on every rank, until it ends; the verdicts of all threads.
struct Outcome {
  std::vector<Verdict> verdicts;
  std::vector<std::vector<float>> outputs;
};
constexpr std::uint32_t kCount = 100;

template <class TagOf>
Outcome run_once(DeviceWorld& all, const std::vector<bool>& comes, const TagOf& tag_of,
                 std::uint64_t piece_bytes = kSlotBytes) {
  const ThreadConfig& config = all.world.config();
  Outcome outcome{std::vector<Verdict>(config.ranks * config.parts * config.threads, Verdict::kPending),
                  std::vector<std::vector<float>>(config.ranks, std::vector<float>(kCount, -7))};
  const std::vector<float> input(kCount, 1);
  test::on_all_threads(config, [&](std::uint32_t rank, std::uint32_t part, std::uint32_t thread) {
    if (!comes[rank]) return;
    DeviceMember self(all, rank, part, thread);
    const protocol::Exchange exchange{
        input.data(), outcome.outputs[rank].data(), kCount * 4, piece_bytes, tag_of(rank), false, false};
    outcome.verdicts[(rank * config.parts + part) * config.threads + thread] =
        self.launch({DataType::kFloat32, Operator::kSum, false, {}, config.ranks}, exchange, config.parts);
  });
  return outcome;
}

bool all_are(const Outcome& outcome, Verdict verdict, std::uint32_t from, std::uint32_t to) {
  for (std::uint32_t i = from; i < to; ++i) {
    if (outcome.verdicts[i] != verdict) return false;
  }
  return true;
}

constexpr auto kSameTag = [](std::uint32_t) { return std::uint64_t{5}; };

// One of the lines of `from`'s round `epoch`, and the tag with it.
void bring(DeviceWorld& all, std::uint32_t to, std::uint32_t from, std::uint64_t epoch,
           std::uint32_t rail) {
  const protocol::PeerLink& link = all.world.rank(to).lane.peers[from];
  auto* const line = const_cast<protocol::SignalLine*>(link.inbound[epoch % 2] + rail);
  *const_cast<std::uint64_t*>(protocol::tag_of<HostEnv>(link, epoch)) = 5;
  HostEnv().store_release(&line->epoch, epoch);
}

// Rank 0 alone. Rank 2 is at the other end of two rails, and gone. The call has a round of 256 bytes and
// one of 144, which take one rail.
class TwoRails {
 public:
  TwoRails() : all({.ranks = 3, .threads = 2, .carried = true, .rails = 2}) {
    all.clock.tick_ns = kSecond;
    all.ranks[0].lane.lane.striped_bytes = 200;
    all.ranks[0].states[2] = protocol::kGone;
    all.ranks[0].words.absent = 1;
  }
  Outcome run() { return run_once(all, {true, false, false}, kSameTag, 256); }
  protocol::AbortCause cause() { return protocol::unpack_abort(all.world.rank(0).abort_word); }

  static constexpr std::uint64_t kSecond = 1'000'000'000;
  DeviceWorld all;
};

// What the control connections do: whatever a rank's device gave up for, the other ranks' hosts hear of it.
class Control {
 public:
  explicit Control(DeviceWorld& all)
      : all_(all), thread_([this](const std::stop_token& stop) { run(stop); }) {}

 private:
  void run(const std::stop_token& stop) {
    HostEnv env;
    while (!stop.stop_requested()) {
      for (std::uint32_t failed = 0; failed < all_.ranks.size(); ++failed) {
        if (env.load_acquire(&all_.ranks[failed].words.device_abort) == 0) continue;
        for (std::uint32_t rank = 0; rank < all_.ranks.size(); ++rank) {
          if (rank == failed || env.load_relaxed(&all_.ranks[rank].words.host_abort) != 0) continue;
          env.store_release(&all_.ranks[rank].words.host_abort,
                            protocol::pack_abort({AbortReason::kRemote, failed, 1}));
        }
      }
      sched_yield();
    }
  }

  DeviceWorld& all_;
  std::jthread thread_;
};

}  // namespace

TEST_CASE("a peer that does not come ends a launch at its deadline, and is named") {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  for (const bool first : {true, false}) {
    DeviceWorld all({.ranks = 3, .threads = 2, .parts = 2});
    if (!first) {
      const Outcome before = run_once(all, {true, true, true}, kSameTag);
      REQUIRE(all_are(before, Verdict::kReady, 0, 12));
    }
    for (auto& rank : all.ranks)
      rank.lane.timeout_ns = 10 * kSecond, rank.lane.first_timeout_ns = 100 * kSecond;
    const std::uint64_t before = all.clock.now_ns;
    // The clock is everybody's, and a thread that waits drives it: it stands until both ranks are there.
    std::thread starter([&all, epoch = first ? 1u : 2u] {
      for (const std::uint32_t rank : {0u, 1u}) {
        const auto* const line = all.world.rank(rank).lane.peers[1 - rank].inbound[epoch % 2];
        while (HostEnv().load_acquire(&line->epoch) < epoch) sched_yield();
      }
      all.clock.tick_ns = kSecond;
    });
    const Outcome outcome = run_once(all, {true, true, false}, kSameTag);
    starter.join();
    CHECK(all_are(outcome, Verdict::kAborted, 0, 8));
    // No thread has waited for less than the limit.
    CHECK(all.clock.now_ns - before >= (first ? 100 : 10) * kSecond);
    for (const std::uint32_t rank : {0u, 1u}) {
      const protocol::AbortCause cause = protocol::unpack_abort(all.world.rank(rank).abort_word);
      CHECK(cause.reason == AbortReason::kDeadline);
      CHECK(cause.peer == 2);
      CHECK(all.ranks[rank].words.device_abort == all.world.rank(rank).abort_word);
      const protocol::FailureRecord& failure = all.ranks[rank].words.failure;
      CHECK(failure.epoch == (first ? 1 : 2));
      CHECK(failure.peer == 2);
      CHECK(failure.seen < failure.epoch);
      CHECK(failure.expected == 5);
      CHECK(all.world.rank(rank).epoch == failure.epoch - 1);
      CHECK(outcome.outputs[rank] == std::vector<float>(kCount, -7));
    }
  }
}

TEST_CASE("the host's abort frees a launch that waits") {
  DeviceWorld all({.ranks = 2, .threads = 2, .parts = 2});
  const std::uint64_t word = protocol::pack_abort({AbortReason::kExplicit, 0, 0});
  std::thread host([&] {
    // Once the launch has published and waits.
    while (HostEnv().load_acquire(&all.world.rank(1).lane.peers[0].inbound[1]->epoch) == 0) sched_yield();
    HostEnv().store_release(&all.ranks[0].words.host_abort, word);
  });
  const Outcome outcome = run_once(all, {true, false}, kSameTag);
  host.join();
  CHECK(all_are(outcome, Verdict::kAborted, 0, 4));
  CHECK(all.world.rank(0).abort_word == word);
  CHECK(all.ranks[0].words.device_abort == 0);  // the host's own cause: nothing to tell it
  CHECK(all.world.rank(0).epoch == 0);
}

TEST_CASE("a peer that is gone or silent ends a launch, and a signal that came before does not") {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  for (const std::uint32_t state : {protocol::kGone, protocol::kSilent}) {
    DeviceWorld all({.ranks = 2, .threads = 2});
    all.clock.tick_ns = kSecond;
    all.ranks[0].lane.suspect_ns = 60 * kSecond;
    all.ranks[0].states[1] = state;
    all.ranks[0].words.absent = 1;
    const Outcome outcome = run_once(all, {true, false}, kSameTag);
    CHECK(all_are(outcome, Verdict::kAborted, 0, 2));
    const protocol::AbortCause cause = protocol::unpack_abort(all.world.rank(0).abort_word);
    CHECK(cause.reason == (state == protocol::kGone ? AbortReason::kPeerGone : AbortReason::kSuspect));
    CHECK(cause.peer == 1);
  }
  DeviceWorld all({.ranks = 2, .threads = 2});
  all.ranks[0].states[1] = protocol::kGone;
  all.ranks[0].words.absent = 1;
  const protocol::SignalLine* const line = all.world.rank(0).lane.peers[1].inbound[1];
  const_cast<protocol::SignalLine*>(line)->tag = 5;
  const_cast<protocol::SignalLine*>(line)->epoch = 1;
  CHECK(all_are(run_once(all, {true, false}, kSameTag), Verdict::kReady, 0, 2));
}

TEST_CASE("a peer that is gone after one of its rails has brought its line is found") {
  for (const std::uint32_t rail : {0u, 1u}) {
    TwoRails world;
    world.all.ranks[0].lane.first_timeout_ns = 1000 * TwoRails::kSecond;
    bring(world.all, 0, 2, 1, rail);
    CHECK(all_are(world.run(), Verdict::kAborted, 0, 2));
    CHECK(world.cause().reason == AbortReason::kPeerGone);
    CHECK(world.cause().peer == 2);
    CHECK(world.cause().epoch == 1);
    CHECK(world.all.world.rank(0).epoch == 0);
  }
}

TEST_CASE("a peer is gone only if the round in progress wants more lines of it") {
  for (const bool complete : {true, false}) {
    TwoRails world;
    for (const std::uint32_t rail : {0u, 1u}) bring(world.all, 0, 2, 1, rail);
    if (complete) bring(world.all, 0, 2, 2, 0);
    bring(world.all, 0, 1, 1, 0);
    // The first round waits for nothing, so the looks at the clock are those of the second.
    std::jthread late([&world, complete](const std::stop_token& stop) {
      if (!complete) return;
      while (world.all.clock.now_ns < 5 * TwoRails::kSecond && !stop.stop_requested()) sched_yield();
      bring(world.all, 0, 1, 2, 0);
    });
    const Outcome outcome = world.run();
    late.request_stop();
    late.join();
    CHECK(all_are(outcome, complete ? Verdict::kReady : Verdict::kAborted, 0, 2));
    CHECK(world.cause().reason == (complete ? AbortReason::kNone : AbortReason::kPeerGone));
    CHECK(world.cause().epoch == (complete ? 0 : 2));
    CHECK(world.all.world.rank(0).epoch == (complete ? 2 : 1));
  }
}

TEST_CASE("ranks that call different things learn it") {
  // Where a group finds the mismatch before another group of its rank has begun, the rank publishes
  // nothing, and who waits for it has to be told.
  for (const bool late : {false, true}) {
    DeviceWorld all({.ranks = 3, .threads = 3, .parts = 2});
    all.ranks[0].second_waits = all.ranks[1].second_waits = late;
    const Control control(all);
    const Outcome outcome = run_once(all, {true, true, true},
                                     [](std::uint32_t rank) { return std::uint64_t{rank == 2 ? 9u : 5u}; });
    std::uint32_t ranks_that_found = 0;
    for (const std::uint32_t rank : {0u, 1u, 2u}) {
      bool found = false;
      for (std::uint32_t i = rank * 6; i < rank * 6 + 6; ++i) {
        CHECK((outcome.verdicts[i] == Verdict::kMismatch || outcome.verdicts[i] == Verdict::kAborted));
        found = found || outcome.verdicts[i] == Verdict::kMismatch;
      }
      for (const std::uint32_t first : {rank * 6, rank * 6 + 3})  // a group does not split
        CHECK(all_are(outcome, outcome.verdicts[first], first, first + 3));
      CHECK(all.world.rank(rank).epoch == 0);
      const protocol::AbortCause cause = protocol::unpack_abort(all.world.rank(rank).abort_word);
      if (cause.reason == AbortReason::kRemote) continue;
      ++ranks_that_found;
      CHECK(found);
      CHECK(cause.reason == AbortReason::kMismatch);
      const protocol::FailureRecord& failure = all.ranks[rank].words.failure;
      CHECK(failure.peer == (rank == 2 ? failure.peer : 2));
      CHECK(failure.tag == (rank == 2 ? 5 : 9));
      CHECK(failure.expected == (rank == 2 ? 9 : 5));
    }
    CHECK(ranks_that_found >= 1);
    if (late) CHECK(protocol::unpack_abort(all.world.rank(2).abort_word).reason == AbortReason::kRemote);
  }
}

TEST_CASE("a launch on a lane that has failed touches nothing") {
  const std::uint64_t word = protocol::pack_abort({AbortReason::kRemote, 1, 3});
  for (const bool by_host : {true, false}) {
    const ThreadConfig config{.ranks = 2, .threads = 2, .parts = 2, .carried = true};
    DeviceWorld all(config);
    model::ThreadRank& mine = all.world.rank(0);
    (by_host ? all.ranks[0].words.host_abort : mine.abort_word) = word;
    const std::vector<unsigned char> outbox(mine.outbox.get(), mine.outbox.get() + 2 * kSlotBytes);
    for (int again = 0; again < 2; ++again) {
      const Outcome outcome = run_once(all, {true, false}, kSameTag);
      CHECK(all_are(outcome, Verdict::kAborted, 0, 4));
      CHECK(outcome.outputs[0] == std::vector<float>(kCount, -7));
    }
    CHECK(std::memcmp(outbox.data(), mine.outbox.get(), outbox.size()) == 0);
    CHECK(mine.epoch == 0);
    CHECK(mine.abort_word == word);
    CHECK(all.ranks[0].words.device_abort == 0);
    CHECK((mine.staged[0].count | mine.staged[1].count | mine.finished[0].count | mine.finished[1].count) ==
          0);
    for (const protocol::DoorbellEntry& entry : mine.ring.entries) CHECK(entry.epoch == 0);
  }
}
