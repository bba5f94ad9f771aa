// SPDX-License-Identifier: Apache-2.0
//
// Which communicators beside a real library have a side of ours, and what is said of it. As
// nccl_beside_test.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "nccl_shim/libnccl/abi.h"
#include "tests/abi/nccl_world.h"
#include "tests/support/catch.h"

using namespace rocenante::test;  // NOLINT(google-build-using-namespace)

namespace {

std::size_t occurrences(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) ++found;
  return found;
}

}  // namespace

TEST_CASE("communicators made all at once have a side of ours") {
  recorder().clear();
  void* comms[3] = {};
  REQUIRE(check(ncclCommInitAll(comms, 3, nullptr), "ncclCommInitAll") == "");
  CHECK(reduce_in_group(comms) == "");
  CHECK(recorder().count(kAllReduce) == 0);
  for (void* comm : comms) CHECK(ncclCommDestroy(comm) == rcnSuccess);
}

TEST_CASE("communicators that were split off have a side of ours") {
  recorder().clear();
  const std::string text = run(3, [](Rank& self) -> std::string {
    // Before any all-reduce: the split itself is what the ranks meet for. Rank 2 keeps rank 0 company.
    void* half = nullptr;
    RCN_CALL(ncclCommSplit(self.comm, self.rank % 2, self.rank, &half, nullptr));
    Rank member{self.rank / 2, self.rank % 2 == 0 ? 2 : 1, half};
    if (std::string wrong_sum = reduce(member, kSmall); !wrong_sum.empty()) return "half: " + wrong_sum;
    if (std::string wrong_sum = reduce(member, kLarge); !wrong_sum.empty()) return "large: " + wrong_sum;
    if (std::string wrong_sum = reduce(self, kSmall); !wrong_sum.empty()) return "whole: " + wrong_sum;
    RCN_CALL(ncclCommDestroy(half));
    return "";
  });
  CHECK(text == "");
  CHECK(recorder().count(kCommSplit) == 3);
  CHECK(recorder().count(kAllReduce) == 3);
}

TEST_CASE("a rank that was not preloaded means the real library for all, in bounded time") {
  recorder().clear();
  ::setenv("ROCENANTE_INIT_TIMEOUT_S", "0.5", 1);
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  std::vector<std::string> texts(3);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      // Rank 1 has the real library alone, and the id as rank 0 sent it.
      void* const library = ::dlopen(std::getenv("ROCENANTE_NCCL_PATH"), RTLD_NOW | RTLD_LOCAL);
      auto* const init = reinterpret_cast<decltype(&ncclCommInitRank)>(
          rank == 1 ? ::dlsym(library, "ncclCommInitRank") : reinterpret_cast<void*>(ncclCommInitRank));
      auto* const all_reduce = reinterpret_cast<decltype(&ncclAllReduce)>(
          rank == 1 ? ::dlsym(library, "ncclAllReduce") : reinterpret_cast<void*>(ncclAllReduce));
      texts[static_cast<std::size_t>(rank)] = [&]() -> std::string {
        void* comm = nullptr;
        RCN_CALL(init(&comm, 3, id, rank));
        for (int round = 0; round < 3; ++round) {
          std::vector<float> buffer = values(rank, kSmall);
          RCN_CALL(all_reduce(buffer.data(), buffer.data(), kSmall, rcnFloat32, rcnSum, comm, nullptr));
          if (std::string wrong_sum = wrong(buffer, 3); !wrong_sum.empty()) return wrong_sum;
        }
        RCN_CALL(ncclCommDestroy(comm));
        return "";
      }();
    });
  }
  threads.clear();
  ::unsetenv("ROCENANTE_INIT_TIMEOUT_S");
  for (const std::string& text : texts) CHECK(text == "");
  CHECK(recorder().count(kAllReduce) == 9);
}

TEST_CASE("ranks of different settings have no side of ours") {
  recorder().clear();
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  void* comms[2] = {};
  REQUIRE(ncclCommInitRank(&comms[0], 2, id, 0) == rcnSuccess);
  ::setenv("ROCENANTE_ALL_REDUCE_MAX_BYTES", "64K", 1);
  REQUIRE(ncclCommInitRank(&comms[1], 2, id, 1) == rcnSuccess);
  ::unsetenv("ROCENANTE_ALL_REDUCE_MAX_BYTES");
  CHECK(reduce_in_group(comms) == "");
  CHECK(recorder().count(kAllReduce) == 2);
  for (void* comm : comms) CHECK(ncclCommDestroy(comm) == rcnSuccess);
}

