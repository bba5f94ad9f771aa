// SPDX-License-Identifier: Apache-2.0
//
// libnccl.so.2 in its own world, used wrongly: a defined result with a text that names the client's handle,
// never a crash and never a wait without end. Run with ROCENANTE_FALLBACK=off.
#include <rocenante/rocenante.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/abi/nccl_ranks.h"
#include "tests/support/catch.h"

using namespace rocenante::test;  // NOLINT(google-build-using-namespace)
using rocenante::nccl::ConfigHead;
using rocenante::nccl::kConfigMagic;

namespace {

bool said(const std::string& text) {
  return std::string(ncclGetLastError(nullptr)).find(text) != std::string::npos;
}

std::string shown(const void* comm) {
  std::ostringstream text;
  text << "comm " << comm << ' ';
  return text.str();
}

rcnResult_t reduce_one(void* comm) {
  int value = 1;
  return ncclAllReduce(&value, &value, 1, rcnInt32, rcnSum, comm, nullptr);
}

// In calls while the communicator ends; the last while another thread aborts it.
bool may_come(rcnResult_t result) {
  return result == rcnSuccess || result == rcnInvalidArgument || result == rcnInvalidUsage ||
         result == rcnRemoteError;
}

std::array<void*, 2> make_two() {
  std::array<void*, 2> comms{};
  REQUIRE(ncclCommInitAll(comms.data(), 2, nullptr) == rcnSuccess);
  return comms;
}

// Rank 0 of two, in a call that waits for rank 1.
class Waiting {
 public:
  explicit Waiting(void* comm) {
    // Again where it came upon the question below.
    thread_ = std::jthread([this, comm] {
      do {
        result_ = reduce_one(comm);
      } while (result_ == rcnInvalidUsage);
    });
    int value = 0;
    // It is there when others are told so.
    while (ncclAllReduce(&value, &value, 0, rcnInt32, rcnSum, comm, nullptr) == rcnSuccess) {
      std::this_thread::yield();
    }
  }
  rcnResult_t end() {
    thread_.join();
    return result_;
  }

 private:
  rcnResult_t result_ = rcnInternalError;
  std::jthread thread_;
};

// As programs leave, with their static objects. A sanitizer's checks at the end do not know the memory of
// threads that a child does not have.
[[noreturn]] void leave(int code) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  ::_exit(code);
#else
  std::exit(code);
#endif
}

// The exit code of a child that does `body` and then leaves as programs do.
int in_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) leave(body());
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

TEST_CASE("a communicator in use is named as its client knows it") {
  const auto [first, second] = make_two();
  Waiting waiting(first);
  CHECK(reduce_one(first) == rcnInvalidUsage);
  CHECK(said(shown(first) + "is used by another thread"));
  rcnRedOp_t op = rcnSum;
  float scalar = 2;
  CHECK(ncclRedOpCreatePreMulSum(&op, &scalar, rcnFloat32, rcnScalarHostImmediate, first) ==
        rcnInvalidUsage);
  CHECK(said(shown(first) + "is used by another thread"));
  CHECK(ncclCommDestroy(first) == rcnInvalidUsage);
  CHECK(said(shown(first) + "is used by another thread"));
  CHECK(reduce_one(second) == rcnSuccess);
  CHECK(waiting.end() == rcnSuccess);
  CHECK(ncclCommDestroy(first) == rcnSuccess);
  CHECK(ncclCommDestroy(second) == rcnSuccess);
}

