// SPDX-License-Identifier: Apache-2.0
//
// How calls on a device end when they cannot succeed. Names of the failures that others have met are in the
// test cases.
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/stream/stream_world.h"
#include "tests/support/catch.h"

namespace {

using namespace rocenante::test;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

std::string all_reduce(StreamRank& self, const Numbers& numbers, void* stream) {
  return failure(
      rcnAllReduce(numbers.data(), numbers.data(), numbers.count(), rcnUint32, rcnSum, self.comm(), stream),
      "rcnAllReduce");
}

// "" if `text` contains each of `parts`.
template <class... Parts>
std::string expect(const std::string& text, Parts... parts) {
  for (const char* part : {parts...}) {
    if (text.find(part) == std::string::npos) return "'" + text + "' lacks '" + part + "'";
  }
  return "";
}

// The communicator's error, as soon as there is one.
std::string async_error(rcnComm_t comm) {
  for (;;) {
    rcnResult_t result = rcnSuccess;
    STREAM_CALL(rcnCommGetAsyncError(comm, &result));
    if (result != rcnSuccess) return std::string(rcnGetErrorString(result)) + ": " + rcnGetLastError(comm);
    std::this_thread::yield();
  }
}

}  // namespace

TEST_CASE("A deadline ends a waiting launch, and the error says what was waited for") {
  const std::string options = "ROCENANTE_TIMEOUT_S=0.2;ROCENANTE_FIRST_OP_TIMEOUT_S=600";
  const std::string error = run_streams({3, 1, {}, options}, [](StreamRank& self) {
    SimDevice& device = self.device();
    void* const stream = device.make_stream();
    const Numbers first(device, 10), second(device, 77);
    STREAM_TRY(all_reduce(self, first, stream));
    STREAM_TRY(failure(device.synchronise(stream)));
    (*self.meet)();
    std::string found;
    if (self.rank() != 2) {
      STREAM_TRY(all_reduce(self, second, stream));
      if (device.synchronise(stream).ok()) return std::string("a call without its peer ended well");
      found = async_error(self.comm());
    }
    (*self.meet)();
    // Told to the one that did not come.
    if (self.rank() == 2) found = async_error(self.comm());
    (*self.meet)();
    return expect(found, "all_reduce of 77 uint32 sum", "epoch 2", "rank 2", "did not come within 0.200 s",
                  "its signal was epoch 1");
  });
  REQUIRE(error == "");
}

// "Epoch advanced after a timeout": the round that failed has not happened for whoever gave up, calls after
// it do nothing, and so do those of peers that have been told.
TEST_CASE("After a timeout nothing is written, no epoch advances and later calls do nothing") {
  const std::string options = "ROCENANTE_TIMEOUT_S=0.1;ROCENANTE_FIRST_OP_TIMEOUT_S=600";
  const std::string error = run_streams({2, 1, {}, options}, [](StreamRank& self) {
    SimDevice& device = self.device();
    void* const stream = device.make_stream();
    const Numbers data(device, 64);
    STREAM_TRY(failure(device.begin_capture(stream)));
    STREAM_TRY(all_reduce(self, data, stream));
    auto captured = device.end_capture(stream);
    STREAM_TRY(failure(captured.status()));
    const auto graph = captured.take();
    STREAM_TRY(failure(device.replay(graph, stream)));
    STREAM_TRY(failure(device.synchronise(stream)));
    (*self.meet)();
    if (self.rank() == 0) {
      fill(data.data(), data.count(), 5, 0);
      const auto start = Clock::now();
      // The first gives up, the others see that it has.
      for (int run = 0; run < 50; ++run) STREAM_TRY(failure(device.replay(graph, stream)));
      if (device.synchronise(stream).ok()) return std::string("calls without their peer ended well");
      if (Clock::now() - start > milliseconds(40 * 100)) return std::string("each call waited");
      for (std::size_t place = 0; place < data.count(); ++place) {
        if (data.data()[place] != value_of(5, 0, place)) return std::string("a failed call wrote");
      }
      if (device.epoch() != 1) return std::string("a failed call advanced the epoch");
      STREAM_TRY(expect(async_error(self.comm()), "epoch 2"));
      STREAM_TRY(expect(all_reduce(self, data, stream), "did not come"));
    }
    (*self.meet)();
    if (self.rank() == 1) {
      // Until it is told, rank 1 may well complete the round: rank 0 had published before it gave up.
      STREAM_TRY(expect(async_error(self.comm()), "epoch 2", "reported by rank 0"));
      STREAM_TRY(failure(device.replay(graph, stream)));
      if (device.synchronise(stream).ok()) return std::string("a late call ended well");
    }
    return std::string();
  });
  REQUIRE(error == "");
}

