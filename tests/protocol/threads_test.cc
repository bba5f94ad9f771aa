// SPDX-License-Identifier: Apache-2.0
//
// Thousands of all-reduces between real threads, every payload different, every result exact.
#include <thread>

#include "lib/protocol/abort_word.h"
#include "tests/protocol/thread_world.h"
#include "tests/support/catch.h"

namespace {

using namespace rocenante;
using namespace rocenante::model;
using protocol::Mutation;
using protocol::Verdict;

#if defined(ROCENANTE_TSAN)
constexpr std::uint64_t kOperations = 1000;
#else
constexpr std::uint64_t kOperations = 4000;
#endif

// Small integers: any sum of them is exact in every type.
template <class T>
T contribution(std::uint32_t rank, std::uint64_t operation, std::uint64_t at) {
  return static_cast<T>((operation * 31 + at * 7 + rank * 131) % 4096);
}

struct Sizes {
  std::uint64_t count;
  std::uint64_t piece_bytes;
};

std::uint64_t rounds(std::uint64_t bytes, std::uint64_t piece_bytes) {
  return bytes == 0 ? 1 : (bytes + piece_bytes - 1) / piece_bytes;
}

// Inputs and outputs of one rank, and how often its result was wrong.
template <class T>
struct User {
  std::vector<T> input, output;
  std::atomic<std::uint64_t> wrong{0};
};

template <class T>
void fill(User<T>& user, std::uint32_t rank, std::uint64_t operation, std::uint64_t count) {
  for (std::uint64_t at = 0; at < count; ++at) {
    user.input[at] = contribution<T>(rank, operation, at);
    user.output[at] = static_cast<T>(77);
  }
}

template <class T>
void judge(User<T>& user, std::uint32_t ranks, std::uint64_t operation, std::uint64_t count) {
  for (std::uint64_t at = 0; at < count; ++at) {
    T sum{};
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      sum = static_cast<T>(sum + contribution<T>(rank, operation, at));
    }
    if (sum != user.output[at]) user.wrong.fetch_add(1);
  }
}

// Every rank's every thread makes the same calls; sizes take turns.
template <class T>
void all_reduce_all(const ThreadConfig& config, const std::vector<Sizes>& sizes) {
  ThreadWorld world(config);
  std::vector<User<T>> users(config.ranks);
  std::uint64_t most = 0, all_rounds = 0;
  for (const Sizes& size : sizes) most = std::max(most, size.count);
  for (std::uint64_t i = 0; i < kOperations; ++i) {
    const Sizes& size = sizes[i % sizes.size()];
    all_rounds += rounds(size.count * sizeof(T), size.piece_bytes) * (config.gathers ? 2 : 1);
  }
  for (User<T>& user : users) user.input.resize(most), user.output.resize(most);

  std::vector<std::thread> threads;
  const auto member = [&](std::uint32_t rank, std::uint32_t part, std::uint32_t thread) {
    ThreadMember<Mutation::kNone, T> self(world, rank, part, thread);
    User<T>& user = users[rank];
    for (std::uint64_t i = 0; i < kOperations; ++i) {
      const Sizes& size = sizes[i % sizes.size()];
      if (part == 0 && thread == 0) fill(user, rank, i, size.count);
      const Verdict verdict =
          self.all_reduce(user.input.data(), user.output.data(), size.count, size.piece_bytes, i);
      if (verdict != Verdict::kReady) user.wrong.fetch_add(1);
      if (part == 0 && thread == 0) judge(user, config.ranks, i, size.count);
    }
  };
  for (std::uint32_t rank = 0; rank < config.ranks; ++rank) {
    for (std::uint32_t part = 0; part < config.parts; ++part) {
      for (std::uint32_t thread = 0; thread < config.threads; ++thread) {
        threads.emplace_back(member, rank, part, thread);
      }
    }
    if (config.carried) threads.emplace_back([&world, rank, all_rounds] { world.carry(rank, all_rounds); });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::uint32_t rank = 0; rank < config.ranks; ++rank) {
    CHECK(users[rank].wrong == 0);
    CHECK(world.rank(rank).epoch == all_rounds);
  }
}

const std::vector<Sizes> kOdd = {{1, 4096}, {7, 4096}, {33, 4096}, {251, 4096}, {0, 4096}, {307, 512}};

}  // namespace

TEST_CASE("ranks of one thread that map each other") {
  all_reduce_all<std::uint64_t>({.ranks = 2}, kOdd);
  all_reduce_all<float>({.ranks = 3}, kOdd);
  all_reduce_all<unsigned char>({.ranks = 4}, kOdd);
}

TEST_CASE("ranks of several threads") {
  all_reduce_all<std::uint64_t>({.ranks = 2, .threads = 2}, kOdd);
  all_reduce_all<float>({.ranks = 2, .threads = 3}, kOdd);
}

