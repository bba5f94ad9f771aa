// SPDX-License-Identifier: Apache-2.0
//
// The device kernels' arithmetic on the CPU, against the host's kernels: every type, operator and kernel,
// bit for bit. A group of one thread: how threads share the work is device_call_test's.
#include <random>
#include <vector>

#include "lib/comm/host_env.h"
#include "reduce_kernels/reduce.h"
#include "tests/protocol/device_kernels.h"
#include "tests/support/catch.h"

namespace {

using namespace rocenante;
using reduce::DataType;
using reduce::Operator;
using test::Reduction;

constexpr std::size_t kRoom = 64;  // around a buffer: alignment, and what must not be touched
constexpr unsigned char kUntouched = 0xa5;

// Bytes at a place of their own, `shift` bytes past an aligned one.
class Buffer {
 public:
  Buffer(std::size_t bytes, std::size_t shift) : shift_(shift), memory_(bytes + 3 * kRoom, kUntouched) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    shift_ += kRoom + (kRoom - address % kRoom) % kRoom;
    bytes_ = bytes;
  }
  unsigned char* data() { return memory_.data() + shift_; }
  bool is_whole() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if ((i < shift_ || i >= shift_ + bytes_) && memory_[i] != kUntouched) return false;
    }
    return true;
  }

 private:
  std::size_t shift_, bytes_ = 0;
  std::vector<unsigned char> memory_;
};

// Every pattern is a value of every type; a third are zeroes, infinities, NaNs or the ends of a range.
void fill(unsigned char* at, DataType type, std::size_t count, std::mt19937_64& random) {
  static constexpr std::uint64_t kSpecial[] = {0,
                                               0x8000000000000000,
                                               0x7f80000000000000,
                                               0xff80000000000000,
                                               0x7c00'7c00'7c00'7c00,
                                               0xfc00'fc00'fc00'fc00,
                                               0x7fff'ffff'ffff'ffff,
                                               ~std::uint64_t{0},
                                               0x7ff0'0000'0000'0000,
                                               0xfff0'0000'0000'0000,
                                               0x0001'0001'0001'0001,
                                               0x7e7e'7e7e'7e7e'7e7e};
  const std::size_t size = reduce::element_size(type);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t value = random();
    // A float's sign and exponent are its top bits.
    if (random() % 3 == 0) value = kSpecial[random() % std::size(kSpecial)] >> (64 - 8 * size);
    std::memcpy(at + i * size, &value, size);
  }
}

struct Case {
  Reduction call;
  std::size_t count;
  std::uint32_t rank;     // own
  std::size_t shift_in;   // bytes by which the own input is not aligned
  std::size_t shift_out;  // the same of the output
  bool in_place;
  bool special;
};

// What a launch makes of the contributions; the others' are in slots, as they have staged them.
template <class Combiner>
void combine_as_a_launch(Combiner& combiner, const Case& test, const std::vector<unsigned char*>& slots,
                         Buffer& input, Buffer& output) {
  HostEnv env;
  SoloGroup group;
  const std::uint64_t bytes = test.count * reduce::element_size(test.call.type);
  protocol::Piece piece{input.data(), output.data(), bytes, 0, false};
  combiner.stage(env, group, slots[test.rank], input.data(), bytes);
  if (combiner.reads_slot(piece)) piece.input = slots[test.rank];
  combiner.combine(group, piece, 0, bytes, [&](std::uint32_t rank) {
    return rank == test.rank ? static_cast<const unsigned char*>(piece.input) : slots[rank];
  });
}

