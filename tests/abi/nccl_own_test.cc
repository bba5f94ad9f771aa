// SPDX-License-Identifier: Apache-2.0
//
// libnccl.so.2 in its own world: what is refused and how. Run with ROCENANTE_FALLBACK=off.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "nccl_shim/libnccl/abi.h"
#include "tests/abi/nccl_api.h"
#include "tests/support/catch.h"

using rocenante::nccl::ConfigHead;
using rocenante::nccl::kConfigMagic;
using rocenante::nccl::SimInfo;

namespace {

bool said(const char* text) {
  return std::string(ncclGetLastError(nullptr)).find(text) != std::string::npos;
}

rcnResult_t reduce_one(void* comm) {
  int value = 1;
  return ncclAllReduce(&value, &value, 1, rcnInt32, rcnSum, comm, nullptr);
}

void* make_one() {
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  void* comm = nullptr;
  REQUIRE(ncclCommInitRank(&comm, 1, id, 0) == rcnSuccess);
  return comm;
}

// Every call that takes a communicator, on one that is no good.
void expect_refused(void* comm, rcnResult_t expected) {
  int number = 0;
  rcnResult_t state = rcnSuccess;
  void* handle = nullptr;
  rcnRedOp_t op = rcnSum;
  float scalar = 1;
  CHECK(reduce_one(comm) == expected);
  CHECK(ncclAllGather(&number, &number, 1, rcnInt32, comm, nullptr) == expected);
  CHECK(ncclReduceScatter(&number, &number, 1, rcnInt32, rcnSum, comm, nullptr) == expected);
  CHECK(ncclBroadcast(&number, &number, 1, rcnInt32, 0, comm, nullptr) == expected);
  CHECK(ncclReduce(&number, &number, 1, rcnInt32, rcnSum, 0, comm, nullptr) == expected);
  CHECK(ncclCommCount(comm, &number) == expected);
  CHECK(ncclCommCuDevice(comm, &number) == expected);
  CHECK(ncclCommGetAsyncError(comm, &state) == expected);
  CHECK(ncclCommRegister(comm, &number, 4, &handle) == expected);
  CHECK(ncclCommDeregister(comm, handle) == expected);
  CHECK(ncclRedOpCreatePreMulSum(&op, &scalar, rcnFloat32, rcnScalarHostImmediate, comm) == expected);
  CHECK(ncclRedOpDestroy(static_cast<rcnRedOp_t>(5), comm) == expected);
  rcnUniqueId id;
  CHECK(ncclCommSplit(comm, 0, 0, &handle, nullptr) == expected);
  CHECK(ncclCommShrink(comm, nullptr, 0, &handle, nullptr, 0) == expected);
  CHECK(ncclCommShrink(comm, nullptr, 0, &handle, nullptr, 1) == expected);
  CHECK(ncclCommGrow(comm, 2, nullptr, -1, &handle, nullptr) == expected);
  CHECK(ncclCommGetUniqueId(comm, &id) == expected);
  CHECK(ncclCommFinalize(comm) == expected);
  CHECK(ncclCommRevoke(comm, 0) == expected);
  CHECK(ncclCommDestroy(comm) == expected);
  CHECK(ncclCommAbort(comm) == expected);
}

}  // namespace

TEST_CASE("the version is the documented level, and texts are ours") {
  int version = 0;
  CHECK(ncclGetVersion(&version) == rcnSuccess);
  CHECK(version == rocenante::nccl::kAbiLevel);
  CHECK(ncclGetVersion(nullptr) == rcnInvalidArgument);
  CHECK(said("version"));
  CHECK(std::string(ncclGetErrorString(rcnSuccess)) == "no error");
  CHECK(std::string(ncclGetErrorString(rcnNumResults)) == "unknown result code");
}

TEST_CASE("what only a real library has says so, or is zero") {
  CHECK(ncclCommSuspend(nullptr, 0) == rcnInvalidUsage);
  CHECK(said("ncclCommSuspend"));
  CHECK(said("ROCENANTE_FALLBACK=off"));
  const Team team = ncclTeamWorld(nullptr);
  CHECK((team.ranks == 0 && team.rank == 0 && team.stride == 0));
  CHECK(ncclLLA2ACalcSlots(3, 4) == 0);
}