TEST_CASE("ranks of several groups") {
  all_reduce_all<std::uint64_t>({.ranks = 2, .parts = 2}, kOdd);
  all_reduce_all<float>({.ranks = 3, .parts = 4}, kOdd);
  all_reduce_all<std::uint64_t>({.ranks = 2, .threads = 2, .parts = 2}, kOdd);
}

TEST_CASE("a rank on another host, its puts carried late and in pieces") {
  all_reduce_all<std::uint64_t>({.ranks = 2, .carried = true}, kOdd);
  all_reduce_all<float>({.ranks = 3, .carried = true}, kOdd);
  all_reduce_all<std::uint64_t>({.ranks = 3, .parts = 2, .carried = true}, kOdd);
}

TEST_CASE("ranks that sleep are woken") {
  all_reduce_all<std::uint64_t>({.ranks = 2, .sleeps = true}, kOdd);
  all_reduce_all<float>({.ranks = 4, .sleeps = true}, kOdd);
}

TEST_CASE("calls of two rounds a piece") {
  all_reduce_all<std::uint64_t>({.ranks = 2, .gathers = true}, kOdd);
  all_reduce_all<float>({.ranks = 3, .threads = 2, .gathers = true}, kOdd);
  all_reduce_all<unsigned char>({.ranks = 4, .sleeps = true, .gathers = true}, kOdd);
  all_reduce_all<float>({.ranks = 3, .carried = true, .gathers = true}, kOdd);
  all_reduce_all<std::uint64_t>({.ranks = 2, .carried = true, .rails = 2, .gathers = true}, kOdd);
}

// A rank that takes one round for what the others take two for makes its next call in their second.
TEST_CASE("another call in the second round of a piece is a mismatch, and the round does not advance") {
  ThreadWorld world({.ranks = 2, .gathers = true});
  std::vector<float> input(100, 1), output(100, -7);
  Verdict verdict{};
  std::thread two_rounds([&] {
    ThreadMember<Mutation::kNone, float> self(world, 0, 0, 0);
    verdict = self.all_reduce(input.data(), output.data(), input.size(), 4096, 5);
  });
  // Rank 1's signals: its slice, and then another call.
  HostEnv env;
  const protocol::PeerLink& link = world.rank(1).lane.peers[0];
  for (const std::uint64_t epoch : {1u, 2u}) {
    protocol::SignalLine* const line = link.outbound[epoch % 2];
    while (epoch == 2 && env.load_acquire(&link.inbound[0]->epoch) != 2) sched_yield();
    env.store_relaxed(&line->tag, std::uint64_t{epoch == 1 ? 5u : 6u});
    env.store_release(&line->epoch, epoch);
  }
  two_rounds.join();
  CHECK(verdict == Verdict::kMismatch);
  CHECK(world.rank(0).epoch == 1);
  CHECK(output == std::vector<float>(100, -7));
}

TEST_CASE("an abort frees everybody, and what was finished before is right") {
  constexpr std::uint32_t kRanks = 3;
  for (std::uint64_t round = 0; round < 20; ++round) {
    ThreadWorld world({.ranks = kRanks, .threads = 2, .carried = round % 2 == 1});
    std::vector<User<float>> users(kRanks);
    for (User<float>& user : users) user.input.resize(64), user.output.resize(64);
    std::atomic<std::uint64_t> finished[kRanks][2] = {};
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      for (std::uint32_t thread = 0; thread < 2; ++thread) {
        threads.emplace_back([&, rank, thread] {
          ThreadMember<Mutation::kNone, float> self(world, rank, 0, thread);
          for (std::uint64_t i = 0;; ++i) {
            if (thread == 0) fill(users[rank], rank, i, 64);
            const Verdict verdict =
                self.all_reduce(users[rank].input.data(), users[rank].output.data(), 64, 4096, i);
            if (verdict != Verdict::kReady) return;
            if (thread == 0) judge(users[rank], kRanks, i, 64);
            finished[rank][thread] = i + 1;
          }
        });
      }
      threads.emplace_back([&world, rank] { world.carry(rank, ~std::uint64_t{0}); });
    }
    while (finished[0][0] < round * 3) sched_yield();
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      const protocol::AbortCause cause{protocol::AbortReason::kExplicit, rank, finished[rank][0]};
      HostEnv().store_release(&world.rank(rank).abort_word, protocol::pack_abort(cause));
    }
    for (std::thread& thread : threads) thread.join();
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      CHECK(users[rank].wrong == 0);
      CHECK(finished[rank][0] == finished[rank][1]);
      // One more where the abort came while the rank waited for its own puts to leave.
      const std::uint64_t more = world.rank(rank).epoch - finished[rank][0];
      CHECK(more <= (world.all_mapped() ? 0 : 1));
    }
  }
}