TEST_CASE("of several threads that destroy or abort one communicator, one does") {
  for (int round = 0; round < 20; ++round) {
    rcnUniqueId id;
    void* comm = nullptr;
    REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
    REQUIRE(ncclCommInitRank(&comm, 1, id, 0) == rcnSuccess);
    std::atomic<int> ended{0};
    std::atomic<int> wrong{0};
    const auto note = [&](rcnResult_t result) {
      if (!may_come(result)) ++wrong;
      return result;
    };
    std::vector<std::jthread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        int count = 0;
        rcnResult_t state = rcnSuccess;
        while (note(ncclCommCount(comm, &count)) == rcnSuccess) {
          (void)note(reduce_one(comm));
          (void)note(ncclCommGetAsyncError(comm, &state));
          (void)ncclGetLastError(comm);
        }
      });
      threads.emplace_back([&, i] {
        // A destroy is refused while a call is in progress.
        for (rcnResult_t result = rcnInvalidUsage; result == rcnInvalidUsage;) {
          result = note(i == 0 ? ncclCommDestroy(comm) : ncclCommAbort(comm));
          ended += result == rcnSuccess ? 1 : 0;
        }
      });
    }
    threads.clear();
    CHECK(ended == 1);
    CHECK(wrong == 0);
  }
}

TEST_CASE("a refused call of any kind makes its group fail") {
  const auto [first, second] = make_two();
  int value = 7;
  int sum = 0;
  for (void* bad : {static_cast<void*>(nullptr), static_cast<void*>(&value)}) {
    REQUIRE(ncclGroupStart() == rcnSuccess);
    CHECK(ncclAllReduce(&value, &sum, 1, rcnInt32, rcnSum, first, nullptr) == rcnSuccess);
    CHECK(reduce_one(bad) == rcnInvalidArgument);
    CHECK(ncclGroupEnd() == rcnInvalidArgument);
    CHECK(said("nothing of the group was performed"));
  }
  REQUIRE(ncclGroupStart() == rcnSuccess);
  CHECK(ncclAllReduce(&value, &sum, 1, rcnInt32, rcnSum, first, nullptr) == rcnSuccess);
  CHECK(ncclSend(&value, 1, rcnInt32, 1, first, nullptr) == rcnInvalidUsage);
  CHECK(ncclGroupEnd() == rcnInvalidUsage);
  CHECK(sum == 0);
  CHECK(ncclCommDestroy(first) == rcnSuccess);
  CHECK(ncclCommDestroy(second) == rcnSuccess);
}

TEST_CASE("a communicator that is destroyed twice in one group ends once") {
  const auto [first, second] = make_two();
  std::array<void*, 2> halves{};
  REQUIRE(ncclGroupStart() == rcnSuccess);
  CHECK(ncclCommDestroy(first) == rcnSuccess);
  CHECK(ncclCommDestroy(first) == rcnSuccess);
  CHECK(ncclCommDestroy(second) == rcnSuccess);
  // Splits of a group come before its ends.
  CHECK(ncclCommSplit(first, 0, 0, &halves[0], nullptr) == rcnSuccess);
  CHECK(ncclCommSplit(second, 1, 0, &halves[1], nullptr) == rcnSuccess);
  CHECK(ncclGroupEnd() == rcnInvalidArgument);
  CHECK(said(shown(first) + "has been destroyed"));
  CHECK(reduce_one(second) == rcnInvalidArgument);
  for (void* half : halves) {
    CHECK(reduce_one(half) == rcnSuccess);
    CHECK(ncclCommDestroy(half) == rcnSuccess);
  }
}

TEST_CASE("a thread that ends in an open group leaves the others alone") {
  const auto [first, second] = make_two();
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  void* never = nullptr;
  std::jthread([&, comm = first] {
    int value = 1;
    bool ok = ncclGroupStart() == rcnSuccess && ncclGroupStart() == rcnSuccess;
    ok = ok && ncclAllReduce(&value, &value, 1, rcnInt32, rcnSum, comm, nullptr) == rcnSuccess;
    ok = ok && ncclCommInitRank(&never, 1, id, 0) == rcnSuccess && ncclCommDestroy(comm) == rcnSuccess;
    if (!ok) ::abort();
  }).join();
  CHECK(ncclGroupEnd() == rcnInvalidUsage);
  int values[2] = {1, 2};
  REQUIRE(ncclGroupStart() == rcnSuccess);
  CHECK(ncclAllReduce(&values[0], &values[0], 1, rcnInt32, rcnSum, first, nullptr) == rcnSuccess);
  CHECK(ncclAllReduce(&values[1], &values[1], 1, rcnInt32, rcnSum, second, nullptr) == rcnSuccess);
  CHECK(ncclGroupEnd() == rcnSuccess);
  CHECK((values[0] == 3 && values[1] == 3));
  CHECK(ncclCommDestroy(first) == rcnSuccess);
  CHECK(ncclCommDestroy(second) == rcnSuccess);
}

