// SPDX-License-Identifier: Apache-2.0
//
// All-reduce on streams, captures and graphs of the simulated device.
#include <array>
#include <thread>

#include "tests/stream/stream_world.h"
#include "tests/support/catch.h"

namespace {

using namespace rocenante::test;
using rocenante::Code;
using rocenante::GroupShare;
using rocenante::Status;

// A call of ours between two kernels of the user's, one that makes the input and one that looks at the
// output. In a graph each run is another operation.
struct Step {
  Step(SimDevice& device, std::size_t count) : in(device, count), out(device, count) {}

  std::string enqueue(StreamRank& self, void* stream, std::size_t comm = 0) {
    SimDevice& device = self.device();
    const int rank = self.rank();
    const int ranks = self.ranks();
    STREAM_TRY(
        failure(device.run(stream, [this, rank] { fill(in.data(), in.count(), ++operation, rank); })));
    STREAM_CALL(
        rcnAllReduce(in.data(), out.data(), in.count(), rcnUint32, rcnSum, self.comm(comm), stream));
    return failure(device.run(stream, [this, ranks] {
      const std::string text = judge(out.data(), out.count(), operation, ranks);
      if (wrong.empty()) wrong = text;
    }));
  }

  Numbers in, out;
  std::uint64_t operation = 0;  // those of the stream's kernels
  std::string wrong;
};

}  // namespace

TEST_CASE("All-reduces on a stream give the right sums, whatever their size and place") {
  const int ranks = GENERATE(1, 2, 3, 4);
  const std::vector<std::size_t> counts = {1, 2, 5, 28, 29, 100, 1025, 5000};
  const std::string error = run_streams({ranks, 1, {}, "ROCENANTE_SLOT_BYTES=4096"}, [&](StreamRank& self) {
    SimDevice& device = self.device();
    void* const stream = device.make_stream();
    const Numbers in(device, 6000), out(device, 6000);
    std::uint64_t operation = 0;
    for (const std::size_t count : counts) {
      for (const bool in_place : {false, true}) {
        ++operation;
        std::uint32_t* const to = in_place ? in.data() + 1 : out.data() + 1;
        fill(in.data() + 1, count, operation, self.rank());
        STREAM_CALL(rcnAllReduce(in.data() + 1, to, count, rcnUint32, rcnSum, self.comm(), stream));
        STREAM_TRY(failure(device.synchronise(stream)));
        STREAM_TRY(judge(to, count, operation, self.ranks()));
      }
    }
    return std::string();
  });
  REQUIRE(error == "");
}

// "Stage and tail counters shared": groups that run apart by a round must not be counted together. Many
// groups and short rounds let them.
TEST_CASE("Groups of a launch may be a round apart") {
  const StreamWorld world{2, 1, {4, 1, 16}, "ROCENANTE_SLOT_BYTES=4096;ROCENANTE_CHUNK_BYTES=128"};
  const std::string error = run_streams(world, [&](StreamRank& self) {
    SimDevice& device = self.device();
    void* const stream = device.make_stream();
    std::vector<std::unique_ptr<Step>> steps;
    for (std::size_t i = 0; i < 10; ++i) {
      steps.push_back(std::make_unique<Step>(device, 1500));
      STREAM_TRY(steps[i]->enqueue(self, stream));
    }
    STREAM_TRY(failure(device.synchronise(stream)));
    std::string wrong;
    for (const auto& step : steps) wrong += step->wrong;
    return wrong;
  });
  REQUIRE(error == "");
}

TEST_CASE("A pre-multiplied sum multiplies on the device") {
  const std::string error = run_streams({3, 1, {}, ""}, [&](StreamRank& self) {
    SimDevice& device = self.device();
    void* const stream = device.make_stream();
    std::uint32_t factor = static_cast<std::uint32_t>(self.rank()) + 2;
    rcnRedOp_t op{};
    STREAM_CALL(rcnRedOpCreatePreMulSum(&op, &factor, rcnUint32, rcnScalarHostImmediate, self.comm()));
    const Numbers data(device, 300);
    for (const std::size_t count : {3, 300}) {
      fill(data.data(), count, 1, 0);
      STREAM_CALL(rcnAllReduce(data.data(), data.data(), count, rcnUint32, op, self.comm(), stream));
      STREAM_TRY(failure(device.synchronise(stream)));
      for (std::size_t place = 0; place < count; ++place) {
        if (data.data()[place] != value_of(1, 0, place) * (2 + 3 + 4))
          return std::string("a wrong product");
      }
    }
    STREAM_CALL(rcnRedOpDestroy(op, self.comm()));
    return std::string();
  });
  REQUIRE(error == "");
}

