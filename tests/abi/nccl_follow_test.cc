// SPDX-License-Identifier: Apache-2.0
//
// libnccl.so.2 beside a real library, which is the recording one: our sides of non-blocking communicators,
// and of those that are made out of others. As nccl_beside_test, with
// ROCENANTE_ALL_REDUCE_MAX_BYTES=16K.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/abi/nccl_world.h"
#include "tests/support/catch.h"

using namespace rocenante::test;  // NOLINT(google-build-using-namespace)
using rocenante::nccl::ConfigHead;
using rocenante::nccl::kConfigMagic;

namespace {

constexpr int kAbortShrink = 1;
// Above ROCENANTE_ALL_REDUCE_MAX_BYTES, which is 16K here.
constexpr std::size_t kAbove = 5000;

// A small and a large all-reduce: one of ours and one of the recorder's.
std::string reduce_both(void* comm, int rank, int ranks) {
  Rank self{rank, ranks, comm};
  if (std::string wrong_sum = reduce(self, kSmall); !wrong_sum.empty()) return "small: " + wrong_sum;
  if (std::string wrong_sum = reduce(self, kAbove); !wrong_sum.empty()) return "large: " + wrong_sum;
  return "";
}
#define RCN_BOTH(...)                                                               \
  do {                                                                              \
    if (std::string text_ = reduce_both(__VA_ARGS__); !text_.empty()) return text_; \
  } while (false)

// That only the large ones of `calls` pairs arrived.
bool only_large(unsigned calls) {
  return recorder().count(kAllReduce) == calls;
}

}  // namespace

TEST_CASE("non-blocking communicators have a side of ours once their client has asked") {
  recorder().clear();
  const std::string text = run(
      3,
      [](Rank& self) -> std::string {
        RCN_BOTH(self.comm, self.rank, 3);
        return "";
      },
      false);
  CHECK(text == "");
  CHECK(only_large(3));
}

TEST_CASE("a question never waits, and a call before the last one is refused") {
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  ConfigHead config{sizeof config, kConfigMagic, 22800, 0};
  void* comm = nullptr;
  REQUIRE(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == rcnInProgress);
  // The other rank's side does not come; the real one's has.
  float value = 1;
  rcnResult_t state = rcnSuccess;
  for (int i = 0; i < 100; ++i) {
    REQUIRE(ncclCommGetAsyncError(comm, &state) == rcnSuccess);
    REQUIRE(state == rcnInProgress);
    REQUIRE(ncclAllReduce(&value, &value, 1, rcnFloat32, rcnSum, comm, nullptr) == rcnInvalidUsage);
  }
  CHECK(std::string(ncclGetLastError(nullptr)).find("still busy with the call before") !=
        std::string::npos);
  recorder().clear();
  CHECK(ncclCommAbort(comm) == rcnSuccess);
  CHECK(recorder().count(kCommAbort) == 1);
}

TEST_CASE("one thread's non-blocking ranks of a group have a side of ours") {
  recorder().clear();
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  ConfigHead config{sizeof config, kConfigMagic, 22800, 0};
  void* comms[2] = {};
  REQUIRE(ncclGroupStart() == rcnSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    const rcnResult_t made = ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config);
    CHECK((made == rcnSuccess || made == rcnInProgress));
  }
  CHECK(ncclGroupEnd() == rcnInProgress);
  rcnResult_t states[2] = {rcnInProgress, rcnInProgress};
  while (states[0] == rcnInProgress || states[1] == rcnInProgress) {
    for (int rank = 0; rank < 2; ++rank)
      REQUIRE(ncclCommGetAsyncError(comms[rank], &states[rank]) == rcnSuccess);
  }
  CHECK(reduce_in_group(comms) == "");
  CHECK(recorder().count(kAllReduce) == 0);
  for (void* comm : comms) CHECK(ncclCommDestroy(comm) == rcnSuccess);
}

TEST_CASE("splits are followed, with ranks that have no colour, blocking or not") {
  for (const bool blocking : {true, false}) {
    recorder().clear();
    const std::string text = run(
        4,
        [](Rank& self) -> std::string {
          void* part = nullptr;
          // Ranks 3, 2 and 0, in this order.
          const int color = self.rank == 1 ? -1 : 7;
          RCN_DONE(ncclCommSplit(self.comm, color, -self.rank, &part, nullptr), self.comm);
          if (self.rank == 1) {
            if (part != nullptr) return "a rank without a colour has a communicator";
          } else {
            RCN_BOTH(part, self.rank == 3 ? 0 : self.rank == 2 ? 1 : 2, 3);
            RCN_CALL(ncclCommDestroy(part));
          }
          RCN_BOTH(self.comm, self.rank, 4);
          return "";
        },
        blocking);
    CHECK(text == "");
    CHECK(only_large(7));
  }
}

