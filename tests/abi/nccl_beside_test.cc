// SPDX-License-Identifier: Apache-2.0
//
// libnccl.so.2 with a real library behind it, which is the recording one: what arrives there, and how calls
// of ours and of its live together. Run with ROCENANTE_FALLBACK=require, ROCENANTE_DEVICE=host and
// ROCENANTE_NCCL_PATH naming the recorder; ranks are threads.
#include <atomic>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "nccl_shim/libnccl/abi.h"
#include "tests/abi/nccl_world.h"
#include "tests/support/catch.h"

using namespace rocenante::test;  // NOLINT(google-build-using-namespace)
using rocenante::nccl::kConfigMagic;

namespace {

struct Described {
  const char* name;
  const char* returns;
  const char* arguments;
};
constexpr Described kDescribed[] = {
#define RCN_RECORDED(name, returns, arguments) {#name, returns, arguments},
#include "recorded.inc"
#undef RCN_RECORDED
};

// A call of any function: its arguments as the calling convention places them.
struct Placed {
  std::vector<std::uint64_t> registers;
  std::vector<std::uint64_t> stack;

  void add(std::uint64_t word) { (registers.size() < 6 ? registers : stack).push_back(word); }
};

alignas(64) unsigned char scratch[8192];

Placed place(std::string_view arguments) {
  Placed placed;
  std::uint64_t number = 0;
  for (const char kind : arguments) {
    ++number;
    switch (kind) {
      case 'P':
        placed.add(reinterpret_cast<std::uint64_t>(scratch) + 256 * number);
        break;
      case 'Z':
        placed.add(0x7'0000'0000 + number);
        break;
      case 'I':
        placed.add(number);
        break;
      case 'T':
        placed.add(0x2'0000'0001);
        placed.add(number);
        break;
      case 'U':  // by value, in memory
        for (std::uint64_t i = 0; i < 16; ++i) placed.stack.push_back(0x1234'5678'0000'0000 + i);
        break;
      default:
        FAIL("an argument of no kind");
    }
  }
  return placed;
}

struct Answer {
  std::uint64_t first;
  std::uint64_t second;
};

Answer call(void* function, const Placed& placed) {
  std::uint64_t r[6] = {};
  std::uint64_t s[18] = {};
  std::copy(placed.registers.begin(), placed.registers.end(), r);
  std::copy(placed.stack.begin(), placed.stack.end(), s);
  using W = std::uint64_t;
  auto* const f =
      reinterpret_cast<Answer (*)(W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W)>(
          function);
  return f(r[0], r[1], r[2], r[3], r[4], r[5], s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8], s[9],
           s[10], s[11], s[12], s[13], s[14], s[15], s[16], s[17]);
}

std::string fault_of(const Described& described, std::uint32_t index, const std::string& name) {
  // The library's own: the recorder has the same names.
  void* const function = ::dlsym(RTLD_DEFAULT, name.c_str());
  if (function == nullptr) return "missing";
  std::memset(scratch, 0, sizeof scratch);
  const Placed placed = place(described.arguments);
  recorder().clear();
  const Answer answer = call(function, placed);
  RecordedCall recorded{};
  if (!recorder().last(index, &recorded)) return "did not arrive";
  for (std::size_t i = 0; i < placed.registers.size(); ++i) {
    if (recorded.words[i] != placed.registers[i]) return "register " + std::to_string(i);
  }
  for (std::size_t i = 0; i < placed.stack.size(); ++i) {
    if (recorded.stack[i] != placed.stack[i]) return "stack word " + std::to_string(i);
  }
  Answer expected{};
  recorder().answer(index, &expected.first, &expected.second);
  const std::string_view returns = described.returns;
  if (returns == "value" && (answer.first != expected.first || answer.second != expected.second))
    return "value";
  const bool performed =
      index == kGetVersion || index == kGetUniqueId || index == kGroupStart || index == kGroupEnd;
  if (returns == "result" && !performed &&
      static_cast<std::uint32_t>(answer.first) != static_cast<std::uint32_t>(expected.first)) {
    return "result " + std::to_string(static_cast<std::uint32_t>(answer.first)) + ": " +
           ncclGetLastError(nullptr);
  }
  return "";
}

}  // namespace