TEST_CASE("handles that nobody made are refused") {
  void* const comm = make_one();
  expect_refused(nullptr, rcnInvalidArgument);
  CHECK(said("comm is NULL"));
  int local = 0;
  expect_refused(&local, rcnInvalidArgument);
  CHECK(said("is not a communicator"));
  expect_refused(reinterpret_cast<void*>(0x10), rcnInvalidArgument);
  expect_refused(static_cast<unsigned char*>(comm) + 8, rcnInvalidArgument);
  expect_refused(static_cast<unsigned char*>(comm) + 64 * 1000, rcnInvalidArgument);
  CHECK(ncclCommDestroy(comm) == rcnSuccess);
  expect_refused(comm, rcnInvalidArgument);
  CHECK(said("has been destroyed or aborted"));
}

TEST_CASE("arguments are judged before anything is done") {
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  void* comm = &id;
  CHECK(ncclGetUniqueId(nullptr) == rcnInvalidArgument);
  CHECK(ncclCommInitRank(nullptr, 1, id, 0) == rcnInvalidArgument);
  CHECK(ncclCommInitRank(&comm, 0, id, 0) == rcnInvalidArgument);
  CHECK(ncclCommInitRank(&comm, 2, id, 2) == rcnInvalidArgument);
  CHECK(ncclCommInitRankScalable(&comm, 1, 0, 0, &id, nullptr) == rcnInvalidArgument);
  ConfigHead config{sizeof config, 0, 22800, 1};
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == rcnInvalidArgument);
  CHECK(said("NCCL_CONFIG_INITIALIZER"));
  config = {8, kConfigMagic, 22800, 1};
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == rcnInvalidArgument);
  config = {sizeof config, kConfigMagic, 22800, 7};
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == rcnInvalidArgument);
  CHECK(said("blocking is 7"));
  CHECK(comm == &id);
  rcnUniqueId other = {};
  CHECK(ncclCommInitRank(&comm, 1, other, 0) == rcnInvalidArgument);
  CHECK(said("no real NCCL is in use"));
  void* comms[2];
  const int twice[] = {1, 1};
  CHECK(ncclCommInitAll(comms, 2, twice) == rcnInvalidUsage);
  const int negative[] = {0, -1};
  CHECK(ncclCommInitAll(comms, 2, negative) == rcnInvalidArgument);
  CHECK(ncclCommInitAll(nullptr, 2, nullptr) == rcnInvalidArgument);

  REQUIRE(ncclCommInitRankScalable(&comm, 1, 0, 1, &id, nullptr) == rcnSuccess);
  int value = 1;
  int stream = 0;
  CHECK(ncclAllReduce(&value, &value, 1, rcnNumTypes, rcnSum, comm, nullptr) == rcnInvalidArgument);
  CHECK(ncclAllReduce(&value, &value, 1, rcnInt32, static_cast<rcnRedOp_t>(9), comm, nullptr) ==
        rcnInvalidArgument);
  CHECK(ncclAllReduce(nullptr, &value, 1, rcnInt32, rcnSum, comm, nullptr) == rcnInvalidArgument);
  CHECK(ncclAllReduce(&value, &value, 1, rcnInt32, rcnSum, comm, &stream) == rcnInvalidArgument);
  CHECK(ncclCommDestroy(comm) == rcnSuccess);
}