TEST_CASE("splits of a group are followed, on threads with one rank and with several") {
  recorder().clear();
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  // One thread holds ranks 0 and 1 and splits in a group, another rank 2 and splits outside.
  const auto body = [&](std::vector<int> mine) -> std::string {
    std::vector<void*> comms(mine.size());
    std::vector<void*> parts(mine.size());
    RCN_CALL(ncclGroupStart());
    for (std::size_t i = 0; i < mine.size(); ++i) RCN_CALL(ncclCommInitRank(&comms[i], 3, id, mine[i]));
    RCN_CALL(ncclGroupEnd());
    const bool in_group = mine.size() > 1;
    if (in_group) RCN_CALL(ncclGroupStart());
    for (std::size_t i = 0; i < mine.size(); ++i)
      RCN_CALL(ncclCommSplit(comms[i], 0, -mine[i], &parts[i], nullptr));
    if (in_group) RCN_CALL(ncclGroupEnd());
    std::vector<std::vector<float>> buffers;
    for (const int rank : mine) buffers.push_back(values(2 - rank, kSmall));
    RCN_CALL(ncclGroupStart());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      float* const buffer = buffers[i].data();
      RCN_CALL(ncclAllReduce(buffer, buffer, kSmall, rcnFloat32, rcnSum, parts[i], nullptr));
    }
    RCN_CALL(ncclGroupEnd());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (std::string wrong_sum = wrong(buffers[i], 3); !wrong_sum.empty()) return wrong_sum;
      RCN_CALL(ncclCommDestroy(parts[i]));
      RCN_CALL(ncclCommDestroy(comms[i]));
    }
    return "";
  };
  std::string other;
  std::jthread thread([&] { other = body({2}); });
  CHECK(body({0, 1}) == "");
  thread.join();
  CHECK(other == "");
  CHECK(recorder().count(kAllReduce) == 0);
}

// Two splits, and two shrinks by rank 0 that are the same.
TEST_CASE("what one group makes out of one communicator is followed, blocking or not") {
  for (const bool blocking : {true, false}) {
    for (int round = 0; round < 3; ++round) {
      recorder().clear();
      const std::string text = run(
          3,
          [](Rank& self) -> std::string {
            // The sides have met before: rank 0 does not shrink.
            if (std::string wrong_sum = reduce(self, kSmall); !wrong_sum.empty()) return wrong_sum;
            int left_out[1] = {0};
            void* made[4] = {};
            RCN_CALL(ncclGroupStart());
            for (int i = 0; i < 2; ++i) {
              const int key = i == 0 ? -self.rank : self.rank;
              const rcnResult_t split =
                  ncclCommSplit(self.comm, i == 1 && self.rank == 1 ? -1 : 0, key, &made[i], nullptr);
              if (split != rcnSuccess && split != rcnInProgress) return ncclGetLastError(nullptr);
            }
            for (int i = 2; self.rank != 0 && i < 4; ++i) {
              const rcnResult_t shrunk = ncclCommShrink(self.comm, left_out, 1, &made[i], nullptr, 0);
              if (shrunk != rcnSuccess && shrunk != rcnInProgress) return ncclGetLastError(nullptr);
            }
            RCN_DONE(ncclGroupEnd(), self.comm);
            RCN_BOTH(made[0], 2 - self.rank, 3);
            if (self.rank != 1) RCN_BOTH(made[1], self.rank / 2, 2);
            for (int i = 2; self.rank != 0 && i < 4; ++i) RCN_BOTH(made[i], self.rank - 1, 2);
            RCN_BOTH(self.comm, self.rank, 3);
            for (void* each : made) {
              if (each != nullptr) RCN_CALL(ncclCommDestroy(each));
            }
            return "";
          },
          blocking);
      CHECK(text == "");
      CHECK(only_large(3 + 2 + 2 + 2 + 3));
    }
  }
}

TEST_CASE("shrinking is followed without the ranks that are left out") {
  for (const bool blocking : {true, false}) {
    for (const int flags : {0, kAbortShrink}) {
      recorder().clear();
      std::atomic<int> arrived{0};
      const std::string text = run(
          4,
          [&](Rank& self) -> std::string {
            // The sides have met before: those that are left out would not come to do so.
            if (std::string wrong_sum = reduce(self, kSmall); !wrong_sum.empty()) return wrong_sum;
            come_together(arrived, self.ranks);
            if (self.rank == 0) return "";
            int left_out[1] = {0};
            void* rest = nullptr;
            RCN_DONE(ncclCommShrink(self.comm, left_out, 1, &rest, nullptr, flags), self.comm);
            RCN_BOTH(rest, self.rank - 1, 3);
            RCN_CALL(ncclCommDestroy(rest));
            return "";
          },
          blocking);
      CHECK(text == "");
      CHECK(only_large(3));
      CHECK(recorder().count(kCommShrink) == 3);
    }
  }
}

