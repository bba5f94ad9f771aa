// SPDX-License-Identifier: Apache-2.0
//
// Every target, type and operator against the oracle, in all the memory a caller may hand in.

#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/unit/reduce_cases.h"

namespace rocenante::reduce {
namespace {

using cases::Bytes;
using cases::GuardedOutput;
using cases::Inputs;

constexpr std::size_t kMostElements = 1000;
constexpr std::size_t kCounts[] = {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 100, kMostElements};
constexpr std::size_t kRanks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 64};

std::string name_of(const Kernels& kernels, DataType type) {
  return std::string(kernels.target) + "/" + oracle::type_name(type);
}

std::string name_of(const Kernels& kernels, DataType type, Operator op) {
  return name_of(kernels, type) + "/" + oracle::operator_name(op);
}

// Runs one reduction into guarded memory; says what is wrong, or nothing.
std::string check_reduce(const Kernels& kernels, DataType type, Operator op, const Inputs& inputs,
                         std::size_t count, const Bytes& expected, std::size_t misalign = 0) {
  GuardedOutput out(count * element_size(type), misalign);
  const auto n = static_cast<std::uint32_t>(inputs.pointers().size());
  cases::reduce_of(kernels, type, op)(out.data(), inputs.pointers().data(), n, count);
  if (!out.guards_intact()) return "bytes around the output were written";
  return cases::difference(type, expected.data(), out.data(), count);
}

bool processor_has(const std::string& target) {
#if defined(__x86_64__)
  if (target == "avx512") {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  }
  if (target == "avx2") return __builtin_cpu_supports("avx2");
  if (target == "sse4") return __builtin_cpu_supports("sse4.2");
#elif defined(__aarch64__)
  if (target == "neon") return true;
#endif
  return target == "scalar";
}

}  // namespace

TEST_CASE("every built target that this processor has is found, and every other says no", "[reduce]") {
  std::string best;
  std::string last;
  for (const char* const* name = built_targets(); *name != nullptr; ++name) {
    INFO("target " << *name);
    last = *name;
    CHECK(target_supported(*name) == processor_has(*name));
    const Kernels* kernels = find_kernels(*name);
    if (!target_supported(*name)) {
      WARN("target " << *name << " is built but not tested: this processor lacks it");
      CHECK(kernels == nullptr);
      continue;
    }
    if (best.empty()) best = *name;
    REQUIRE(kernels != nullptr);
    CHECK(std::string(kernels->target) == *name);
    for (const DataType type : cases::all_types()) {
      CHECK(cases::scale_of(*kernels, type) != nullptr);
      for (const Operator op : cases::all_operators())
        CHECK(cases::reduce_of(*kernels, type, op) != nullptr);
    }
  }
  CHECK(last == "scalar");
  REQUIRE(find_kernels("auto") != nullptr);
  CHECK(find_kernels("auto")->target == best);
  CHECK(find_kernels("mmx") == nullptr);
  CHECK(find_kernels("") == nullptr);
  CHECK_FALSE(target_supported("mmx"));
}

TEST_CASE("every target gives the oracle's bits for every type, operator, rank count and length",
          "[reduce]") {
  std::mt19937_64 random(cases::seed());
  INFO("seed " << cases::seed());
  for (const DataType type : cases::all_types()) {
    for (const std::size_t n : kRanks) {
      const Inputs inputs(cases::random_ranks(type, n, kMostElements, random), 0);
      for (const Operator op : cases::all_operators()) {
        const Bytes expected = oracle::reduce(type, op, inputs.pointers(), kMostElements);
        for (const Kernels* kernels : cases::runnable_kernels()) {
          INFO(name_of(*kernels, type, op) << " n " << n);
          for (const std::size_t count : kCounts) {
            INFO("count " << count);
            REQUIRE(check_reduce(*kernels, type, op, inputs, count, expected) == "");
          }
        }
      }
    }
  }
}

TEST_CASE("the largest number of ranks gives the oracle's bits", "[reduce]") {
  std::mt19937_64 random(cases::seed());
  INFO("seed " << cases::seed());
  constexpr std::size_t kCount = 70;
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kInt8}) {
    for (const std::size_t n : {std::size_t{kMaxInputs} - 1, std::size_t{kMaxInputs}}) {
      const Inputs inputs(cases::random_ranks(type, n, kCount, random), 0);
      for (const Operator op : {Operator::kSum, Operator::kAvg}) {
        const Bytes expected = oracle::reduce(type, op, inputs.pointers(), kCount);
        for (const Kernels* kernels : cases::runnable_kernels()) {
          INFO(name_of(*kernels, type, op) << " n " << n);
          REQUIRE(check_reduce(*kernels, type, op, inputs, kCount, expected) == "");
        }
      }
    }
  }
}

