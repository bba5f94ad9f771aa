// SPDX-License-Identifier: Apache-2.0
//
// libnccl.so.2 in its own world: what non-blocking communicators do. Run with ROCENANTE_FALLBACK=off.
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/abi/nccl_ranks.h"
#include "tests/support/catch.h"

using namespace rocenante::test;  // NOLINT(google-build-using-namespace)
using rocenante::nccl::ConfigHead;
using rocenante::nccl::kConfigMagic;

namespace {

ConfigHead config_of(bool blocking) {
  return {sizeof(ConfigHead), kConfigMagic, 22800, blocking ? 1 : 0};
}

bool said(const std::string& text) {
  return std::string(ncclGetLastError(nullptr)).find(text) != std::string::npos;
}

std::size_t entries(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

std::size_t threads_named(const std::string& wanted) {
  std::size_t found = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    if (std::getline(file, name) && name == wanted) ++found;
  }
  return found;
}

// Refused as a call on a communicator that is busy, by name.
std::string refused_as_busy(void* comm) {
  int value = 1;
  if (ncclAllReduce(&value, &value, 1, rcnInt32, rcnSum, comm, nullptr) != rcnInvalidUsage)
    return "a call on a busy communicator was not refused";
  if (!said("is still busy with the call before")) return ncclGetLastError(nullptr);
  if (ncclCommDestroy(comm) != rcnInvalidUsage) return "a busy communicator was destroyed";
  void* other = nullptr;
  if (ncclCommSplit(comm, 0, 0, &other, nullptr) != rcnInvalidUsage) return "a busy communicator was split";
  return "";
}

// While other threads use and end the communicator.
bool may_come(rcnResult_t result) {
  return result == rcnInProgress || result == rcnInvalidArgument || result == rcnInvalidUsage ||
         result == rcnRemoteError;
}

}  // namespace

TEST_CASE("a non-blocking split is under way until all have called") {
  std::atomic<int> asked{0};
  const std::string text = run(
      2,
      [&](Rank& self) -> std::string {
        void* part = &part;
        if (self.rank == 0) {
          if (ncclCommSplit(self.comm, 0, 0, &part, nullptr) != rcnInProgress) return "not in progress";
          if (part != nullptr) return "the new handle is there too early";
          rcnResult_t state = rcnSuccess;
          RCN_CALL(ncclCommGetAsyncError(self.comm, &state));
          if (state != rcnInProgress) return "the parent is not in progress";
          if (std::string text = refused_as_busy(self.comm); !text.empty()) return text;
          ++asked;
        } else {
          while (asked == 0) std::this_thread::yield();
          if (ncclCommSplit(self.comm, 0, 0, &part, nullptr) != rcnInProgress) return "not in progress";
        }
        if (std::string text = wait_until_done(self.comm); !text.empty()) return text;
        RCN_MEMBER(part, self.rank, 2);
        RCN_MEMBER(self.comm, self.rank, 2);
        // The new one is non-blocking, too, unless its configuration says otherwise.
        void* again = nullptr;
        ConfigHead config = config_of(true);
        if (ncclCommSplit(part, 0, 0, &again, &config) != rcnInProgress) return "the child is blocking";
        if (std::string text = wait_until_done(part); !text.empty()) return text;
        void* last = nullptr;
        if (ncclCommSplit(again, 0, 0, &last, nullptr) != rcnSuccess)
          return "the grandchild is not blocking";
        for (void* comm : {last, again, part}) RCN_CALL(ncclCommDestroy(comm));
        return "";
      },
      false);
  CHECK(text == "");
}