TEST_CASE("every exported function arrives with its arguments unchanged, and its result comes back") {
  for (std::uint32_t index = 0; index < kRows; ++index) {
    const Described& described = kDescribed[index];
    for (const char* const prefix : {"nccl", "pnccl"}) {
      if (*prefix == 'p' && index == kResetDebugInitInternal) continue;  // has one name only
      const std::string name = std::string(prefix) + described.name;
      if (index == kGroupEnd || index == kGroupSimulateEnd) CHECK(ncclGroupStart() == rcnSuccess);
      INFO(name);
      CHECK(fault_of(described, index, name) == "");
      if (index == kGroupStart) CHECK(ncclGroupEnd() == rcnSuccess);
    }
  }
}

TEST_CASE("configurations of every known size arrive as they are") {
  for (const std::size_t size : {24U, 40U, 48U, 56U, 72U, 80U, 88U, 96U, 120U, 200U}) {
    std::vector<unsigned char> bytes(size, 0xee);
    std::memcpy(bytes.data(), &size, sizeof size);
    std::memcpy(bytes.data() + 8, &kConfigMagic, sizeof kConfigMagic);
    const int blocking = 1;
    std::memcpy(bytes.data() + 16, &blocking, sizeof blocking);
    const std::vector<unsigned char> before = bytes;
    rcnUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
    void* comm = nullptr;
    REQUIRE(ncclCommInitRankConfig(&comm, 1, id, 0, bytes.data()) == rcnSuccess);
    RecordedCall recorded{};
    REQUIRE(recorder().last(kCommInitRankConfig, &recorded));
    CHECK(recorded.words[3] == reinterpret_cast<std::uint64_t>(bytes.data()));
    CHECK(std::memcmp(recorded.stack, &id, sizeof id) == 0);
    CHECK(bytes == before);
    CHECK(ncclCommDestroy(comm) == rcnSuccess);
  }
}

TEST_CASE("version and texts are the real library's") {
  int version = 0;
  CHECK(ncclGetVersion(&version) == rcnSuccess);
  CHECK(version == 22809);
  CHECK(std::string(ncclGetErrorString(rcnSystemError)) == "recorded error string");
}

TEST_CASE("small calls are ours, large ones the real library's, and both are right") {
  for (const int ranks : {1, 2, 3}) {
    recorder().clear();
    std::string text = run(ranks, [](Rank& self) {
      for (int round = 0; round < 5; ++round) {
        if (std::string text = reduce(self, kSmall); !text.empty()) return text;
      }
      return std::string();
    });
    CHECK(text == "");
    CHECK(recorder().count(kAllReduce) == 0);
    text = run(ranks, [](Rank& self) { return reduce(self, kLarge); });
    CHECK(text == "");
    CHECK(recorder().count(kAllReduce) == static_cast<unsigned>(ranks));
    text = run(ranks, [](Rank& self) {
      for (const std::size_t count : {kSmall, kLarge, kSmall, kLarge}) {
        if (std::string text = reduce(self, count); !text.empty()) return text;
      }
      return std::string();
    });
    CHECK(text == "");
    CHECK(recorder().count(kAllReduce) == 3U * static_cast<unsigned>(ranks));
  }
}

TEST_CASE("calls of both kinds in one group keep their order") {
  recorder().clear();
  const std::string text = run(2, [](Rank& self) -> std::string {
    // Each reads what the one before wrote, and they change hands three times: sum, square, double, square.
    std::vector<float> buffer = values(self.rank, kLarge);
    float* const data = buffer.data();
    RCN_CALL(ncclGroupStart());
    RCN_CALL(ncclAllReduce(data, data, kLarge, rcnFloat32, rcnSum, self.comm, nullptr));
    RCN_CALL(ncclAllReduce(data, data, kSmall, rcnFloat32, rcnProd, self.comm, nullptr));
    RCN_CALL(ncclAllReduce(data, data, kLarge, rcnFloat32, rcnSum, self.comm, nullptr));
    RCN_CALL(ncclAllReduce(data, data, kSmall, rcnFloat32, rcnProd, self.comm, nullptr));
    RCN_CALL(ncclGroupEnd());
    for (std::size_t i = 0; i < kSmall; ++i) {
      const float sum = 3 * static_cast<float>(i % 100 + 1);
      const float doubled = 2 * sum * sum;
      if (buffer[i] != doubled * doubled) return "head: element " + std::to_string(i);
    }
    const std::vector<float> rest(buffer.begin() + 100 * (kSmall / 100), buffer.end());
    return wrong(rest, 2, 2);
  });
  CHECK(text == "");
  CHECK(recorder().count(kAllReduce) == 4);
}

