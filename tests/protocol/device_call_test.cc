// SPDX-License-Identifier: Apache-2.0
//
// Launches of a device by groups of threads: what CTAs run, at full speed, results to the bit.
#include <algorithm>
#include <random>

#include "reduce_kernels/reduce.h"
#include "tests/protocol/device_world.h"
#include "tests/support/catch.h"

namespace {

using namespace rocenante;
using model::ThreadConfig;
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
  all_reduce_all({.ranks = 3, .threads = 2, .parts = 2, .carried = true, .rails = 2});
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