TEST_CASE("a call's own configuration is a hint, unless it names an event") {
  void* const comm = make_one();
  int value = 3;
  struct {
    size_t size = sizeof(*this);
    unsigned magic = kConfigMagic;
    unsigned version = 23200;
    unsigned char rest[48] = {};
    void* event = nullptr;
  } config;
  static_assert(offsetof(decltype(config), event) == rocenante::nccl::kCollConfigEventOffset);
  CHECK(ncclAllReduceConfig(&value, &value, 1, rcnInt32, rcnSum, comm, nullptr, nullptr) == rcnSuccess);
  CHECK(ncclAllReduceConfig(&value, &value, 1, rcnInt32, rcnSum, comm, nullptr, &config) == rcnSuccess);
  config.event = &value;
  CHECK(ncclAllReduceConfig(&value, &value, 1, rcnInt32, rcnSum, comm, nullptr, &config) ==
        rcnInvalidUsage);
  config.magic = 1;
  CHECK(ncclAllReduceConfig(&value, &value, 1, rcnInt32, rcnSum, comm, nullptr, &config) ==
        rcnInvalidArgument);
  CHECK(ncclCommDestroy(comm) == rcnSuccess);
}

TEST_CASE("the other collectives judge their arguments too, and take a configuration") {
  void* const comm = make_one();
  int value = 3;
  int copy = 0;
  CHECK(ncclBroadcast(&value, &copy, 1, rcnInt32, 1, comm, nullptr) == rcnInvalidArgument);
  CHECK(said("root is 1: expected 0 to 0"));
  CHECK(ncclReduce(&value, &copy, 1, rcnInt32, rcnSum, -1, comm, nullptr) == rcnInvalidArgument);
  CHECK(said("root is -1"));
  CHECK(ncclReduceScatter(&value, nullptr, 1, rcnInt32, rcnSum, comm, nullptr) == rcnInvalidArgument);
  CHECK(said("recvbuff is NULL with recvcount 1"));
  CHECK(ncclAlltoAll(&value, &value, 1, rcnInt32, comm, nullptr) == rcnInvalidArgument);
  CHECK(said("must be apart"));
  CHECK(ncclAlltoAll(&value, &copy, 1, rcnInt32, comm, nullptr) == rcnSuccess);
  CHECK(copy == 3);
  CHECK(ncclSend(&value, 1, rcnInt32, 0, comm, nullptr) == rcnInvalidUsage);
  CHECK(said("send is not native yet"));
  struct {
    size_t size = sizeof(*this);
    unsigned magic = kConfigMagic;
    unsigned version = 23200;
    unsigned char rest[48] = {};
  } config;
  value = 4;
  CHECK(ncclAllGatherConfig(&value, &copy, 1, rcnInt32, comm, nullptr, &config) == rcnSuccess);
  CHECK(copy == 4);
  config.magic = 1;
  CHECK(ncclAllGatherConfig(&value, &copy, 1, rcnInt32, comm, nullptr, &config) == rcnInvalidArgument);
  CHECK(ncclCommDestroy(comm) == rcnSuccess);
}

TEST_CASE("after finalize only destroying is left, after revoke too") {
  void* comm = make_one();
  CHECK(reduce_one(comm) == rcnSuccess);
  CHECK(ncclCommFinalize(comm) == rcnSuccess);
  CHECK(reduce_one(comm) == rcnInvalidUsage);
  CHECK(said("finalized"));
  CHECK(ncclCommFinalize(comm) == rcnInvalidUsage);
  rcnResult_t state = rcnInternalError;
  CHECK(ncclCommGetAsyncError(comm, &state) == rcnSuccess);
  CHECK(state == rcnSuccess);
  CHECK(ncclCommDestroy(comm) == rcnSuccess);

  comm = make_one();
  CHECK(ncclCommRevoke(comm, 1) == rcnInvalidArgument);
  CHECK(ncclCommRevoke(comm, 0) == rcnSuccess);
  CHECK(reduce_one(comm) == rcnInvalidUsage);
  CHECK(said("revoked"));
  CHECK(ncclCommGetAsyncError(comm, &state) == rcnSuccess);
  CHECK(state == rcnSuccess);
  CHECK(ncclCommDestroy(comm) == rcnSuccess);
}