bool agrees(const Case& test, std::mt19937_64& random) {
  const reduce::Kernels& kernels = *reduce::find_kernels("scalar");
  const auto type = static_cast<std::size_t>(test.call.type);
  const std::size_t bytes = test.count * reduce::element_size(test.call.type);
  std::vector<Buffer> memory;
  std::vector<unsigned char*> slots;
  std::vector<std::vector<unsigned char>> staged;
  std::vector<const void*> inputs;
  Buffer own(bytes, test.shift_in);
  fill(own.data(), test.call.type, test.count, random);
  memory.reserve(test.call.ranks);
  for (std::uint32_t rank = 0; rank < test.call.ranks; ++rank) {
    memory.emplace_back(bytes + 16, 0);
    slots.push_back(memory.back().data());
    if (rank != test.rank) fill(slots[rank], test.call.type, test.count, random);
    const unsigned char* const from = rank == test.rank ? own.data() : slots[rank];
    staged.emplace_back(from, from + bytes);
    if (test.call.scaled && rank == test.rank)
      kernels.scale[type](staged.back().data(), from, test.count, test.call.scalar.data());
  }
  for (const auto& one : staged) inputs.push_back(one.data());
  std::vector<unsigned char> expected(bytes);
  kernels.reduce[type][static_cast<std::size_t>(test.call.op)](expected.data(), inputs.data(),
                                                               test.call.ranks, test.count);
  Buffer apart(bytes, test.shift_out);
  Buffer& output = test.in_place ? own : apart;
  std::vector<const unsigned char*> sources(test.call.ranks);
  test::with_combiner(test.call, sources.data(), test.special,
                      [&](auto& combiner) { combine_as_a_launch(combiner, test, slots, own, output); });
  return std::memcmp(output.data(), expected.data(), bytes) == 0 && own.is_whole() && apart.is_whole() &&
         std::memcmp(slots[test.rank], staged[test.rank].data(), bytes) == 0;
}

Case make_case(DataType type, int op, std::uint32_t ranks, std::mt19937_64& random) {
  static constexpr std::size_t kCounts[] = {1, 2, 3, 7, 16, 31, 64, 100, 129};
  Case test{};
  test.call = {type, op == 5 ? Operator::kSum : static_cast<Operator>(op), op == 5, {}, ranks};
  fill(test.call.scalar.data(), type, 1, random);
  test.count = kCounts[random() % std::size(kCounts)];
  test.rank = static_cast<std::uint32_t>(random() % ranks);
  test.shift_in = random() % 2 == 0 ? 0 : random() % 17;
  test.shift_out = random() % 2 == 0 ? 0 : random() % 17;
  test.in_place = random() % 4 == 0;
  test.special = random() % 4 != 0;
  return test;
}

}  // namespace

TEST_CASE("device kernels have the host's bits") {
  const reduce::ScopedFpEnvironment environment;
  std::mt19937_64 random(20);
  for (std::uint32_t type = 0; type < reduce::kNumDataTypes; ++type) {
    for (int op = 0; op <= 5; ++op) {
      for (const std::uint32_t ranks : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 13u, 16u, 31u, 64u, 127u}) {
        for (int i = 0; i < (ranks <= 8 ? 24 : 4); ++i) {
          const Case test = make_case(static_cast<DataType>(type), op, ranks, random);
          INFO("type " << type << " op " << op << " ranks " << ranks << " count " << test.count << " rank "
                       << test.rank << " in " << test.shift_in << " out " << test.shift_out << " in place "
                       << test.in_place << " special " << test.special);
          REQUIRE(agrees(test, random));
        }
      }
    }
  }
}

TEST_CASE("narrow types: every pair of values has the host's bits") {
  const reduce::ScopedFpEnvironment environment;
  const reduce::Kernels& kernels = *reduce::find_kernels("scalar");
  constexpr std::size_t kPairs = 65536;
  Buffer left(kPairs, 0), right(kPairs, 0), output(kPairs, 0);
  for (std::size_t i = 0; i < kPairs; ++i) {
    left.data()[i] = static_cast<unsigned char>(i);
    right.data()[i] = static_cast<unsigned char>(i >> 8);
  }
  for (const DataType type :
       {DataType::kInt8, DataType::kUint8, DataType::kFloat8e4m3, DataType::kFloat8e5m2}) {
    for (int op = 0; op < 5; ++op) {
      const void* inputs[] = {left.data(), right.data()};
      std::vector<unsigned char> expected(kPairs);
      kernels.reduce[static_cast<std::size_t>(type)][op](expected.data(), inputs, 2, kPairs);
      const Case test{{type, static_cast<Operator>(op), false, {}, 2}, kPairs, 0, 0, 0, false, false};
      const unsigned char* sources[2];
      Buffer slot(kPairs, 0);
      test::with_combiner(test.call, sources, false, [&](auto& combiner) {
        combine_as_a_launch(combiner, test, {slot.data(), right.data()}, left, output);
      });
      CHECK(std::memcmp(output.data(), expected.data(), kPairs) == 0);
    }
  }
}
