// SPDX-License-Identifier: Apache-2.0
//
// Launches of a device by groups of threads: what CTAs run, at full speed, results to the bit, and how
// launches fail.
#include <algorithm>
#include <cstring>
#include <random>

#include "lib/protocol/abort_word.h"
#include "reduce_kernels/reduce.h"
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
using test::Reduction;

constexpr std::uint64_t kSlotBytes = 4096;
constexpr std::uint64_t kMostBytes = 3 * kSlotBytes;

#if defined(ROCENANTE_TSAN)
constexpr std::uint32_t kCalls = 150;
#else
constexpr std::uint32_t kCalls = 600;
#endif

// What all ranks know of a call, drawn from its number.
struct Drawn {
  Reduction reduction;
  std::uint64_t count, bytes;
  std::uint64_t piece_bytes;
  bool in_line;
};

Drawn draw(std::uint32_t call, std::uint32_t ranks) {
  static constexpr Reduction kReductions[] = {
      {DataType::kFloat32, Operator::kSum, false, {}, 1},
      {DataType::kBfloat16, Operator::kSum, false, {}, 1},
      {DataType::kFloat16, Operator::kSum, false, {}, 1},
      {DataType::kBfloat16, Operator::kAvg, false, {}, 1},
      {DataType::kUint8, Operator::kMin, false, {}, 1},
      {DataType::kInt64, Operator::kProd, false, {}, 1},
      {DataType::kFloat64, Operator::kMax, false, {}, 1},
      {DataType::kFloat8e4m3, Operator::kSum, true, {0x3c}, 1},
      {DataType::kFloat32, Operator::kSum, true, {0, 0, 0x40, 0x40}, 1}};
  static constexpr std::uint64_t kBytes[] = {0, 8, 24, 112, 120, 512, 1000, 4096, 4104, 9000, 12288};
  std::mt19937_64 random(call);
  Drawn drawn{};
  drawn.reduction = kReductions[random() % std::size(kReductions)];
  drawn.reduction.ranks = ranks;
  const std::size_t size = reduce::element_size(drawn.reduction.type);
  drawn.count = kBytes[random() % std::size(kBytes)] / size;
  if (drawn.count > 0 && random() % 2 == 0) --drawn.count;
  drawn.bytes = drawn.count * size;
  drawn.piece_bytes = random() % 3 == 0 ? 1024 : kSlotBytes;
  drawn.in_line = drawn.bytes <= protocol::kInlineBytes && !drawn.reduction.scaled && random() % 2 == 0;
  return drawn;
}

void fill(unsigned char* at, std::uint64_t bytes, std::uint32_t call, std::uint32_t rank) {
  std::mt19937_64 random(call * 1009 + rank);
  for (std::uint64_t i = 0; i < bytes; ++i) at[i] = static_cast<unsigned char>(random());
}

std::vector<unsigned char> expected(const Drawn& drawn, std::uint32_t call) {
  const reduce::ScopedFpEnvironment environment;
  const reduce::Kernels& kernels = *reduce::find_kernels("scalar");
  const auto type = static_cast<std::size_t>(drawn.reduction.type);
  std::vector<std::vector<unsigned char>> inputs;
  std::vector<const void*> pointers;
  for (std::uint32_t rank = 0; rank < drawn.reduction.ranks; ++rank) {
    inputs.emplace_back(drawn.bytes + 1);
    fill(inputs.back().data(), drawn.bytes, call, rank);
    if (drawn.reduction.scaled) {
      kernels.scale[type](inputs.back().data(), inputs.back().data(), drawn.count,
                          drawn.reduction.scalar.data());
    }
  }
  for (const auto& input : inputs) pointers.push_back(input.data());
  std::vector<unsigned char> result(drawn.bytes);
  kernels.reduce[type][static_cast<std::size_t>(drawn.reduction.op)](result.data(), pointers.data(),
                                                                     drawn.reduction.ranks, drawn.count);
  return result;
}

// A rank's buffers, and where in them a call's input and output lie: anywhere, and sometimes in one place.
struct User {
  std::vector<unsigned char> input, output;
  std::atomic<std::uint32_t> wrong{0};

  User() : input(kMostBytes + 64), output(kMostBytes + 64) {}
  static std::size_t shift(std::uint32_t call, std::uint32_t rank, std::uint32_t which) {
    std::mt19937_64 random(call * 77 + rank * 5 + which);
    return random() % 2 == 0 ? 0 : random() % 32;
  }
  unsigned char* in(std::uint32_t call, std::uint32_t rank) { return input.data() + shift(call, rank, 0); }
  unsigned char* out(std::uint32_t call, std::uint32_t rank) {
    return call % 5 == 0 ? in(call, rank) : output.data() + shift(call, rank, 1);
  }
};

// A rank's number of groups is its own affair, and another one with every call.
std::uint32_t groups_of(std::uint32_t call, std::uint32_t rank, std::uint32_t most) {
  std::mt19937_64 random(call * 31 + rank);
  std::uint32_t groups = 1;
  while (groups < most && random() % 2 == 0) groups *= 2;
  return groups;
}