TEST_CASE("one thread drives several communicators in a group") {
  recorder().clear();
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  void* comms[3] = {};
  REQUIRE(ncclGroupStart() == rcnSuccess);
  for (int rank = 0; rank < 3; ++rank) REQUIRE(ncclCommInitRank(&comms[rank], 3, id, rank) == rcnSuccess);
  REQUIRE(ncclGroupEnd() == rcnSuccess);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::vector<float>> small;
    std::vector<std::vector<float>> large;
    for (int rank = 0; rank < 3; ++rank) {
      small.push_back(values(rank, kSmall));
      large.push_back(values(rank, kLarge));
    }
    REQUIRE(ncclGroupStart() == rcnSuccess);
    for (int rank = 0; rank < 3; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      REQUIRE(ncclAllReduce(small[at].data(), small[at].data(), kSmall, rcnFloat32, rcnSum, comms[at],
                            nullptr) == rcnSuccess);
      REQUIRE(ncclAllReduce(large[at].data(), large[at].data(), kLarge, rcnFloat32, rcnSum, comms[at],
                            nullptr) == rcnSuccess);
    }
    CHECK(check(ncclGroupEnd(), "ncclGroupEnd") == "");
    for (std::size_t rank = 0; rank < 3; ++rank) {
      CHECK(wrong(small[rank], 3) == "");
      CHECK(wrong(large[rank], 3) == "");
    }
  }
  CHECK(recorder().count(kAllReduce) == 9);
  for (void* comm : comms) CHECK(ncclCommDestroy(comm) == rcnSuccess);
}

TEST_CASE("a rank that votes no moves every rank to the real library") {
  recorder().clear();
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  void* comms[3] = {};
  for (int rank = 0; rank < 3; ++rank) {
    // Its side would have to work on a GPU's memory.
    if (rank == 1) ::setenv("ROCENANTE_DEVICE", "cuda", 1);
    REQUIRE(ncclCommInitRank(&comms[rank], 3, id, rank) == rcnSuccess);
    ::setenv("ROCENANTE_DEVICE", "host", 1);
  }
  std::vector<std::string> texts(3);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Rank self{rank, 3, comms[rank]};
      std::string& text = texts[static_cast<std::size_t>(rank)];
      for (int round = 0; round < 3 && text.empty(); ++round) text = reduce(self, kSmall);
    });
  }
  threads.clear();
  for (const std::string& each : texts) CHECK(each == "");
  CHECK(recorder().count(kAllReduce) == 9);
  for (void* comm : comms) CHECK(ncclCommDestroy(comm) == rcnSuccess);
}

TEST_CASE("ranks that are blocking and one that is not have a side of ours together") {
  recorder().clear();
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  std::vector<std::string> texts(3);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      texts[static_cast<std::size_t>(rank)] = [&]() -> std::string {
        rocenante::nccl::ConfigHead config{sizeof config, kConfigMagic, 22800, rank == 1 ? 0 : 1};
        Rank self{rank, 3, nullptr};
        RCN_DONE(ncclCommInitRankConfig(&self.comm, 3, id, rank, &config), self.comm);
        for (int round = 0; round < 3; ++round) {
          if (std::string wrong_sum = reduce(self, kSmall); !wrong_sum.empty()) return wrong_sum;
        }
        RCN_CALL(ncclCommDestroy(self.comm));
        return "";
      }();
    });
  }
  threads.clear();
  for (const std::string& each : texts) CHECK(each == "");
  CHECK(recorder().count(kAllReduce) == 0);
}