TEST_CASE("a child forked during a call of another thread can give the communicator up, and leave") {
  const auto [first, second] = make_two();
  Waiting waiting(first);
  const int status = in_child([comm = first, other = second] {
    int code = reduce_one(comm) != rcnSuccess ? 0 : 1;
    code |= ncclCommDestroy(comm) == rcnInvalidUsage && said("forked") ? 0 : 2;
    code |= ncclCommAbort(other) == rcnInvalidUsage && said(shown(other)) ? 0 : 4;
    code |= ncclCommDestroy(other) == rcnInvalidArgument ? 0 : 8;
    void* own = nullptr;
    code |= ncclCommInitAll(&own, 1, nullptr) == rcnSuccess && reduce_one(own) == rcnSuccess ? 0 : 16;
    return code;
  });
  CHECK(status == 0);
  CHECK(reduce_one(second) == rcnSuccess);
  CHECK(waiting.end() == rcnSuccess);
  CHECK(ncclCommDestroy(first) == rcnSuccess);
  CHECK(ncclCommDestroy(second) == rcnSuccess);
}

TEST_CASE("a child forked in an open group gets an error, and its parent the result") {
  const auto [first, second] = make_two();
  int values[2] = {1, 2};
  REQUIRE(ncclGroupStart() == rcnSuccess);
  CHECK(ncclAllReduce(&values[0], &values[0], 1, rcnInt32, rcnSum, first, nullptr) == rcnSuccess);
  CHECK(ncclAllReduce(&values[1], &values[1], 1, rcnInt32, rcnSum, second, nullptr) == rcnSuccess);
  CHECK(in_child(
            [] { return ncclGroupEnd() == rcnInvalidUsage && ncclGroupEnd() != rcnSuccess ? 0 : 1; }) == 0);
  CHECK(ncclGroupEnd() == rcnSuccess);
  CHECK((values[0] == 3 && values[1] == 3));
  CHECK(ncclCommDestroy(first) == rcnSuccess);
  CHECK(ncclCommDestroy(second) == rcnSuccess);
}