TEST_CASE("one thread splits the non-blocking ranks it holds in a group") {
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  ConfigHead config = config_of(false);
  void* comms[3] = {};
  void* parts[3] = {&parts, &parts, &parts};
  REQUIRE(ncclGroupStart() == rcnSuccess);
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(ncclCommInitRankConfig(&comms[rank], 3, id, rank, &config) == rcnSuccess);
  }
  REQUIRE(ncclGroupEnd() == rcnInProgress);
  for (void* comm : comms) REQUIRE(wait_until_done(comm) == "");
  REQUIRE(ncclGroupStart() == rcnSuccess);
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(ncclCommSplit(comms[rank], rank == 1 ? -1 : 0, rank, &parts[rank], nullptr) == rcnSuccess);
  }
  REQUIRE(ncclGroupEnd() == rcnInProgress);
  for (void* comm : comms) REQUIRE(wait_until_done(comm) == "");
  CHECK(parts[1] == nullptr);
  int values[2] = {3, 4};
  REQUIRE(ncclGroupStart() == rcnSuccess);
  CHECK(ncclAllReduce(&values[0], &values[0], 1, rcnInt32, rcnSum, parts[0], nullptr) == rcnSuccess);
  CHECK(ncclAllReduce(&values[1], &values[1], 1, rcnInt32, rcnSum, parts[2], nullptr) == rcnSuccess);
  CHECK(check(ncclGroupEnd(), "ncclGroupEnd") == "");
  CHECK((values[0] == 7 && values[1] == 7));
  // The communicators are this thread's again, which is told to use a group where it needs one.
  int value = 1;
  CHECK(ncclAllReduce(&value, &value, 1, rcnInt32, rcnSum, comms[0], nullptr) == rcnInvalidUsage);
  CHECK(said("GroupStart"));
  for (void* comm : {parts[0], parts[2], comms[0], comms[1], comms[2]})
    CHECK(ncclCommDestroy(comm) == rcnSuccess);
}

TEST_CASE("a non-blocking finalize parts from the others, and destroying comes after it") {
  const std::string text = run(
      2,
      [](Rank& self) -> std::string {
        RCN_MEMBER(self.comm, self.rank, 2);
        if (ncclCommFinalize(self.comm) != rcnInProgress) return "not in progress";
        if (std::string text = wait_until_done(self.comm); !text.empty()) return text;
        int value = 1;
        if (ncclAllReduce(&value, &value, 1, rcnInt32, rcnSum, self.comm, nullptr) != rcnInvalidUsage)
          return "a finalized communicator was used";
        if (!said("finalized") || ncclCommFinalize(self.comm) != rcnInvalidUsage) return "finalized twice";
        rcnResult_t state = rcnInternalError;
        RCN_CALL(ncclCommGetAsyncError(self.comm, &state));
        return check(state, "the state");
      },
      false);
  CHECK(text == "");
}

TEST_CASE("what is under way can be aborted, whoever does not come") {
  std::atomic<int> ready{0};
  const std::string text = run(
      2,
      [&](Rank& self) -> std::string {
        come_together(ready, 2);
        if (self.rank == 1) return "";
        void* part = nullptr;
        if (ncclCommSplit(self.comm, 0, 0, &part, nullptr) != rcnInProgress) return "not in progress";
        RCN_CALL(ncclCommAbort(self.comm));
        if (ncclCommAbort(self.comm) != rcnInvalidArgument) return "aborted twice";
        if (part != nullptr) return "there is a new communicator";
        self.comm = nullptr;
        return "";
      },
      false);
  CHECK(text == "");
}

TEST_CASE("an initialisation that blocks can be aborted by another thread") {
  for (int round = 0; round < 5; ++round) {
    rcnUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
    std::atomic<void*> shared{nullptr};
    std::atomic<rcnResult_t> result{rcnSuccess};
    // Read by the other thread, as a watchdog does: the handle is there before the others are.
    static void* comm;
    comm = nullptr;
    std::jthread initialising([&] { result = ncclCommInitRank(&comm, 2, id, 0); });
    while (std::atomic_ref<void*>(comm).load() == nullptr) std::this_thread::yield();
    shared = std::atomic_ref<void*>(comm).load();
    CHECK(ncclCommAbort(shared) == rcnSuccess);
    initialising.join();
    CHECK(result != rcnSuccess);
    CHECK(comm == nullptr);
  }
}