TEST_CASE("an id whose tail is taken has no side of ours") {
  recorder().clear();
  recorder().fill_ids(true);
  const std::string text = run(2, [](Rank& self) { return reduce(self, kSmall); });
  recorder().fill_ids(false);
  CHECK(text == "");
  CHECK(recorder().count(kAllReduce) == 2);
}

TEST_CASE("what the real library calls back goes straight to it") {
  recorder().clear();
  const std::string text = run(2, [](Rank& self) -> std::string {
    std::vector<float> buffer(kLarge, static_cast<float>(self.rank));
    RCN_CALL(ncclBcast(buffer.data(), kLarge, rcnFloat32, 1, self.comm, nullptr));
    return buffer.front() == 1 && buffer.back() == 1 ? "" : "wrong";
  });
  CHECK(text == "");
  CHECK(recorder().count(kBcast) == 2);
  CHECK(recorder().count(kBroadcast) == 2);
}

TEST_CASE("an abort in a group from another thread ends a call of ours") {
  std::atomic<void*> stuck{nullptr};
  std::atomic<bool> ended{false};
  recorder().clear();
  const std::string text = run(2, [&](Rank& self) -> std::string {
    if (std::string wrong_sum = reduce(self, kSmall); !wrong_sum.empty()) return wrong_sum;
    if (self.rank == 0) {
      stuck = self.comm;
      float value = 1;
      rcnResult_t result = rcnSuccess;
      do {
        // Again where it came upon the question below.
        result = ncclAllReduce(&value, &value, 1, rcnFloat32, rcnSum, self.comm, nullptr);
      } while (result == rcnInvalidUsage);
      ended = true;
      self.comm = nullptr;
      return result == rcnSuccess ? "an aborted call succeeded" : "";
    }
    while (stuck == nullptr) std::this_thread::yield();
    // It is in the call when one that is wrong is refused for that reason: a call that began after the
    // abort would be one on a communicator that is gone.
    float value = 1;
    while (ncclAllReduce(&value, nullptr, 1, rcnFloat32, rcnSum, stuck, nullptr) == rcnInvalidArgument) {
      std::this_thread::yield();
    }
    RCN_CALL(ncclGroupStart());
    RCN_CALL(ncclCommAbort(stuck));
    RCN_CALL(ncclCommAbort(self.comm));
    RCN_CALL(ncclGroupEnd());
    self.comm = nullptr;
    return "";
  });
  CHECK(text == "");
  CHECK(ended);
  CHECK(recorder().count(kCommAbort) == 2);
}

TEST_CASE("a missing communicator is the real library's to judge") {
  recorder().clear();
  float value = 1;
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  recorder().answer(kAllReduceConfig, &first, &second);
  alignas(8) std::uint64_t foreign[8] = {};
  const rcnResult_t result =
      ncclAllReduceConfig(&value, &value, 1, rcnFloat32, rcnSum, foreign, nullptr, scratch);
  CHECK(result == static_cast<rcnResult_t>(first));
}

TEST_CASE("memory is the real library's unless ours is asked for") {
  constexpr std::size_t kBytes = 5000;
  void* theirs = scratch;
  recorder().clear();
  (void)ncclMemAlloc(&theirs, kBytes);  // it gives nothing
  CHECK(recorder().count(kMemAlloc) == 1);
  ::setenv("ROCENANTE_MEM_ALLOC", "host", 1);
  void* ours = nullptr;
  REQUIRE(ncclMemAlloc(&ours, kBytes) == rcnSuccess);
  ::unsetenv("ROCENANTE_MEM_ALLOC");
  CHECK(recorder().count(kMemAlloc) == 1);
  std::memset(ours, 1, kBytes);
  CHECK(ncclMemFree(ours) == rcnSuccess);
  CHECK(recorder().count(kMemFree) == 0);
  (void)ncclMemFree(theirs);
  CHECK(recorder().count(kMemFree) == 1);
}