TEST_CASE("Enqueueing returns before any peer has enqueued") {
  // A call that waited would end by this deadline.
  const std::string options = "ROCENANTE_FIRST_OP_TIMEOUT_S=60";
  const std::string error = run_streams({2, 1, {}, options}, [](StreamRank& self) {
    SimDevice& device = self.device();
    void* const stream = device.make_stream();
    Step step(device, 100), other(device, 7);
    if (self.rank() == 0) {
      STREAM_TRY(step.enqueue(self, stream));
      STREAM_TRY(other.enqueue(self, stream));
    }
    (*self.meet)();
    if (self.rank() == 1) {
      STREAM_TRY(step.enqueue(self, stream));
      STREAM_TRY(other.enqueue(self, stream));
    }
    STREAM_TRY(failure(device.synchronise(stream)));
    return step.wrong + other.wrong;
  });
  REQUIRE(error == "");
}

// A call on a second stream must not touch the slots, and so not begin, before the first has ended: its
// stream may be far behind.
TEST_CASE("Nothing is staged before a call has waited for the one on another stream") {
  const std::string error = run_streams({2, 1, {}, ""}, [](StreamRank& self) {
    SimDevice& device = self.device();
    void* const first = device.make_stream();
    void* const second = device.make_stream();
    Step a(device, 500), b(device, 500), c(device, 500);
    SimTicket gate, reached;
    STREAM_TRY(failure(device.run(first, [&] { gate.wait(); })));
    STREAM_TRY(a.enqueue(self, first));
    STREAM_TRY(failure(device.run(second, [&] { reached.finish(); })));
    STREAM_TRY(b.enqueue(self, second));
    STREAM_TRY(c.enqueue(self, first));
    reached.wait();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    const bool began = device.launches() != 0;
    gate.finish();
    STREAM_TRY(failure(device.synchronise(first)));
    STREAM_TRY(failure(device.synchronise(second)));
    if (began) return std::string("a call began before the one ahead of it");
    return a.wrong + b.wrong + c.wrong;
  });
  REQUIRE(error == "");
}

TEST_CASE("A capture runs nothing; its graph runs as often as it is replayed, on any stream") {
  const std::string error = run_streams({3, 1, {}, ""}, [](StreamRank& self) {
    SimDevice& device = self.device();
    void* const stream = device.make_stream();
    void* const other = device.make_stream();
    Step step(device, 300);
    STREAM_TRY(failure(device.begin_capture(stream)));
    const std::uint64_t allocations = device.allocations();
    STREAM_TRY(step.enqueue(self, stream));
    STREAM_TRY(step.enqueue(self, stream));
    if (device.allocations() != allocations) return std::string("a call allocated");
    auto captured = device.end_capture(stream);
    STREAM_TRY(failure(captured.status()));
    STREAM_TRY(failure(device.synchronise(stream)));
    if (device.launches() != 0 || step.operation != 0) return std::string("a captured call ran");
    const auto graph = captured.take();
    for (int run = 0; run < 20; ++run) {
      STREAM_TRY(failure(device.replay(graph, run % 3 == 0 ? other : stream)));
    }
    STREAM_TRY(failure(device.synchronise(stream)));
    STREAM_TRY(failure(device.synchronise(other)));
    if (device.launches() != 40) return std::string("not every replay ran");
    if (device.default_stream_uses() != 0) return std::string("the default stream was used");
    return step.wrong;
  });
  REQUIRE(error == "");
}

TEST_CASE("Several graphs are alive and replayed in any order, between eager calls on other streams") {
  const std::string error = run_streams({3, 1, {}, ""}, [](StreamRank& self) {
    SimDevice& device = self.device();
    std::vector<void*> streams;
    for (int i = 0; i < 3; ++i) streams.push_back(device.make_stream());
    std::vector<std::unique_ptr<Step>> steps;
    std::vector<std::shared_ptr<SimGraph>> graphs;
    for (std::size_t i = 0; i < 4; ++i) {
      steps.push_back(std::make_unique<Step>(device, 1 + 97 * i));
      if (i == 3) break;  // for eager calls
      STREAM_TRY(failure(device.begin_capture(streams[i])));
      for (std::size_t call = 0; call <= i; ++call) STREAM_TRY(steps[i]->enqueue(self, streams[i]));
      auto captured = device.end_capture(streams[i]);
      STREAM_TRY(failure(captured.status()));
      graphs.push_back(captured.take());
    }
    // The same order of operations on all ranks, and on each its own streams.
    for (std::uint32_t turn = 0; turn < 60; ++turn) {
      const std::uint32_t what = turn * 2654435761u >> 20;
      void* const stream = streams[(what + static_cast<std::uint32_t>(self.rank())) % 3];
      if (what % 4 == 3) {
        STREAM_TRY(steps[3]->enqueue(self, streams[2]));
      } else {
        STREAM_TRY(failure(device.replay(graphs[what % 4], stream)));
      }
      if (turn == 40) graphs.push_back(graphs[0]);
    }
    for (void* const stream : streams) STREAM_TRY(failure(device.synchronise(stream)));
    std::string wrong;
    for (const auto& step : steps) wrong += step->wrong;
    return wrong;
  });
  REQUIRE(error == "");
}