TEST_CASE("an id made before a fork is met at by parent and child") {
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  void* comm = nullptr;
  int value = child == 0 ? 5 : 6;
  const bool ok = ncclCommInitRank(&comm, 2, id, child == 0 ? 1 : 0) == rcnSuccess &&
                  ncclAllReduce(&value, &value, 1, rcnInt32, rcnSum, comm, nullptr) == rcnSuccess &&
                  value == 11 && ncclCommDestroy(comm) == rcnSuccess;
  if (child == 0) leave(ok ? 0 : 1);
  INFO(ncclGetLastError(nullptr));
  CHECK(ok);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("a child forked while a non-blocking call is under way can give the communicator up, and leave") {
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  ConfigHead config{sizeof config, kConfigMagic, 22800, 0};
  void* comm = nullptr;
  REQUIRE(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == rcnInProgress);
  const int status = in_child([comm] {
    rcnResult_t state = rcnSuccess;
    int code = ncclCommGetAsyncError(comm, &state) == rcnInvalidUsage && said("forked") ? 0 : 1;
    code |= ncclCommAbort(comm) == rcnInvalidUsage ? 0 : 2;
    // And begin calls of its own.
    rcnUniqueId own;
    ConfigHead non_blocking{sizeof non_blocking, kConfigMagic, 22800, 0};
    void* made = nullptr;
    code |= ncclGetUniqueId(&own) == rcnSuccess &&
                    ncclCommInitRankConfig(&made, 1, own, 0, &non_blocking) == rcnInProgress &&
                    wait_until_done(made).empty() && ncclCommDestroy(made) == rcnSuccess
                ? 0
                : 4;
    return code;
  });
  CHECK(status == 0);
  void* other = nullptr;
  REQUIRE(ncclCommInitRankConfig(&other, 2, id, 1, &config) == rcnInProgress);
  CHECK(wait_until_done(comm) == "");
  CHECK(wait_until_done(other) == "");
  CHECK(ncclCommDestroy(comm) == rcnSuccess);
  CHECK(ncclCommDestroy(other) == rcnSuccess);
}

// The new communicator's handle is in memory that its client gives up before: on a stack, it would be what
// goes on there after main() has returned.
TEST_CASE("a process may end, or abort, while a non-blocking call is under way") {
  enum Call { kInit, kSplit, kShrink };
  for (const auto& [call, aborts] :
       {std::pair(kInit, false), std::pair(kSplit, false), std::pair(kShrink, false),
        std::pair(kSplit, true), std::pair(kShrink, true)}) {
    const int status = in_child([call = call, aborts = aborts] {
      rcnUniqueId id;
      ConfigHead config{sizeof config, kConfigMagic, 22800, 0};
      void* comms[2] = {};
      const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
      void* const memory =
          ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) return 5;
      auto* const part = static_cast<void**>(memory);
      if (ncclGetUniqueId(&id) != rcnSuccess) return 1;
      for (int rank = 0; rank < (call == kInit ? 1 : 2); ++rank) {
        if (ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config) != rcnInProgress) return 2;
      }
      if (call == kInit) return 0;
      for (void* comm : comms) {
        if (!wait_until_done(comm).empty()) return 3;
      }
      // Rank 1 does not come.
      const rcnResult_t begun = call == kSplit ? ncclCommSplit(comms[0], 0, 0, part, nullptr)
                                               : ncclCommShrink(comms[0], nullptr, 0, part, nullptr, 0);
      ::munmap(memory, page);
      if (aborts && ncclCommAbort(comms[0]) != rcnSuccess) return 6;
      return begun == rcnInProgress ? 0 : 4;
    });
    CHECK(status == 0);
  }
}

TEST_CASE("survivors of a killed process go on without it") {
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  // Rank 0 dies in its second call; ranks 1 and 2 find out, and shrink.
  constexpr int kAbortShrink = 1;
  const auto survive = [](void* comm, int rank) -> std::string {
    int value = 1;
    rcnResult_t result = rcnSuccess;
    while (result == rcnSuccess) result = ncclAllReduce(&value, &value, 1, rcnInt32, rcnMax, comm, nullptr);
    if (result != rcnRemoteError) return check(result, "the call that rank 0 did not come to");
    void* rest = nullptr;
    int dead[1] = {0};
    if (ncclCommShrink(comm, dead, 1, &rest, nullptr, 0) != rcnRemoteError)
      return "a communicator that has failed has shrunk without abort";
    RCN_CALL(ncclCommShrink(comm, dead, 1, &rest, nullptr, kAbortShrink));
    RCN_MEMBER(rest, rank - 1, 2);
    RCN_CALL(ncclCommDestroy(rest));
    RCN_CALL(ncclCommAbort(comm));
    return "";
  };
  pid_t children[2] = {};
  for (int i = 0; i < 2; ++i) {
    const int rank = 2 * i;  // this process is rank 1
    children[i] = ::fork();
    REQUIRE(children[i] >= 0);
    if (children[i] != 0) continue;
    void* comm = nullptr;
    int value = 1;
    bool ok = ncclCommInitRank(&comm, 3, id, rank) == rcnSuccess;
    ok = ok && ncclAllReduce(&value, &value, 1, rcnInt32, rcnMax, comm, nullptr) == rcnSuccess;
    if (rank == 0) (void)::raise(SIGKILL);
    ::_exit(ok && survive(comm, rank).empty() ? 0 : 1);
  }
  void* comm = nullptr;
  REQUIRE(check(ncclCommInitRank(&comm, 3, id, 1), "ncclCommInitRank") == "");
  CHECK(survive(comm, 1) == "");
  int status = -1;
  REQUIRE(::waitpid(children[0], &status, 0) == children[0]);
  CHECK(WIFSIGNALED(status));
  REQUIRE(::waitpid(children[1], &status, 0) == children[1]);
  CHECK(status == 0);
}
