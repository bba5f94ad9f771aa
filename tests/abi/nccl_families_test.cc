// SPDX-License-Identifier: Apache-2.0
//
// libnccl.so.2 in its own world: several communicators made out of one in one group. Run with
// ROCENANTE_FALLBACK=off.
#include <array>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/abi/nccl_ranks.h"
#include "tests/support/catch.h"

using namespace rocenante::test;  // NOLINT(google-build-using-namespace)
using rocenante::nccl::ConfigHead;
using rocenante::nccl::kConfigMagic;

namespace {

// All that `self`'s group makes: two halves, all in reverse, and all but rank 0 by a shrink (not rank 0's).
struct Family {
  std::array<void*, 3> splits = {};
  std::array<void*, 2> shrinks = {};
};

std::string issue(Rank& self, Family& made) {
  int left_out[1] = {0};
  RCN_CALL(ncclCommSplit(self.comm, self.rank % 2, self.rank, &made.splits[0], nullptr));
  RCN_CALL(ncclCommSplit(self.comm, 0, -self.rank, &made.splits[1], nullptr));
  RCN_CALL(ncclCommSplit(self.comm, self.rank == 1 ? -1 : 3, 0, &made.splits[2], nullptr));
  if (self.rank == 0) return "";
  // Twice the same, which meet at the same place.
  for (void*& rest : made.shrinks) RCN_CALL(ncclCommShrink(self.comm, left_out, 1, &rest, nullptr, 0));
  return "";
}

std::string judge(Rank& self, const Family& made) {
  RCN_MEMBER(made.splits[0], self.rank / 2, self.rank % 2 == 0 ? 2 : 1);
  RCN_MEMBER(made.splits[1], 2 - self.rank, 3);
  if (self.rank == 1) {
    if (made.splits[2] != nullptr) return "a rank without a colour has a communicator";
  } else {
    RCN_MEMBER(made.splits[2], self.rank / 2, 2);
  }
  for (void* rest : made.shrinks) {
    if (self.rank != 0) RCN_MEMBER(rest, self.rank - 1, 2);
  }
  RCN_MEMBER(self.comm, self.rank, 3);
  for (void* comm : made.splits) {
    if (comm != nullptr) RCN_CALL(ncclCommDestroy(comm));
  }
  for (void* comm : made.shrinks) {
    if (comm != nullptr) RCN_CALL(ncclCommDestroy(comm));
  }
  return "";
}

}  // namespace

TEST_CASE("one group makes several communicators out of one, blocking or not") {
  for (const bool blocking : {true, false}) {
    for (int round = 0; round < 3; ++round) {
      const std::string text = run(
          3,
          [](Rank& self) -> std::string {
            Family made;
            RCN_CALL(ncclGroupStart());
            if (std::string failed = issue(self, made); !failed.empty()) return failed;
            RCN_DONE(ncclGroupEnd(), self.comm);
            return judge(self, made);
          },
          blocking);
      CHECK(text == "");
    }
  }
}

TEST_CASE("a revoked communicator splits several times in one group") {
  for (const bool blocking : {true, false}) {
    std::atomic<int> arrived{0};
    const std::string text = run(
        3,
        [&](Rank& self) -> std::string {
          come_together(arrived, self.ranks);
          RCN_CALL(ncclCommRevoke(self.comm, 0));
          void* parts[2] = {};
          RCN_CALL(ncclGroupStart());
          RCN_CALL(ncclCommSplit(self.comm, 0, -self.rank, &parts[0], nullptr));
          RCN_CALL(ncclCommSplit(self.comm, self.rank == 0 ? -1 : 0, 0, &parts[1], nullptr));
          RCN_DONE(ncclGroupEnd(), self.comm);
          RCN_MEMBER(parts[0], 2 - self.rank, 3);
          if (self.rank != 0) RCN_MEMBER(parts[1], self.rank - 1, 2);
          for (void* part : parts) {
            if (part != nullptr) RCN_CALL(ncclCommDestroy(part));
          }
          return "";
        },
        blocking);
    CHECK(text == "");
  }
}