TEST_CASE("memory and registrations") {
  void* memory = nullptr;
  REQUIRE(ncclMemAlloc(&memory, 5000) == rcnSuccess);
  CHECK(reinterpret_cast<std::uintptr_t>(memory) % 4096 == 0);
  std::memset(memory, 1, 5000);
  CHECK(ncclMemFree(static_cast<char*>(memory) + 1) == rcnInvalidArgument);
  CHECK(ncclMemFree(memory) == rcnSuccess);
  CHECK(ncclMemFree(memory) == rcnInvalidArgument);
  CHECK(ncclMemFree(nullptr) == rcnSuccess);
  CHECK(ncclMemAlloc(nullptr, 1) == rcnInvalidArgument);
  CHECK(ncclMemAlloc(&memory, 0) == rcnSuccess);
  CHECK(memory == nullptr);
  CHECK(ncclMemAlloc(&memory, SIZE_MAX) == rcnSystemError);

  void* const comm = make_one();
  void* const other = make_one();
  int buffer = 0;
  void* handle = nullptr;
  CHECK(ncclCommRegister(comm, &buffer, sizeof buffer, &handle) == rcnSuccess);
  CHECK(ncclCommDeregister(other, handle) == rcnInvalidArgument);
  CHECK(ncclCommDeregister(comm, handle) == rcnSuccess);
  CHECK(ncclCommDeregister(comm, handle) == rcnInvalidArgument);
  CHECK(ncclCommDestroy(comm) == rcnSuccess);
  CHECK(ncclCommDestroy(other) == rcnSuccess);
}

TEST_CASE("groups: an end without a start, and a simulated end drops the calls") {
  CHECK(ncclGroupEnd() == rcnInvalidUsage);
  SimInfo info{sizeof info, rocenante::nccl::kSimInfoMagic, 22800, -1};
  CHECK(ncclGroupSimulateEnd(&info) == rcnInvalidUsage);
  void* const comm = make_one();
  int value = 5;
  CHECK(ncclGroupStart() == rcnSuccess);
  CHECK(ncclAllReduce(&value, &value, 1, rcnInt32, rcnSum, comm, nullptr) == rcnSuccess);
  CHECK(ncclGroupSimulateEnd(&info) == rcnInvalidUsage);
  CHECK(ncclGroupEnd() == rcnInvalidUsage);
  // A destroy in a group comes after its calls.
  CHECK(ncclGroupStart() == rcnSuccess);
  CHECK(ncclCommDestroy(comm) == rcnSuccess);
  CHECK(ncclAllReduce(&value, &value, 1, rcnInt32, rcnSum, comm, nullptr) == rcnSuccess);
  CHECK(ncclGroupEnd() == rcnSuccess);
  CHECK(reduce_one(comm) == rcnInvalidArgument);
}

TEST_CASE("a group with a call that was refused performs nothing") {
  void* const comm = make_one();
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  int value = 5;
  int sum = 0;
  void* never = nullptr;
  CHECK(ncclGroupStart() == rcnSuccess);
  CHECK(ncclAllReduce(&value, &sum, 1, rcnInt32, rcnSum, comm, nullptr) == rcnSuccess);
  CHECK(ncclCommInitRank(&never, 1, id, 0) == rcnSuccess);
  CHECK(ncclCommDestroy(comm) == rcnSuccess);
  CHECK(ncclAllReduce(&value, nullptr, 1, rcnInt32, rcnSum, comm, nullptr) == rcnInvalidArgument);
  CHECK(ncclGroupEnd() == rcnInvalidArgument);
  CHECK(said("nothing of the group was performed: recvbuff is NULL"));
  CHECK(sum == 0);
  CHECK(never == nullptr);
  CHECK(reduce_one(comm) == rcnSuccess);
  CHECK(ncclCommDestroy(comm) == rcnSuccess);
}