TEST_CASE("aborting the parent ends a call that makes another out of it") {
  for (const bool blocking : {true, false}) {
    std::atomic<int> ready{0};
    const std::string text = run(
        2,
        [&](Rank& self) -> std::string {
          come_together(ready, 2);
          // Rank 1 does not come to the shrink.
          if (self.rank == 1) return "";
          std::atomic<bool> begins{false};
          std::jthread other([&, comm = self.comm] {
            while (!begins) std::this_thread::yield();
            (void)ncclCommAbort(comm);
          });
          void* rest = nullptr;
          begins = true;
          const rcnResult_t result = ncclCommShrink(self.comm, nullptr, 0, &rest, nullptr, 0);
          other.join();
          self.comm = nullptr;
          return result != rcnSuccess && rest == nullptr ? "" : "shrunk by a rank that did not come";
        },
        blocking);
    CHECK(text == "");
  }
}

TEST_CASE("non-blocking communicators leave nothing behind") {
  const auto cycle = [] {
    rcnUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
    ConfigHead config = config_of(false);
    void* comm = nullptr;
    REQUIRE(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == rcnInProgress);
    REQUIRE(wait_until_done(comm) == "");
    void* part = nullptr;
    REQUIRE(ncclCommSplit(comm, 0, 0, &part, nullptr) == rcnInProgress);
    REQUIRE(wait_until_done(comm) == "");
    REQUIRE(ncclCommFinalize(part) == rcnInProgress);
    REQUIRE(wait_until_done(part) == "");
    REQUIRE(ncclCommDestroy(part) == rcnSuccess);
    REQUIRE(ncclCommDestroy(comm) == rcnSuccess);
  };
  cycle();
  const std::size_t threads = entries("/proc/self/task");
  const std::size_t files = entries("/proc/self/fd");
  for (int i = 0; i < 20; ++i) cycle();
  // A rendezvous ends a little after its ranks have met, and the next one collects it.
  for (int i = 0; i < 600; ++i) {
    if (entries("/proc/self/task") <= threads && entries("/proc/self/fd") <= files) break;
    ::usleep(100'000);
    cycle();
  }
  CHECK(entries("/proc/self/task") <= threads);
  CHECK(entries("/proc/self/fd") <= files);
}

TEST_CASE("aborting ends the thread of an initialisation") {
  for (int i = 0; i < 20; ++i) {
    rcnUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
    ConfigHead config = config_of(false);
    void* comm = nullptr;
    REQUIRE(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == rcnInProgress);
    REQUIRE(ncclCommAbort(comm) == rcnSuccess);
    // A thread that has been joined leaves /proc a moment later. The pair never meets: one that still runs
    // would stay.
    for (int look = 0; look < 500 && threads_named("rcn-setup") != 0; ++look) ::usleep(10'000);
    CHECK(threads_named("rcn-setup") == 0);
  }
}

TEST_CASE("several threads at one busy communicator: one begins, one ends it") {
  for (int round = 0; round < 20; ++round) {
    rcnUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
    ConfigHead config{sizeof config, kConfigMagic, 22800, 0};
    void* comm = nullptr;
    REQUIRE(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == rcnInProgress);
    REQUIRE(wait_until_done(comm) == "");
    std::atomic<int> wrong{0};
    std::atomic<int> aborted{0};
    std::vector<std::jthread> threads;
    static void* parts[3];
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        parts[i] = nullptr;
        const rcnResult_t begun = i == 0   ? ncclCommSplit(comm, 0, 0, &parts[i], nullptr)
                                  : i == 1 ? ncclCommShrink(comm, nullptr, 0, &parts[i], nullptr, 0)
                                           : ncclCommFinalize(comm);
        wrong += may_come(begun) ? 0 : 1;
      });
    }
    threads.emplace_back([&] { aborted += ncclCommAbort(comm) == rcnSuccess ? 1 : 0; });
    threads.clear();
    CHECK(wrong == 0);
    CHECK(aborted == 1);
    CHECK(ncclCommAbort(comm) == rcnInvalidArgument);
    for (void* part : parts) {
      if (part != nullptr) CHECK(ncclCommAbort(part) == rcnSuccess);
    }
  }
}
