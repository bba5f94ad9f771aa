// SPDX-License-Identifier: Apache-2.0
//
// libnccl.so.2 in its own world: communicators made out of others. Run with ROCENANTE_FALLBACK=off.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/abi/nccl_ranks.h"
#include "tests/support/catch.h"

using namespace rocenante::test;  // NOLINT(google-build-using-namespace)
using rocenante::nccl::ConfigHead;
using rocenante::nccl::kConfigMagic;

namespace {

constexpr int kAbortShrink = 1;

ConfigHead config_of(bool blocking) {
  return {sizeof(ConfigHead), kConfigMagic, 22800, blocking ? 1 : 0};
}

bool said(const std::string& text) {
  return std::string(ncclGetLastError(nullptr)).find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("a split takes some, leaves others out, and orders by key") {
  for (const bool blocking : {true, false}) {
    const std::string text = run(
        4,
        [&](Rank& self) -> std::string {
          void* part = &part;
          // Rank 2 has no colour; the others come in reverse.
          const int color = self.rank == 2 ? -1 : 5;
          RCN_DONE(ncclCommSplit(self.comm, color, -self.rank, &part, nullptr), self.comm);
          if (self.rank == 2) return part == nullptr ? "" : "a rank without a colour has a communicator";
          RCN_MEMBER(part, self.rank == 3 ? 0 : self.rank == 1 ? 1 : 2, 3);
          RCN_CALL(ncclCommDestroy(part));
          return "";
        },
        blocking);
    CHECK(text == "");
  }
}

TEST_CASE("a communicator shrinks by any of its ranks, more than once") {
  for (const bool blocking : {true, false}) {
    for (const int out : {0, 1, 3}) {
      const std::string text = run(
          4,
          [&](Rank& self) -> std::string {
            if (self.rank == out) return "";
            const int rank = self.rank - (self.rank > out ? 1 : 0);
            for (int round = 0; round < 2; ++round) {
              int left_out[1] = {out};
              void* rest = &rest;
              RCN_DONE(ncclCommShrink(self.comm, left_out, 1, &rest, nullptr, 0), self.comm);
              RCN_MEMBER(rest, rank, 3);
              RCN_CALL(ncclCommDestroy(rest));
            }
            return "";
          },
          blocking);
      CHECK(text == "");
    }
  }
}

TEST_CASE("shrinking with abort frees the calls of those that go on") {
  for (const bool blocking : {true, false}) {
    std::atomic<int> arrived{0};
    std::atomic<int> waiting{0};
    const std::string text = run(
        4,
        [&](Rank& self) -> std::string {
          come_together(arrived, self.ranks);
          if (self.rank == 0) return "";  // never calls again; it leaves when the others do
          if (self.rank == 1) {
            // Waits for rank 0 until rank 2's abort, or its own next call, frees it.
            float value = 1;
            ++waiting;
            if (ncclAllReduce(&value, &value, 1, rcnFloat32, rcnSum, self.comm, nullptr) == rcnSuccess)
              return "a call without rank 0 succeeded";
          } else {
            while (waiting == 0) std::this_thread::yield();
          }
          int left_out[1] = {0};
          void* rest = nullptr;
          RCN_DONE(ncclCommShrink(self.comm, left_out, 1, &rest, nullptr, kAbortShrink), self.comm);
          RCN_MEMBER(rest, self.rank - 1, 3);
          RCN_CALL(ncclCommDestroy(rest));
          rcnResult_t state = rcnInternalError;
          RCN_CALL(ncclCommGetAsyncError(self.comm, &state));
          if (state != rcnSuccess) return "the parent's own abort is an error";
          float value = 1;
          const rcnResult_t late = ncclAllReduce(&value, &value, 1, rcnFloat32, rcnSum, self.comm, nullptr);
          return late == rcnInvalidUsage && said("aborted to shrink") ? "" : "the parent is still in use";
        },
        blocking);
    CHECK(text == "");
  }
}

TEST_CASE("a revoked communicator shrinks, and is destroyed") {
  std::atomic<int> arrived{0};
  const std::string text = run(3, [&](Rank& self) -> std::string {
    come_together(arrived, self.ranks);
    if (self.rank == 2) return "";
    RCN_CALL(ncclCommRevoke(self.comm, 0));
    int left_out[1] = {2};
    void* rest = nullptr;
    RCN_CALL(ncclCommShrink(self.comm, left_out, 1, &rest, nullptr, 0));
    RCN_MEMBER(rest, self.rank, 2);
    RCN_CALL(ncclCommDestroy(rest));
    return "";
  });
  CHECK(text == "");
}

TEST_CASE("a revoked communicator splits") {
  for (const bool blocking : {true, false}) {
    std::atomic<int> arrived{0};
    const std::string text = run(
        3,
        [&](Rank& self) -> std::string {
          come_together(arrived, self.ranks);
          RCN_CALL(ncclCommRevoke(self.comm, 0));
          void* part = &part;
          RCN_DONE(ncclCommSplit(self.comm, self.rank == 1 ? -1 : 0, -self.rank, &part, nullptr),
                   self.comm);
          if (self.rank == 1) return part == nullptr ? "" : "a rank without a colour has a communicator";
          RCN_MEMBER(part, self.rank == 2 ? 0 : 1, 2);
          RCN_CALL(ncclCommDestroy(part));
          return "";
        },
        blocking);
    CHECK(text == "");
  }
  void* comms[2] = {};
  REQUIRE(ncclCommInitAll(comms, 2, nullptr) == rcnSuccess);
  for (void* comm : comms) REQUIRE(ncclCommRevoke(comm, 0) == rcnSuccess);
  void* parts[2] = {};
  REQUIRE(ncclGroupStart() == rcnSuccess);
  for (int i = 0; i < 2; ++i) CHECK(ncclCommSplit(comms[i], i, 0, &parts[i], nullptr) == rcnSuccess);
  CHECK(check(ncclGroupEnd(), "ncclGroupEnd") == "");
  for (void* part : parts) CHECK(is_member(part, 0, 1) == "");
  for (void* comm : {parts[0], parts[1], comms[0], comms[1]}) CHECK(ncclCommDestroy(comm) == rcnSuccess);
}

TEST_CASE("in a group one thread shrinks several ranks") {
  void* comms[3] = {};
  REQUIRE(ncclCommInitAll(comms, 3, nullptr) == rcnSuccess);
  void* rest[2] = {};
  int left_out[1] = {1};
  REQUIRE(ncclGroupStart() == rcnSuccess);
  CHECK(ncclCommShrink(comms[0], left_out, 1, &rest[0], nullptr, 0) == rcnSuccess);
  CHECK(ncclCommShrink(comms[2], left_out, 1, &rest[1], nullptr, 0) == rcnSuccess);
  CHECK(check(ncclGroupEnd(), "ncclGroupEnd") == "");
  int values[2] = {1, 2};
  REQUIRE(ncclGroupStart() == rcnSuccess);
  for (int i = 0; i < 2; ++i)
    CHECK(ncclAllReduce(&values[i], &values[i], 1, rcnInt32, rcnSum, rest[i], nullptr) == rcnSuccess);
  CHECK(ncclGroupEnd() == rcnSuccess);
  CHECK((values[0] == 3 && values[1] == 3));
  for (void* comm : {rest[0], rest[1], comms[0], comms[1], comms[2]})
    CHECK(ncclCommDestroy(comm) == rcnSuccess);
}

TEST_CASE("a communicator grows by ranks that had none") {
  for (const bool blocking : {true, false}) {
    rcnUniqueId grow_id;
    std::atomic<bool> has_id{false};
    std::string joined[2];
    std::vector<std::jthread> newcomers;
    for (int i = 0; i < 2; ++i) {
      newcomers.emplace_back([&, i] {
        joined[i] = [&]() -> std::string {
          while (!has_id) std::this_thread::yield();
          ConfigHead config = config_of(blocking);
          void* comm = nullptr;
          const rcnResult_t grown = ncclCommGrow(nullptr, 4, &grow_id, 2 + i, &comm, &config);
          RCN_DONE(grown, comm);
          RCN_MEMBER(comm, 2 + i, 4);
          RCN_CALL(ncclCommDestroy(comm));
          return "";
        }();
      });
    }
    const std::string text = run(
        2,
        [&](Rank& self) -> std::string {
          void* grown = &grown;
          const bool is_root = self.rank == 1;
          if (is_root) {
            RCN_CALL(ncclCommGetUniqueId(self.comm, &grow_id));
            rcnUniqueId second;
            if (ncclCommGetUniqueId(self.comm, &second) != rcnInvalidUsage) return "two ids at once";
            has_id = true;
          }
          RCN_DONE(ncclCommGrow(self.comm, 4, is_root ? &grow_id : nullptr, -1, &grown, nullptr),
                   self.comm);
          RCN_MEMBER(grown, self.rank, 4);
          RCN_MEMBER(self.comm, self.rank, 2);
          RCN_CALL(ncclCommDestroy(grown));
          // It is used up, and there may be another.
          if (is_root && ncclCommGrow(self.comm, 4, &grow_id, -1, &grown, nullptr) != rcnInvalidUsage)
            return "an id was used twice";
          return "";
        },
        blocking);
    newcomers.clear();
    CHECK(text == "");
    CHECK(joined[0] == "");
    CHECK(joined[1] == "");
  }
}

TEST_CASE("growing without an id is refused on every rank") {
  const std::string text = run(2, [](Rank& self) -> std::string {
    void* grown = nullptr;
    if (ncclCommGrow(self.comm, 3, nullptr, -1, &grown, nullptr) != rcnInvalidUsage) return "not refused";
    return said("no rank of comm") ? "" : ncclGetLastError(nullptr);
  });
  CHECK(text == "");
}

TEST_CASE("arguments of shrinking and growing are judged before anything is done") {
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  void* comm = nullptr;
  REQUIRE(ncclCommInitRank(&comm, 1, id, 0) == rcnSuccess);
  void* made = &id;
  int self[2] = {0, 0};
  CHECK(ncclCommShrink(comm, self, 1, &made, nullptr, 0) == rcnInvalidArgument);
  CHECK(said("excludeRanksCount is 1: expected 0 to 0"));
  CHECK(ncclCommShrink(comm, nullptr, 0, nullptr, nullptr, 0) == rcnInvalidArgument);
  CHECK(said("newcomm"));
  CHECK(ncclCommShrink(comm, nullptr, 0, &made, nullptr, 2) == rcnInvalidArgument);
  CHECK(said("shrinkFlags is 2"));
  CHECK(ncclCommGrow(comm, 2, nullptr, 0, &made, nullptr) == rcnInvalidArgument);
  CHECK(said("rank is 0: expected -1"));
  CHECK(ncclCommGrow(comm, 1, nullptr, -1, &made, nullptr) == rcnInvalidArgument);
  CHECK(said("expected more than comm has"));
  CHECK(ncclCommGrow(comm, 2, &id, -1, &made, nullptr) == rcnInvalidUsage);
  CHECK(ncclCommGrow(nullptr, 2, nullptr, 0, &made, nullptr) == rcnInvalidArgument);
  CHECK(ncclCommGetUniqueId(comm, nullptr) == rcnInvalidArgument);
  CHECK(ncclCommGetUniqueId(nullptr, &id) == rcnInvalidArgument);
  ConfigHead broken{sizeof broken, 1, 22800, 1};
  CHECK(ncclCommShrink(comm, nullptr, 0, &made, &broken, 0) == rcnInvalidArgument);
  CHECK(made == &id);
  REQUIRE(ncclCommShrink(comm, nullptr, 0, &made, nullptr, 0) == rcnSuccess);
  CHECK(is_member(made, 0, 1) == "");
  CHECK(ncclCommDestroy(made) == rcnSuccess);
  CHECK(ncclCommDestroy(comm) == rcnSuccess);

  const std::string text = run(3, [](Rank& one) -> std::string {
    void* rest = nullptr;
    int list[2] = {one.rank, 0};
    if (ncclCommShrink(one.comm, list, 1, &rest, nullptr, 0) != rcnInvalidArgument || !said("which calls"))
      return "a rank left itself out";
    const int other = (one.rank + 1) % 3;
    list[0] = list[1] = other;
    if (ncclCommShrink(one.comm, list, 2, &rest, nullptr, 0) != rcnInvalidArgument || !said("twice"))
      return "a rank stood there twice";
    list[0] = 3;
    return ncclCommShrink(one.comm, list, 1, &rest, nullptr, 0) == rcnInvalidArgument &&
                   said("expected 0 to 2")
               ? ""
               : "there is no rank 3";
  });
  CHECK(text == "");
}
