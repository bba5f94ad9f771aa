// SPDX-License-Identifier: Apache-2.0
//
// NCCL's calls with a device's pointers and streams, in our own world: each rank is a thread with a
// simulated device. Run with ROCENANTE_FALLBACK=off and ROCENANTE_DEVICE=sim.
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/abi/nccl_ranks.h"
#include "tests/stream/stream_world.h"
#include "tests/support/catch.h"

namespace rocenante::test {
namespace {

struct StreamedRank {
  int rank;
  int ranks;
  void* comm;
  std::shared_ptr<SimDevice> device;
};

// Runs `body` on a thread for each rank, and destroys the communicator; the texts that they returned.
template <class Body>
std::string run_ranks(int ranks, Body body, bool blocking = true) {
  rcnUniqueId id;
  RCN_CALL(ncclGetUniqueId(&id));
  std::vector<std::string> results(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      results[static_cast<std::size_t>(rank)] = [&]() -> std::string {
        const auto device = std::make_shared<SimDevice>();
        SimDevice::make_current(device);
        void* comm = nullptr;
        nccl::ConfigHead config{sizeof config, nccl::kConfigMagic, 22800, blocking ? 1 : 0};
        RCN_DONE(ncclCommInitRankConfig(&comm, ranks, id, rank, &config), comm);
        if (std::string text = body(StreamedRank{rank, ranks, comm, device}); !text.empty()) {
          (void)ncclCommAbort(comm);
          return text;
        }
        RCN_CALL(ncclCommDestroy(comm));
        return "";
      }();
      SimDevice::make_current(nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (const std::string& result : results) all += result;
  return all;
}

constexpr std::size_t kCounts[] = {1, 3, 28, 29, 1000, 70000};

// An all-reduce of both ranks of a world that this thread holds, each with a buffer and a stream of its
// device.
std::string reduce_on(void* const (&comms)[2], SimDevice& first, SimDevice& second) {
  constexpr std::size_t kCount = 300;
  SimDevice* const devices[2] = {&first, &second};
  std::vector<std::unique_ptr<Numbers>> numbers;
  void* streams[2] = {};
  RCN_CALL(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank) {
    numbers.push_back(std::make_unique<Numbers>(*devices[rank], kCount));
    fill(numbers.back()->data(), kCount, 1, rank);
    streams[rank] = devices[rank]->make_stream();
    std::uint32_t* const data = numbers.back()->data();
    RCN_CALL(ncclAllReduce(data, data, kCount, rcnUint32, rcnSum, comms[rank], streams[rank]));
  }
  RCN_CALL(ncclGroupEnd());
  for (int rank = 0; rank < 2; ++rank) {
    STREAM_TRY(failure(devices[rank]->synchronise(streams[rank])));
    STREAM_TRY(judge(numbers[static_cast<std::size_t>(rank)]->data(), kCount, 1, 2));
  }
  return "";
}

}  // namespace

TEST_CASE("a communicator's device is the caller's current one when it asks, whoever sets it up") {
  const auto first = std::make_shared<SimDevice>();
  const auto second = std::make_shared<SimDevice>();
  for (const bool blocking : {true, false}) {
    nccl::ConfigHead config{sizeof config, nccl::kConfigMagic, 22800, blocking ? 1 : 0};
    rcnUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
    void* comms[2] = {};
    REQUIRE(ncclGroupStart() == rcnSuccess);
    SimDevice::make_current(first);
    REQUIRE(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config) == rcnSuccess);
    SimDevice::make_current(second);
    REQUIRE(ncclCommInitRankConfig(&comms[1], 2, id, 1, &config) == rcnSuccess);
    SimDevice::make_current(nullptr);
    const rcnResult_t made = ncclGroupEnd();
    for (void* comm : comms) REQUIRE(done(made, comm, "ncclGroupEnd") == "");
    CHECK(reduce_on(comms, *first, *second) == "");
    // What is made out of them is on the same devices.
    void* rest[2] = {};
    REQUIRE(ncclGroupStart() == rcnSuccess);
    for (int rank = 0; rank < 2; ++rank)
      REQUIRE(ncclCommShrink(comms[rank], nullptr, 0, &rest[rank], nullptr, 0) == rcnSuccess);
    const rcnResult_t shrunk = ncclGroupEnd();
    for (void* comm : comms) REQUIRE(done(shrunk, comm, "ncclGroupEnd") == "");
    CHECK(reduce_on(rest, *first, *second) == "");
    for (void* comm : {rest[0], rest[1], comms[0], comms[1]}) CHECK(ncclCommDestroy(comm) == rcnSuccess);
  }
}

TEST_CASE("communicators made all at once are on the devices that the list names") {
  const auto first = std::make_shared<SimDevice>();
  const auto second = std::make_shared<SimDevice>();
  SimDevice::number({first, second});
  const int devices[2] = {1, 0};
  void* comms[2] = {};
  REQUIRE(check(ncclCommInitAll(comms, 2, devices), "ncclCommInitAll") == "");
  CHECK(reduce_on(comms, *second, *first) == "");
  for (void* comm : comms) CHECK(ncclCommDestroy(comm) == rcnSuccess);
  REQUIRE(check(ncclCommInitAll(comms, 2, nullptr), "ncclCommInitAll") == "");
  CHECK(reduce_on(comms, *first, *second) == "");
  for (void* comm : comms) CHECK(ncclCommDestroy(comm) == rcnSuccess);
  const int missing[2] = {0, 2};
  CHECK(ncclCommInitAll(comms, 2, missing) == rcnInvalidUsage);
  CHECK(std::string(ncclGetLastError(nullptr)).find("no simulated device 2") != std::string::npos);
  SimDevice::number({});
}

TEST_CASE("ncclAllReduce takes a device's buffers and a stream, and returns before the peers have called") {
  std::atomic<int> enqueued{0};
  CHECK(run_ranks(3, [&](const StreamedRank& self) -> std::string {
          void* const stream = self.device->make_stream();
          int all = 0;
          for (const std::size_t count : kCounts) {
            const Numbers in(*self.device, count);
            const Numbers out(*self.device, count);
            fill(in.data(), count, count, self.rank);
            RCN_CALL(ncclAllReduce(in.data(), out.data(), count, rcnUint32, rcnSum, self.comm, stream));
            RCN_CALL(ncclAllReduce(in.data(), in.data(), count, rcnUint32, rcnSum, self.comm, stream));
            // A call that waited for its peers would never let all come here.
            ++enqueued;
            all += self.ranks;
            while (enqueued < all) std::this_thread::yield();
            STREAM_TRY(failure(self.device->synchronise(stream)));
            STREAM_TRY(judge(out.data(), count, count, self.ranks));
            STREAM_TRY(judge(in.data(), count, count, self.ranks));
          }
          return "";
        }) == "");
}

TEST_CASE("captured calls of NCCL run when their graph does") {
  CHECK(run_ranks(2, [&](const StreamedRank& self) -> std::string {
          constexpr std::size_t kCount = 5000;
          void* const stream = self.device->make_stream();
          const Numbers in(*self.device, kCount);
          const Numbers out(*self.device, kCount);
          STREAM_TRY(failure(self.device->begin_capture(stream)));
          RCN_CALL(ncclGroupStart());
          RCN_CALL(ncclAllReduce(in.data(), out.data(), kCount, rcnUint32, rcnSum, self.comm, stream));
          RCN_CALL(ncclGroupEnd());
          Result<std::shared_ptr<SimGraph>> graph = self.device->end_capture(stream);
          STREAM_TRY(failure(graph.status()));
          for (std::size_t place = 0; place < kCount; ++place) {
            if (out.data()[place] != 0) return "a captured call ran";
          }
          for (std::uint64_t replay = 1; replay <= 20; ++replay) {
            fill(in.data(), kCount, replay, self.rank);
            STREAM_TRY(failure(self.device->replay(graph.value(), stream)));
            STREAM_TRY(failure(self.device->synchronise(stream)));
            STREAM_TRY(judge(out.data(), kCount, replay, self.ranks));
          }
          return "";
        }) == "");
}

// Rank 0's call comes behind a kernel of its client's, which ends when it has begun to finalize.
TEST_CASE("finalizing flushes what was enqueued, blocking or not") {
  for (const bool blocking : {true, false}) {
    std::atomic<bool> finalizes{false};
    CHECK(run_ranks(
              2,
              [&](const StreamedRank& self) -> std::string {
                constexpr std::size_t kCount = 5000;
                void* const stream = self.device->make_stream();
                const Numbers numbers(*self.device, kCount);
                fill(numbers.data(), kCount, 1, self.rank);
                if (self.rank == 0) {
                  STREAM_TRY(failure(self.device->run(stream, [&] {
                    while (!finalizes) std::this_thread::yield();
                  })));
                }
                std::uint32_t* const data = numbers.data();
                RCN_CALL(ncclAllReduce(data, data, kCount, rcnUint32, rcnSum, self.comm, stream));
                if (self.rank == 0) finalizes = true;
                RCN_DONE(ncclCommFinalize(self.comm), self.comm);
                // Nobody has waited for the stream.
                return judge(data, kCount, 1, self.ranks);
              },
              blocking) == "");
  }
}

// Rank 1 never comes; the call ends by its deadline.
TEST_CASE("finalizing tells that what was enqueued has failed, blocking or not") {
  ::setenv("ROCENANTE_FIRST_OP_TIMEOUT_S", "0.2", 1);
  for (const bool blocking : {true, false}) {
    std::atomic<bool> finalized{false};
    CHECK(run_ranks(
              2,
              [&](const StreamedRank& self) -> std::string {
                if (self.rank == 1) {
                  while (!finalized) std::this_thread::yield();
                  return "";
                }
                const Numbers numbers(*self.device, 100);
                RCN_CALL(ncclAllReduce(numbers.data(), numbers.data(), 100, rcnUint32, rcnSum, self.comm,
                                       self.device->make_stream()));
                rcnResult_t state = ncclCommFinalize(self.comm);
                while (state == rcnInProgress) RCN_CALL(ncclCommGetAsyncError(self.comm, &state));
                finalized = true;
                return state == rcnTimeout || state == rcnRemoteError
                           ? ""
                           : "the state is " + std::to_string(state);
              },
              blocking) == "");
  }
  ::unsetenv("ROCENANTE_FIRST_OP_TIMEOUT_S");
}

TEST_CASE("what a device does not do yet, and what is not its own, is refused with a text") {
  CHECK(run_ranks(2, [&](const StreamedRank& self) -> std::string {
          void* const stream = self.device->make_stream();
          const Numbers numbers(*self.device, 64);
          if (ncclAllGather(numbers.data(), numbers.data() + 32, 16, rcnUint32, self.comm, stream) !=
              rcnInvalidUsage) {
            return "an all-gather was taken";
          }
          if (std::string(ncclGetLastError(nullptr)).find("only all_reduce is") == std::string::npos)
            return ncclGetLastError(nullptr);
          std::vector<std::uint32_t> elsewhere(64);
          if (ncclAllReduce(elsewhere.data(), numbers.data(), 64, rcnUint32, rcnSum, self.comm, stream) !=
              rcnInvalidArgument) {
            return "memory of the host was taken";
          }
          if (std::string(ncclGetLastError(nullptr)).find("sendbuff") == std::string::npos)
            return ncclGetLastError(nullptr);
          int no_stream = 0;
          if (ncclAllReduce(numbers.data(), numbers.data(), 64, rcnUint32, rcnSum, self.comm, &no_stream) !=
              rcnInvalidArgument) {
            return "a stream that is none was taken";
          }
          // Nothing of it has harmed the communicator.
          fill(numbers.data(), 64, 1, self.rank);
          RCN_CALL(ncclAllReduce(numbers.data(), numbers.data(), 64, rcnUint32, rcnSum, self.comm, stream));
          STREAM_TRY(failure(self.device->synchronise(stream)));
          return judge(numbers.data(), 64, 1, self.ranks);
        }) == "");
}

}  // namespace rocenante::test