TEST_CASE("a scaled element is multiplied in the accumulator and rounded once", "[reduce]") {
  std::mt19937_64 random(cases::seed());
  INFO("seed " << cases::seed());
  for (const DataType type : cases::all_types()) {
    const std::size_t size = element_size(type);
    const Bytes in = cases::elements(type, kMostElements, random);
    const Bytes scalars = cases::elements(type, 42, random);
    for (std::size_t s = 0; s < 42; ++s) {
      // Starting at s makes the scalar and all but a few inputs unaligned, too.
      const void* scalar = scalars.data() + s * size;
      const Bytes expected = oracle::scale(type, in.data(), kMostElements, scalar);
      for (const Kernels* kernels : cases::runnable_kernels()) {
        INFO(name_of(*kernels, type) << " scalar 0x" << std::hex << oracle::get_bits(type, scalar, 0));
        for (const std::size_t count : kCounts) {
          if (count == kMostElements && s > 6) continue;
          GuardedOutput out(count * size, s % 9);
          cases::scale_of(*kernels, type)(out.data(), in.data(), count, scalar);
          REQUIRE(out.guards_intact());
          REQUIRE(cases::difference(type, expected.data(), out.data(), count) == "");
        }
        Bytes in_place = in;
        cases::scale_of(*kernels, type)(in_place.data(), in_place.data(), kMostElements, scalar);
        REQUIRE(cases::difference(type, expected.data(), in_place.data(), kMostElements) == "");
      }
    }
  }
}

TEST_CASE("every target copies all of the bytes and no others, whatever the alignment", "[reduce]") {
  std::mt19937_64 random(cases::seed());
  INFO("seed " << cases::seed());
  const Bytes from = cases::elements(DataType::kUint8, 9000, random);
  for (const Kernels* kernels : cases::runnable_kernels()) {
    REQUIRE(kernels->copy != nullptr);
    for (const std::size_t bytes : {0, 1, 63, 2047, 2048, 2049, 2303, 2304, 2305, 4096, 8191, 8800}) {
      for (const std::size_t shift : {0, 1, 8, 63, 64, 100, 128, 193}) {
        INFO(kernels->target << " bytes " << bytes << " shift " << shift);
        // From an offset of its own to one of the output's.
        GuardedOutput out(bytes, shift);
        kernels->copy(out.data(), from.data() + 193 - shift, bytes);
        REQUIRE(out.guards_intact());
        REQUIRE(cases::difference(DataType::kUint8, from.data() + 193 - shift, out.data(), bytes) == "");
      }
    }
  }
}

TEST_CASE("alignment changes nothing, not even that of the element", "[reduce]") {
  std::mt19937_64 random(cases::seed());
  INFO("seed " << cases::seed());
  constexpr std::size_t kCount = 203;
  for (const DataType type : cases::all_types()) {
    for (const std::size_t n : {2u, 3u, 5u}) {
      const std::vector<Bytes> ranks = cases::random_ranks(type, n, kCount, random);
      for (std::size_t shift = 1; shift <= element_size(type) + 1; ++shift) {
        const Inputs inputs(ranks, shift);
        for (const Operator op : cases::all_operators()) {
          const Bytes expected = oracle::reduce(type, op, inputs.pointers(), kCount);
          for (const Kernels* kernels : cases::runnable_kernels()) {
            INFO(name_of(*kernels, type, op) << " n " << n << " shift " << shift);
            // The output's offset differs from the inputs'.
            REQUIRE(check_reduce(*kernels, type, op, inputs, kCount, expected, 2 * shift + 1) == "");
            REQUIRE(check_reduce(*kernels, type, op, inputs, 5, expected, shift) == "");
          }
        }
      }
    }
  }
}

TEST_CASE("the output may be any of the inputs", "[reduce]") {
  std::mt19937_64 random(cases::seed());
  INFO("seed " << cases::seed());
  for (const DataType type : cases::all_types()) {
    for (const std::size_t n : {1u, 2u, 3u, 4u, 5u, 8u}) {
      for (const std::size_t count : {3u, 37u, 301u}) {
        const std::vector<Bytes> ranks = cases::random_ranks(type, n, count, random);
        for (const Operator op : cases::all_operators()) {
          const Bytes expected = oracle::reduce(type, op, Inputs(ranks, 0).pointers(), count);
          for (const Kernels* kernels : cases::runnable_kernels()) {
            for (std::size_t r = 0; r < n; ++r) {
              INFO(name_of(*kernels, type, op) << " n " << n << " count " << count << " into " << r);
              Inputs inputs(ranks, 0);
              cases::reduce_of(*kernels, type, op)(inputs.data(r), inputs.pointers().data(),
                                                   static_cast<std::uint32_t>(n), count);
              REQUIRE(cases::difference(type, expected.data(), inputs.data(r), count) == "");
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a buffer may be split anywhere", "[reduce]") {
  std::mt19937_64 random(cases::seed());
  INFO("seed " << cases::seed());
  constexpr std::size_t kCount = 150;
  for (const DataType type : cases::all_types()) {
    const std::size_t size = element_size(type);
    const Inputs inputs(cases::random_ranks(type, 3, kCount, random), 0);
    for (const Operator op : cases::all_operators()) {
      const Bytes expected = oracle::reduce(type, op, inputs.pointers(), kCount);
      for (const Kernels* kernels : cases::runnable_kernels()) {
        const ReduceFn reduce = cases::reduce_of(*kernels, type, op);
        for (std::size_t split = 0; split <= kCount; ++split) {
          INFO(name_of(*kernels, type, op) << " split " << split);
          GuardedOutput out(kCount * size, 0);
          reduce(out.data(), inputs.pointers().data(), 3, split);
          std::vector<const void*> rest;
          for (const void* p : inputs.pointers()) {
            rest.push_back(static_cast<const std::uint8_t*>(p) + split * size);
          }
          reduce(out.data() + split * size, rest.data(), 3, kCount - split);
          REQUIRE(out.guards_intact());
          REQUIRE(cases::difference(type, expected.data(), out.data(), kCount) == "");
        }
      }
    }
  }
}

}  // namespace rocenante::reduce