TEST_CASE("the counters come out as one line per communicator") {
  const std::string path = std::string(::getenv("TMPDIR") == nullptr ? "/tmp" : ::getenv("TMPDIR")) +
                           "/rocenante-stats-" + std::to_string(::getpid());
  ::setenv("ROCENANTE_STATS", "1", 1);
  ::setenv("ROCENANTE_STATS_FILE", path.c_str(), 1);
  const std::string text = run(2, [](Rank& self) {
    for (const std::size_t count : {kSmall, kSmall, kLarge}) {
      if (std::string wrong_sum = reduce(self, count); !wrong_sum.empty()) return wrong_sum;
    }
    return std::string();
  });
  ::unsetenv("ROCENANTE_STATS");
  ::unsetenv("ROCENANTE_STATS_FILE");
  CHECK(text == "");
  std::ifstream file(path);
  const std::string lines((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::remove(path.c_str());
  INFO(lines);
  CHECK(occurrences(lines, "\n") == 2);
  CHECK(occurrences(lines, R"("decision":"all ranks take part")") == 2);
  CHECK(occurrences(
            lines,
            R"({"collective":"all_reduce","size_class":12,"path":"one_shot","calls":2,"bytes":8000})") ==
        2);
  CHECK(occurrences(
            lines,
            R"({"collective":"all_reduce","size_class":23,"path":"nccl","reason":"size","calls":1})") == 2);
}

TEST_CASE("a communicator that is destroyed in a group ends after the group's calls") {
  recorder().clear();
  void* comms[2] = {};
  REQUIRE(check(ncclCommInitAll(comms, 2, nullptr), "ncclCommInitAll") == "");
  std::vector<std::vector<float>> buffers = {values(0, kLarge), values(1, kLarge)};
  REQUIRE(ncclGroupStart() == rcnSuccess);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    float* const buffer = buffers[rank].data();
    // Ours first, so that the large one is kept in its place behind it.
    REQUIRE(ncclAllReduce(buffer, buffer, kSmall, rcnFloat32, rcnSum, comms[rank], nullptr) == rcnSuccess);
    REQUIRE(ncclAllReduce(buffer, buffer, kLarge, rcnFloat32, rcnSum, comms[rank], nullptr) == rcnSuccess);
    REQUIRE(ncclCommDestroy(comms[rank]) == rcnSuccess);
    CHECK(recorder().count(kCommDestroy) == 0);
  }
  CHECK(check(ncclGroupEnd(), "ncclGroupEnd") == "");
  CHECK(recorder().count(kCommDestroy) == 2);
  for (std::vector<float>& buffer : buffers) {
    CHECK(wrong({buffer.begin(), buffer.begin() + kSmall}, 2, 2) == "");
    CHECK(wrong({buffer.begin() + kSmall, buffer.end()}, 2) == "");
  }
}

TEST_CASE("a child forked during a call of ours can give the communicator up") {
  void* comms[2] = {};
  REQUIRE(check(ncclCommInitAll(comms, 2, nullptr), "ncclCommInitAll") == "");
  std::atomic<int> ready{0};
  std::atomic<rcnResult_t> result{rcnInternalError};
  float value = 1;
  std::jthread waiting([&] {
    (void)ncclAllReduce(&value, &value, 1, rcnFloat32, rcnSum, comms[0], nullptr);
    ++ready;
    do {
      // Again where it came upon the question below.
      result = ncclAllReduce(&value, &value, 1, rcnFloat32, rcnSum, comms[0], nullptr);
    } while (result == rcnInvalidUsage);
  });
  float other = 1;
  REQUIRE(ncclAllReduce(&other, &other, 1, rcnFloat32, rcnSum, comms[1], nullptr) == rcnSuccess);
  while (ready == 0) std::this_thread::yield();
  // It is in the call when one that is wrong is refused for that reason.
  while (ncclAllReduce(&other, nullptr, 1, rcnFloat32, rcnSum, comms[0], nullptr) == rcnInvalidArgument &&
         result != rcnSuccess) {
    std::this_thread::yield();
  }
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int code = ncclCommDestroy(comms[0]) == rcnSuccess ? 0 : 1;  // the real library's word
    code |= ncclAllReduce(&other, &other, 1, rcnFloat32, rcnSum, comms[1], nullptr) != rcnSuccess ? 0 : 2;
    code |= ncclCommAbort(comms[1]) == rcnSuccess ? 0 : 4;
    ::_exit(code);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(ncclAllReduce(&other, &other, 1, rcnFloat32, rcnSum, comms[1], nullptr) == rcnSuccess);
  waiting.join();
  CHECK(result == rcnSuccess);
  CHECK(other == 4);
  for (void* comm : comms) CHECK(ncclCommDestroy(comm) == rcnSuccess);
}