TEST_CASE("In a capture of several streams a communicator's calls keep their order") {
  const std::string error = run_streams({2, 2, {}, ""}, [](StreamRank& self) {
    SimDevice& device = self.device();
    void* const origin = device.make_stream();
    void* const side = device.make_stream();
    Step a(device, 200), b(device, 300), c(device, 40), d(device, 50);
    STREAM_TRY(failure(device.begin_capture(origin)));
    STREAM_TRY(failure(device.follow(side, device.mark(origin).take())));
    // Of the first communicator on both streams, with no join of the user's between them; of the second
    // beside them.
    STREAM_TRY(a.enqueue(self, origin));
    STREAM_TRY(b.enqueue(self, side));
    STREAM_TRY(c.enqueue(self, side, 1));
    STREAM_TRY(d.enqueue(self, origin));
    STREAM_TRY(failure(device.follow(origin, device.mark(side).take())));
    auto captured = device.end_capture(origin);
    STREAM_TRY(failure(captured.status()));
    const auto graph = captured.take();
    for (int run = 0; run < 10; ++run) STREAM_TRY(failure(device.replay(graph, origin)));
    STREAM_TRY(failure(device.synchronise(origin)));
    return a.wrong + b.wrong + c.wrong + d.wrong;
  });
  REQUIRE(error == "");
}

TEST_CASE("A group enqueues everything, and its streams are in one capture or in none") {
  const std::string error = run_streams({2, 2, {}, ""}, [](StreamRank& self) {
    SimDevice& device = self.device();
    void* const first = device.make_stream();
    void* const second = device.make_stream();
    const Numbers a(device, 100), b(device, 100);
    const auto both = [&] {
      STREAM_CALL(rcnGroupStart());
      STREAM_CALL(rcnAllReduce(a.data(), a.data(), 100, rcnUint32, rcnSum, self.comm(0), first));
      STREAM_CALL(rcnAllReduce(b.data(), b.data(), 100, rcnUint32, rcnSum, self.comm(1), second));
      STREAM_CALL(rcnGroupEnd());
      return std::string();
    };
    fill(a.data(), 100, 1, self.rank());
    fill(b.data(), 100, 2, self.rank());
    STREAM_TRY(both());
    STREAM_TRY(failure(device.synchronise(first)));
    STREAM_TRY(failure(device.synchronise(second)));
    STREAM_TRY(judge(a.data(), 100, 1, 2));
    STREAM_TRY(judge(b.data(), 100, 2, 2));

    const std::uint64_t launches = device.launches();
    STREAM_TRY(failure(device.begin_capture(second)));
    const std::string refused = both();
    if (refused.find("invalid usage") == std::string::npos ||
        refused.find("all in no capture or all in one") == std::string::npos) {
      return "half a capture was answered by: " + refused;
    }
    auto captured = device.end_capture(second);
    STREAM_TRY(failure(captured.status()));
    if (!captured.value()->nodes().empty()) return std::string("something was captured");
    STREAM_TRY(failure(device.synchronise(first)));
    if (device.launches() != launches) return std::string("something was enqueued");
    // Nothing has changed.
    STREAM_TRY(both());
    STREAM_TRY(failure(device.synchronise(first)));
    return failure(device.synchronise(second));
  });
  REQUIRE(error == "");
}

TEST_CASE("What a call on a device may not be given is refused, naming it") {
  const std::string error = run_streams({1, 1, {}, ""}, [](StreamRank& self) {
    SimDevice& device = self.device();
    void* const stream = device.make_stream();
    const Numbers data(device, 100);
    std::vector<std::uint32_t> host(100);
    const auto answer = [&](const void* in, void* out, void* on) {
      return failure(rcnAllReduce(in, out, 100, rcnUint32, rcnSum, self.comm(), on), "call");
    };
    const auto expect = [](const std::string& text, const char* part) {
      return text.find(part) != std::string::npos ? std::string() : "'" + text + "' lacks '" + part + "'";
    };
    STREAM_TRY(expect(answer(host.data(), data.data(), stream), "sendbuff is"));
    STREAM_TRY(expect(answer(data.data(), host.data(), stream), "recvbuff is"));
    STREAM_TRY(expect(answer(data.data(), data.data() + 1, stream), "overlap"));
    STREAM_TRY(expect(answer(data.data(), data.data(), &host), "stream is"));
    STREAM_TRY(
        expect(failure(rcnAllGather(data.data(), data.data(), 1, rcnUint32, self.comm(), stream), "call"),
               "only all_reduce"));
    STREAM_TRY(answer(data.data(), data.data(), nullptr));
    return failure(device.synchronise(nullptr));
  });
  REQUIRE(error == "");
}