TEST_CASE("shrinking with abort frees a call of ours first, and the parent is the real library's") {
  std::atomic<int> arrived{0};
  std::atomic<int> waiting{0};
  recorder().clear();
  const std::string text = run(3, [&](Rank& self) -> std::string {
    if (std::string wrong_sum = reduce(self, kSmall); !wrong_sum.empty()) return wrong_sum;
    come_together(arrived, self.ranks);
    if (self.rank == 0) return "";
    if (self.rank == 1) {
      float value = 1;
      ++waiting;
      if (ncclAllReduce(&value, &value, 1, rcnFloat32, rcnSum, self.comm, nullptr) == rcnSuccess)
        return "a call without rank 0 succeeded";
    }
    while (waiting == 0) std::this_thread::yield();
    int left_out[1] = {0};
    void* rest = nullptr;
    RCN_CALL(ncclCommShrink(self.comm, left_out, 1, &rest, nullptr, kAbortShrink));
    RCN_BOTH(rest, self.rank - 1, 2);
    RCN_CALL(ncclCommDestroy(rest));
    rcnResult_t state = rcnInternalError;
    RCN_CALL(ncclCommGetAsyncError(self.comm, &state));
    return check(state, "the parent's state");
  });
  CHECK(text == "");
}

TEST_CASE("a revoked communicator's calls are the real library's, and it can shrink") {
  recorder().clear();
  std::atomic<int> arrived{0};
  const std::string text = run(3, [&](Rank& self) -> std::string {
    if (std::string wrong_sum = reduce(self, kSmall); !wrong_sum.empty()) return wrong_sum;
    come_together(arrived, self.ranks);
    RCN_CALL(ncclCommRevoke(self.comm, 0));
    if (std::string wrong_sum = reduce(self, kSmall); !wrong_sum.empty()) return "revoked: " + wrong_sum;
    if (self.rank == 2) return "";
    int left_out[1] = {2};
    void* rest = nullptr;
    RCN_CALL(ncclCommShrink(self.comm, left_out, 1, &rest, nullptr, 0));
    if (std::string wrong_sum = reduce_both(rest, self.rank, 2); !wrong_sum.empty()) return wrong_sum;
    RCN_CALL(ncclCommDestroy(rest));
    return "";
  });
  CHECK(text == "");
  CHECK(recorder().count(kCommRevoke) == 3);
  CHECK(only_large(3 + 2));
}

TEST_CASE("a communicator that shrinks before its sides have met is the real library's") {
  recorder().clear();
  const std::string text = run(3, [](Rank& self) -> std::string {
    if (self.rank == 0) return "";
    int left_out[1] = {0};
    void* rest = nullptr;
    RCN_CALL(ncclCommShrink(self.comm, left_out, 1, &rest, nullptr, 0));
    Rank member{self.rank - 1, 2, rest};
    if (std::string wrong_sum = reduce(member, kSmall); !wrong_sum.empty()) return wrong_sum;
    RCN_CALL(ncclCommDestroy(rest));
    return "";
  });
  CHECK(text == "");
  CHECK(recorder().count(kAllReduce) == 2);
}

TEST_CASE("growing is followed by old ranks and new ones, if the old ones' sides had met") {
  for (const bool blocking : {true, false}) {
    for (const bool met : {true, false}) {
      recorder().clear();
      rcnUniqueId grow_id;
      std::atomic<bool> has_id{false};
      std::string joined;
      std::jthread newcomer([&] {
        joined = [&]() -> std::string {
          while (!has_id) std::this_thread::yield();
          ConfigHead config{sizeof config, kConfigMagic, 22800, blocking ? 1 : 0};
          void* comm = nullptr;
          RCN_DONE(ncclCommGrow(nullptr, 3, &grow_id, 2, &comm, &config), comm);
          RCN_BOTH(comm, 2, 3);
          RCN_CALL(ncclCommDestroy(comm));
          return "";
        }();
      });
      const std::string text = run(
          2,
          [&](Rank& self) -> std::string {
            if (met) {
              if (std::string wrong_sum = reduce(self, kSmall); !wrong_sum.empty()) return wrong_sum;
            }
            if (self.rank == 1) {
              RCN_CALL(ncclCommGetUniqueId(self.comm, &grow_id));
              has_id = true;
            }
            while (!has_id) std::this_thread::yield();
            void* grown = nullptr;
            RCN_DONE(ncclCommGrow(self.comm, 3, self.rank == 1 ? &grow_id : nullptr, -1, &grown, nullptr),
                     self.comm);
            RCN_BOTH(grown, self.rank, 3);
            RCN_CALL(ncclCommDestroy(grown));
            return "";
          },
          blocking);
      newcomer.join();
      CHECK(text == "");
      CHECK(joined == "");
      // A non-blocking communicator's sides have met when it is ready.
      CHECK(recorder().count(kAllReduce) == (met || !blocking ? 3 : 6));
    }
  }
}

TEST_CASE("what a non-blocking call has begun ends with an abort") {
  recorder().clear();
  std::atomic<int> arrived{0};
  const std::string text = run(
      2,
      [&](Rank& self) -> std::string {
        come_together(arrived, self.ranks);
        if (self.rank == 1) return "";
        void* part = nullptr;
        if (ncclCommSplit(self.comm, 0, 0, &part, nullptr) != rcnInProgress) return "not in progress";
        rcnResult_t state = rcnSuccess;
        for (int i = 0; i < 10; ++i) {
          RCN_CALL(ncclCommGetAsyncError(self.comm, &state));
          if (state != rcnInProgress) return "it is done";
        }
        RCN_CALL(ncclCommAbort(self.comm));
        self.comm = nullptr;
        return "";
      },
      false);
  CHECK(text == "");
}