// "Startup skew": ranks may come minutes apart to their first call.
TEST_CASE("The first call has a budget of its own") {
  const std::string options = "ROCENANTE_TIMEOUT_S=0.02;ROCENANTE_FIRST_OP_TIMEOUT_S=600";
  const std::string error = run_streams({2, 1, {}, options}, [](StreamRank& self) {
    SimDevice& device = self.device();
    void* const stream = device.make_stream();
    const Numbers data(device, 64);
    if (self.rank() == 1) {
      // Several deadlines late.
      const auto start = Clock::now();
      while (Clock::now() - start < milliseconds(200)) std::this_thread::yield();
    }
    STREAM_TRY(all_reduce(self, data, stream));
    return failure(device.synchronise(stream));
  });
  REQUIRE(error == "");
}

TEST_CASE("Abort frees a waiting launch, from another thread and whatever the stream") {
  const std::string error = run_streams({2, 1, {}, ""}, [](StreamRank& self) {
    SimDevice& device = self.device();
    void* const stream = device.make_stream();
    const Numbers data(device, 64);
    std::string found;
    if (self.rank() == 0) {
      STREAM_TRY(all_reduce(self, data, stream));
      while (device.launches() == 0) std::this_thread::yield();
      std::thread([&] { found = failure(rcnCommAbort(self.release()), "rcnCommAbort"); }).join();
      if (device.synchronise(stream).ok()) found += "an aborted call ended well";
    }
    (*self.meet)();
    if (self.rank() == 1) {
      found = expect(async_error(self.comm()), "rank 0 aborted the communicator");
      // In vain, and at once.
      (void)all_reduce(self, data, stream);
    }
    return found;
  });
  REQUIRE(error == "");
}

// "Poison read unevenly": threads of a group that see an abort at different looks must not part at a
// barrier. The simulated device ends the program if they do.
TEST_CASE("An abort at any moment gives the threads of a group one verdict") {
  for (int turn = 0; turn < 12; ++turn) {
    const StreamWorld world{2, 1, {4, 3, 64}, "ROCENANTE_SLOT_BYTES=4096"};
    const std::string error = run_streams(world, [&](StreamRank& self) {
      SimDevice& device = self.device();
      void* const stream = device.make_stream();
      const Numbers data(device, 20000);  // many rounds
      std::string enqueued = all_reduce(self, data, stream);
      if (self.rank() == 1) {
        STREAM_TRY(std::move(enqueued));  // rank 0 may come after the abort
        while (device.launches() == 0) std::this_thread::yield();
        for (int i = 0; i < turn * 5; ++i) std::this_thread::yield();
        STREAM_CALL(rcnCommAbort(self.release()));
      }
      (void)device.synchronise(stream);
      return std::string();
    });
    REQUIRE(error == "");
  }
}