namespace {

// How many groups a large call of the communicator has; 0 if it went wrong.
std::uint32_t groups_of(StreamRank& self, rcnComm_t comm, void* stream) {
  const Numbers data(self.device(), 1000);
  if (rcnAllReduce(data.data(), data.data(), 1000, rcnUint32, rcnSum, comm, stream) != rcnSuccess) return 0;
  return self.device().synchronise(stream).ok() ? self.device().last_groups() : 0;
}

}  // namespace

TEST_CASE("The communicators of a device share its groups, and one too many is refused by every rank") {
  SimShape shape;
  shape.groups = 4;
  shape.roomy_groups = 8;
  shape.resident_groups = 10;
  std::array<rcnUniqueId, 2> ids;
  for (rcnUniqueId& id : ids) REQUIRE(rcnGetUniqueId(&id) == rcnSuccess);
  const std::string error = run_streams({2, 4, shape, ""}, [&](StreamRank& self) {
    SimDevice& device = self.device();
    void* const stream = device.make_stream();
    for (std::size_t i = 0; i < 4; ++i) {
      constexpr std::array kShares{4u, 2u, 1u, 1u};
      const std::uint32_t groups = groups_of(self, self.comm(i), stream);
      if (groups != kShares[i]) return fmt::format("communicator {} has {} groups", i, groups);
    }
    // Rank 1's device has none left: both ranks say so, and what there was goes on.
    std::vector<GroupShare> others;
    while (self.rank() == 1 && device.group_budget().taken() < shape.resident_groups)
      others.push_back(device.group_budget().take().take());
    rcnConfig_t config = RCN_CONFIG_INITIALIZER;
    config.options = "ROCENANTE_SOCKET_IFNAME==lo;ROCENANTE_DEVICE=sim";
    rcnComm_t another = nullptr;
    const std::string refused =
        failure(rcnCommInitRankConfig(&another, 2, ids[0], self.rank(), &config), "init");
    for (const char* part : {"all 10 groups", self.rank() == 0 ? "rank 1" : "by 6 communicators"}) {
      if (refused.find(part) == std::string::npos) return "'" + refused + "' lacks '" + part + "'";
    }
    others.clear();
    if (device.group_budget().taken() != 8) return std::string("the refused one has kept its groups");
    if (groups_of(self, self.comm(0), stream) != 4) return std::string("the first has lost groups");
    // A graph keeps the share of its communicator.
    const Numbers data(device, 100);
    STREAM_TRY(failure(device.begin_capture(stream)));
    STREAM_CALL(rcnAllReduce(data.data(), data.data(), 100, rcnUint32, rcnSum, self.comm(0), stream));
    auto graph = device.end_capture(stream);
    STREAM_TRY(failure(graph.status()));
    STREAM_CALL(rcnCommDestroy(self.release(0)));
    STREAM_CALL(rcnCommDestroy(self.release(1)));
    if (device.group_budget().taken() != 6)
      return std::string("a graph's share went, or a destroyed one's stayed");
    graph = Status(Code::kInternalError, "gone");
    while (device.group_budget().taken() != 2) std::this_thread::yield();  // on another thread
    STREAM_CALL(rcnCommInitRankConfig(&another, 2, ids[1], self.rank(), &config));
    const std::uint32_t groups = groups_of(self, another, stream);
    STREAM_CALL(rcnCommDestroy(another));
    return groups == 2 ? std::string() : fmt::format("after others left there were {} groups", groups);
  });
  REQUIRE(error == "");
}

TEST_CASE("A rank alone waits for nobody and takes no groups") {
  SimShape shape;
  shape.groups = 4;
  const std::string error = run_streams({1, 2, shape, ""}, [](StreamRank& self) {
    void* const stream = self.device().make_stream();
    if (self.device().group_budget().taken() != 0) return std::string("it has taken groups");
    const std::uint32_t groups = groups_of(self, self.comm(1), stream);
    return groups == 1 ? std::string() : fmt::format("it has {} groups", groups);
  });
  REQUIRE(error == "");
}