void all_reduce_all(const ThreadConfig& config) {
  DeviceWorld all(config);
  std::vector<User> users(config.ranks);
  std::vector<std::thread> carriers;
  std::uint64_t rounds = 0;
  for (std::uint32_t call = 0; call < kCalls; ++call) {
    const Drawn drawn = draw(call, config.ranks);
    rounds += drawn.bytes == 0 ? 1 : (drawn.bytes + drawn.piece_bytes - 1) / drawn.piece_bytes;
  }
  for (std::uint32_t rank = 0; config.carried && rank < config.ranks; ++rank)
    carriers.emplace_back([&all, rank, rounds] { all.world.carry(rank, rounds); });
  test::on_all_threads(config, [&](std::uint32_t rank, std::uint32_t part, std::uint32_t thread) {
    DeviceMember self(all, rank, part, thread);
    User& user = users[rank];
    const bool first = part == 0 && thread == 0;
    for (std::uint32_t call = 0; call < kCalls; ++call) {
      const Drawn drawn = draw(call, config.ranks);
      if (first) fill(user.in(call, rank), drawn.bytes, call, rank);
      const protocol::Exchange exchange{user.in(call, rank),
                                        user.out(call, rank),
                                        drawn.bytes,
                                        drawn.piece_bytes,
                                        call + 1,
                                        drawn.in_line,
                                        false};
      const Verdict verdict =
          self.launch(drawn.reduction, exchange, drawn.in_line ? 1 : groups_of(call, rank, config.parts));
      if (verdict != Verdict::kReady) user.wrong.fetch_add(1);
      if (first) {
        const std::vector<unsigned char> right = expected(drawn, call);
        if (!std::equal(right.begin(), right.end(), user.out(call, rank))) user.wrong.fetch_add(1);
      }
    }
  });
  for (std::thread& carrier : carriers) carrier.join();
  for (std::uint32_t rank = 0; rank < config.ranks; ++rank) {
    CHECK(users[rank].wrong == 0);
    CHECK(all.world.rank(rank).epoch == rounds);
    CHECK(all.world.rank(rank).abort_word == 0);
  }
}

// One float sum of a few elements on every rank, until it ends; the verdicts of all threads.
struct Outcome {
  std::vector<Verdict> verdicts;
  std::vector<std::vector<float>> outputs;
};
constexpr std::uint32_t kCount = 100;

template <class TagOf>
Outcome run_once(DeviceWorld& all, const std::vector<bool>& comes, const TagOf& tag_of) {
  const ThreadConfig& config = all.world.config();
  Outcome outcome{std::vector<Verdict>(config.ranks * config.parts * config.threads, Verdict::kPending),
                  std::vector<std::vector<float>>(config.ranks, std::vector<float>(kCount, -7))};
  const std::vector<float> input(kCount, 1);
  test::on_all_threads(config, [&](std::uint32_t rank, std::uint32_t part, std::uint32_t thread) {
    if (!comes[rank]) return;
    DeviceMember self(all, rank, part, thread);
    const protocol::Exchange exchange{
        input.data(), outcome.outputs[rank].data(), kCount * 4, kSlotBytes, tag_of(rank), false, false};
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

}  // namespace

TEST_CASE("launches of one group") {
  all_reduce_all({.ranks = 1, .threads = 2});
  all_reduce_all({.ranks = 2, .threads = 3});
  all_reduce_all({.ranks = 3, .threads = 1});
  all_reduce_all({.ranks = 8, .threads = 1});
}

TEST_CASE("launches of several groups, their number another each time") {
  all_reduce_all({.ranks = 2, .threads = 2, .parts = 4});
  all_reduce_all({.ranks = 4, .threads = 2, .parts = 2});
  all_reduce_all({.ranks = 5, .threads = 1, .parts = 2});
}

TEST_CASE("launches whose puts a progress thread carries") {
  all_reduce_all({.ranks = 2, .threads = 2, .parts = 2, .carried = true});
  all_reduce_all({.ranks = 3, .threads = 2, .parts = 2, .carried = true});
}

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

TEST_CASE("a call takes as many groups as it has work for") {
  const auto groups = [](std::uint64_t bytes, std::uint64_t piece, std::uint32_t most,
                         bool in_line = false) {
    return protocol::groups_for({nullptr, nullptr, bytes, piece, 0, in_line, false}, 8192, most);
  };
  constexpr std::uint64_t kMega = 1 << 20;
  CHECK(groups(0, kMega, 8) == 1);
  CHECK(groups(8192, kMega, 8) == 1);
  CHECK(groups(8193, kMega, 8) == 2);
  CHECK(groups(kMega, kMega, 8) == 8);
  CHECK(groups(kMega, 16384, 8) == 2);
  CHECK(groups(kMega, kMega, 7) == 4);
  CHECK(groups(1000 * kMega, 1000 * kMega, 1000) == protocol::kMostParts);
  CHECK(groups(kMega, kMega, 8, true) == 1);
}