TEST_CASE("A peer that has left is noticed by the launch that needs it, and by no other") {
  const std::string transport = GENERATE("auto", "tcp");
  const std::string options = "ROCENANTE_TRANSPORT=" + transport;
  const std::string error = run_streams({3, 1, {}, options}, [](StreamRank& self) {
    SimDevice& device = self.device();
    void* const stream = device.make_stream();
    const Numbers data(device, 50);
    fill(data.data(), data.count(), 3, self.rank());
    STREAM_TRY(all_reduce(self, data, stream));
    if (self.rank() == 2) {
      // Ends with its call enqueued and goes.
      return failure(rcnCommDestroy(self.release()), "rcnCommDestroy");
    }
    STREAM_TRY(failure(device.synchronise(stream)));
    STREAM_TRY(judge(data.data(), data.count(), 3, 3));
    STREAM_TRY(all_reduce(self, data, stream));
    if (device.synchronise(stream).ok()) return std::string("a call without its peer ended well");
    return expect(async_error(self.comm()), "rank 2 has left the communicator", "needed by all_reduce");
  });
  REQUIRE(error == "");
}

TEST_CASE("Ranks that call different things learn so from the device") {
  const std::string error = run_streams({2, 1, {}, ""}, [](StreamRank& self) {
    SimDevice& device = self.device();
    void* const stream = device.make_stream();
    const Numbers data(device, self.rank() == 0 ? 300 : 400);
    STREAM_TRY(all_reduce(self, data, stream));
    if (device.synchronise(stream).ok()) return std::string("different calls ended well");
    return expect(async_error(self.comm()), "invalid usage", "all_reduce of 300", "all_reduce of 400");
  });
  REQUIRE(error == "");
}

TEST_CASE("A communicator goes before its graphs; their replays end with an error and free its memory") {
  const std::string error = run_streams({2, 1, {}, ""}, [](StreamRank& self) {
    SimDevice& device = self.device();
    void* const stream = device.make_stream();
    const Numbers data(device, 64);
    std::vector<std::shared_ptr<SimGraph>> graphs;
    for (int i = 0; i < 2; ++i) {
      STREAM_TRY(failure(device.begin_capture(stream)));
      STREAM_TRY(all_reduce(self, data, stream));
      auto captured = device.end_capture(stream);
      STREAM_TRY(failure(captured.status()));
      graphs.push_back(captured.take());
    }
    STREAM_TRY(failure(device.replay(graphs[0], stream)));
    // With a replay in progress, which ends as it would have.
    STREAM_CALL(rcnCommDestroy(self.release()));
    STREAM_TRY(failure(device.synchronise(stream)));
    fill(data.data(), data.count(), 1, 0);
    for (const auto& graph : graphs) {
      STREAM_TRY(failure(device.replay(graph, stream)));
      if (device.synchronise(stream).ok())
        return std::string("a replay without its communicator ended well");
    }
    for (std::size_t place = 0; place < data.count(); ++place) {
      if (data.data()[place] != value_of(1, 0, place)) return std::string("a replay without it wrote");
    }
    graphs.pop_back();
    if (device.memory_ranges() < 2) return std::string("the memory went before the last graph");
    graphs.clear();
    // Let go of on another thread; `data` stays.
    while (device.memory_ranges() != 1) std::this_thread::yield();
    return std::string();
  });
  REQUIRE(error == "");
}

TEST_CASE("Destroying waits for what is enqueued, and memory goes with the communicator") {
  const std::string error = run_streams({2, 1, {}, ""}, [](StreamRank& self) {
    SimDevice& device = self.device();
    void* const stream = device.make_stream();
    const Numbers data(device, 1000);
    fill(data.data(), data.count(), 8, self.rank());
    STREAM_TRY(all_reduce(self, data, stream));
    STREAM_CALL(rcnCommDestroy(self.release()));
    STREAM_TRY(failure(device.synchronise(stream)));
    // The regions go when the peer, too, has let go of them; `data` stays.
    while (device.memory_ranges() != 1) std::this_thread::yield();
    return judge(data.data(), data.count(), 8, 2);
  });
  REQUIRE(error == "");
}