TEST_CASE("a non-blocking initialisation can be polled, refused and aborted") {
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  ConfigHead config{sizeof config, kConfigMagic, 22800, 0};
  void* comm = nullptr;
  // The other rank never comes.
  CHECK(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == rcnInProgress);
  REQUIRE(comm != nullptr);
  rcnResult_t state = rcnSuccess;
  CHECK(ncclCommGetAsyncError(comm, &state) == rcnSuccess);
  CHECK(state == rcnInProgress);
  CHECK(reduce_one(comm) == rcnInvalidUsage);
  CHECK(said("still initialising"));
  CHECK(ncclCommDestroy(comm) == rcnInvalidUsage);
  CHECK(ncclCommAbort(comm) == rcnSuccess);
  CHECK(ncclCommAbort(comm) == rcnInvalidArgument);

  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  void* comms[2] = {};
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config) == rcnInProgress);
  }
  for (void* each : comms) {
    do {
      std::this_thread::yield();
      REQUIRE(ncclCommGetAsyncError(each, &state) == rcnSuccess);
    } while (state == rcnInProgress);
    CHECK(state == rcnSuccess);
  }
  int ones[2] = {1, 1};
  CHECK(ncclGroupStart() == rcnSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(ncclAllReduce(&ones[rank], &ones[rank], 1, rcnInt32, rcnSum, comms[rank], nullptr) == rcnSuccess);
  }
  CHECK(ncclGroupEnd() == rcnSuccess);
  CHECK((ones[0] == 2 && ones[1] == 2));
  for (void* each : comms) CHECK(ncclCommDestroy(each) == rcnSuccess);
}

TEST_CASE("several threads with communicators of their own, and one that is shared by mistake") {
  std::atomic<int> wrong{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        rcnUniqueId id;
        void* comm = nullptr;
        bool ok = ncclGetUniqueId(&id) == rcnSuccess && ncclCommInitRank(&comm, 1, id, 0) == rcnSuccess;
        for (int call = 0; ok && call < 50; ++call) ok = reduce_one(comm) == rcnSuccess;
        ok = ok && ncclCommDestroy(comm) == rcnSuccess && reduce_one(comm) == rcnInvalidArgument;
        wrong += ok ? 0 : 1;
      }
    });
  }
  threads.clear();
  CHECK(wrong == 0);
  void* const shared = make_one();
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < 1000; ++call) {
        const rcnResult_t result = reduce_one(shared);
        wrong += result == rcnSuccess || result == rcnInvalidUsage ? 0 : 1;
      }
    });
  }
  threads.clear();
  CHECK(wrong == 0);
  CHECK(ncclCommDestroy(shared) == rcnSuccess);
}

TEST_CASE("a child of a fork has an error for the parent's communicators, and may make its own") {
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  void* const comm = make_one();
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int code = 0;
    code |= reduce_one(comm) == rcnInvalidUsage && said("forked") ? 0 : 1;
    rcnResult_t state = rcnSuccess;
    code |= ncclCommGetAsyncError(comm, &state) == rcnInvalidUsage ? 0 : 2;
    code |= ncclCommDestroy(comm) == rcnInvalidUsage ? 0 : 4;
    rcnUniqueId own;
    void* made = nullptr;
    code |= ncclGetUniqueId(&own) == rcnSuccess && ncclCommInitRank(&made, 1, own, 0) == rcnSuccess ? 0 : 8;
    code |= reduce_one(made) == rcnSuccess && ncclCommDestroy(made) == rcnSuccess ? 0 : 16;
    ::_exit(code);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  // The id was made before the fork and still works.
  void* late = nullptr;
  CHECK(ncclCommInitRank(&late, 1, id, 0) == rcnSuccess);
  CHECK(ncclCommDestroy(late) == rcnSuccess);
  CHECK(reduce_one(comm) == rcnSuccess);
  CHECK(ncclCommDestroy(comm) == rcnSuccess);
}

TEST_CASE("a GPU that is asked for and not there is an error, and host memory still works") {
  if (::access("/dev/nvidiactl", F_OK) == 0) return;
  ::setenv("ROCENANTE_DEVICE", "cuda", 1);
  rcnUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  void* comm = nullptr;
  CHECK(ncclCommInitRank(&comm, 1, id, 0) != rcnSuccess);
  CHECK((said("no NVIDIA driver") || said("this build has no CUDA") || said("offers no CUDA device")));
  void* memory = nullptr;
  CHECK(ncclMemAlloc(&memory, 100) != rcnSuccess);
  ::unsetenv("ROCENANTE_DEVICE");
  comm = make_one();
  CHECK(reduce_one(comm) == rcnSuccess);
  CHECK(ncclCommDestroy(comm) == rcnSuccess);
}