// Rank 1 asks for what rank 0's group makes one by one, and for the last of it first.
TEST_CASE("what a group makes out of different communicators does not wait for each other") {
  for (const bool blocking : {true, false}) {
    const std::string text = run(
        2,
        [](Rank& self) -> std::string {
          void* other = nullptr;
          RCN_DONE(ncclCommSplit(self.comm, 0, self.rank, &other, nullptr), self.comm);
          void* parts[2] = {};
          if (self.rank == 0) {
            RCN_CALL(ncclGroupStart());
            RCN_CALL(ncclCommSplit(self.comm, 0, 0, &parts[0], nullptr));
            RCN_CALL(ncclCommSplit(other, 0, 0, &parts[1], nullptr));
            RCN_DONE(ncclGroupEnd(), self.comm);
            if (std::string text = wait_until_done(other); !text.empty()) return text;
          } else {
            RCN_DONE(ncclCommSplit(other, 0, 1, &parts[1], nullptr), other);
            RCN_DONE(ncclCommSplit(self.comm, 0, 1, &parts[0], nullptr), self.comm);
          }
          for (void* part : parts) RCN_MEMBER(part, self.rank, 2);
          for (void* comm : {parts[0], parts[1], other}) RCN_CALL(ncclCommDestroy(comm));
          return "";
        },
        blocking);
    CHECK(text == "");
  }
}

TEST_CASE("one thread makes several communicators out of each of the ranks it holds") {
  void* comms[2] = {};
  REQUIRE(ncclCommInitAll(comms, 2, nullptr) == rcnSuccess);
  void* parts[2][2] = {};
  REQUIRE(ncclGroupStart() == rcnSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(ncclCommSplit(comms[rank], 0, rank, &parts[0][rank], nullptr) == rcnSuccess);
    CHECK(ncclCommSplit(comms[rank], 0, -rank, &parts[1][rank], nullptr) == rcnSuccess);
  }
  REQUIRE(check(ncclGroupEnd(), "ncclGroupEnd") == "");
  for (auto& world : parts) CHECK(reduce_in_group(world) == "");
  // All of them are this thread's, which is told to use a group where it needs one.
  int value = 1;
  for (void* comm : {comms[0], parts[0][0], parts[1][1]}) {
    CHECK(ncclAllReduce(&value, &value, 1, rcnInt32, rcnSum, comm, nullptr) == rcnInvalidUsage);
    CHECK(std::string(ncclGetLastError(nullptr)).find("GroupStart") != std::string::npos);
  }
  for (void* comm : {parts[0][0], parts[0][1], parts[1][0], parts[1][1], comms[0], comms[1]})
    CHECK(ncclCommDestroy(comm) == rcnSuccess);
}

TEST_CASE("in one group a thread grows the rank it holds and joins with another") {
  for (const bool blocking : {true, false}) {
    rcnUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
    ConfigHead config{sizeof config, kConfigMagic, 22800, blocking ? 1 : 0};
    void* comm = nullptr;
    const rcnResult_t made = ncclCommInitRankConfig(&comm, 1, id, 0, &config);
    REQUIRE(done(made, comm, "ncclCommInitRankConfig") == "");
    void* grown[2] = {};
    void* part = nullptr;
    REQUIRE(ncclCommGetUniqueId(comm, &id) == rcnSuccess);
    REQUIRE(ncclGroupStart() == rcnSuccess);
    CHECK(ncclCommSplit(comm, 0, 0, &part, nullptr) == rcnSuccess);
    CHECK(ncclCommGrow(nullptr, 2, &id, 1, &grown[1], &config) == rcnSuccess);
    CHECK(ncclCommGrow(comm, 2, &id, -1, &grown[0], nullptr) == rcnSuccess);
    const rcnResult_t begun = ncclGroupEnd();
    CHECK(done(begun, comm, "ncclGroupEnd") == "");
    CHECK(wait_until_done(grown[1]) == "");
    CHECK(is_member(part, 0, 1) == "");
    CHECK(reduce_in_group(grown) == "");
    for (void* each : {grown[0], grown[1], part, comm}) CHECK(ncclCommDestroy(each) == rcnSuccess);
  }
}

// Rank 1 does not come to the split, for which the ranks of a revoked communicator meet anew. Nothing but
// the abort ends that.
TEST_CASE("aborting a revoked communicator ends its split") {
  ::setenv("ROCENANTE_INIT_TIMEOUT_S", "3600", 1);
  std::atomic<int> ready{0};
  const std::string text = run(2, [&](Rank& self) -> std::string {
    come_together(ready, 2);
    if (self.rank == 1) return "";
    RCN_CALL(ncclCommRevoke(self.comm, 0));
    std::atomic<bool> begins{false};
    std::jthread other([&, comm = self.comm] {
      while (!begins) std::this_thread::yield();
      (void)ncclCommAbort(comm);
    });
    void* part = nullptr;
    begins = true;
    const rcnResult_t result = ncclCommSplit(self.comm, 0, 0, &part, nullptr);
    other.join();
    self.comm = nullptr;
    return result != rcnSuccess && part == nullptr ? "" : "split by a rank that did not come";
  });
  ::unsetenv("ROCENANTE_INIT_TIMEOUT_S");
  CHECK(text == "");
}
