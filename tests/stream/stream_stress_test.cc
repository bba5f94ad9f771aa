// SPDX-License-Identifier: Apache-2.0
//
// Thousands of all-reduces of 4 ranks on 3 streams and 2 communicators, eager ones and graphs of several
// streams mixed, every payload different, every result exact.
#include <algorithm>
#include <array>
#include <random>

#include "tests/stream/stream_world.h"
#include "tests/support/catch.h"

namespace {

using namespace rocenante::test;

constexpr std::size_t kStreams = 3;
constexpr std::size_t kMostCount = 700;

// Buffers of one call at a time, and what was found wrong in them first.
struct Slot {
  explicit Slot(SimDevice& device) : in(device, kMostCount), out(device, kMostCount) {}
  Numbers in, out;
  std::uint64_t runs = 0;
  std::string wrong;
};

// What all ranks draw alike.
struct Call {
  std::size_t comm;
  std::size_t count;
  bool in_place;
};

class Program {
 public:
  Program(StreamRank& self, std::uint64_t operations)
      : self_(self),
        operations_(operations),
        device_(self.device()),
        own_(static_cast<std::uint32_t>(self.rank()) + 1) {
    for (std::size_t i = 0; i < kStreams; ++i) {
      streams_[i] = device_.make_stream();
      slots_.push_back(std::make_unique<Slot>(device_));
    }
  }

  std::string run() {
    for (int i = 0; i < 3; ++i) STREAM_TRY(add_graph());
    while (done_ < operations_) {
      const std::uint32_t what = draw(common_, 100);
      if (what < 60) {
        STREAM_TRY(call_eagerly());
      } else if (what < 96) {
        STREAM_TRY(replay());
      } else if (what < 98) {
        STREAM_TRY(add_graph());
      } else {
        STREAM_TRY(drop_graph());
      }
      // Each rank looks up when it likes.
      if (draw(own_, 50) == 0) STREAM_TRY(failure(device_.synchronise(any_stream())));
    }
    for (void* const stream : streams_) STREAM_TRY(failure(device_.synchronise(stream)));
    for (const auto& slot : slots_) STREAM_TRY(slot->wrong);
    return "";
  }

 private:
  struct Graph {
    std::shared_ptr<SimGraph> graph;
    std::size_t calls;
  };

  static std::uint32_t draw(std::minstd_rand& random, std::uint32_t below) {
    return static_cast<std::uint32_t>(random() >> 8) % below;
  }
  void* any_stream() { return streams_[draw(own_, kStreams)]; }
  Call draw_call() {
    static constexpr std::array<std::size_t, 6> kCounts = {1, 27, 29, 130, 400, kMostCount};
    return {draw(common_, 2), kCounts[draw(common_, kCounts.size())], draw(common_, 2) == 0};
  }

  // `number` says which operation a run of the call is.
  template <class Number>
  std::string enqueue(const Call& call, Slot& slot, void* stream, Number number) {
    const int rank = self_.rank();
    const int ranks = self_.ranks();
    std::uint32_t* const in = slot.in.data();
    std::uint32_t* const out = call.in_place ? in : slot.out.data();
    STREAM_TRY(
        failure(device_.run(stream, [=, count = call.count] { fill(in, count, number(true), rank); })));
    STREAM_CALL(rcnAllReduce(in, out, call.count, rcnUint32, rcnSum, self_.comm(call.comm), stream));
    return failure(device_.run(stream, [=, &slot, count = call.count] {
      const std::string text = judge(out, count, number(false), ranks);
      if (slot.wrong.empty()) slot.wrong = text;
    }));
  }

  std::string call_eagerly() {
    const std::size_t which = draw(own_, kStreams);
    const std::uint64_t operation = ++done_;
    return enqueue(draw_call(), *slots_[which], streams_[which], [operation](bool) { return operation; });
  }

  // Some calls on a stream, some on another that forks from it and joins it.
  std::string add_graph() {
    const std::size_t first = draw(own_, kStreams);
    void* const origin = streams_[first];
    void* const side = streams_[(first + 1) % kStreams];
    const std::size_t calls = 1 + draw(common_, 5);
    const std::uint64_t base = 1'000'000'000 * ++made_;
    STREAM_TRY(failure(device_.begin_capture(origin)));
    STREAM_TRY(failure(device_.follow(side, device_.mark(origin).take())));
    for (std::size_t i = 0; i < calls; ++i) {
      slots_.push_back(std::make_unique<Slot>(device_));
      Slot& slot = *slots_.back();
      const std::uint64_t start = base + i * 1'000'000;
      const auto number = [&slot, start](bool begins) {
        return start + (begins ? ++slot.runs : slot.runs);
      };
      STREAM_TRY(enqueue(draw_call(), slot, draw(own_, 2) == 0 ? origin : side, number));
    }
    STREAM_TRY(failure(device_.follow(origin, device_.mark(side).take())));
    auto captured = device_.end_capture(origin);
    STREAM_TRY(failure(captured.status()));
    graphs_.push_back({captured.take(), calls});
    return "";
  }

  std::string replay() {
    const Graph& graph = graphs_[draw(common_, static_cast<std::uint32_t>(graphs_.size()))];
    done_ += graph.calls;
    return failure(device_.replay(graph.graph, any_stream()));
  }

  // Its runs may still be going on.
  std::string drop_graph() {
    if (graphs_.size() < 4) return "";
    graphs_.erase(graphs_.begin() + draw(common_, static_cast<std::uint32_t>(graphs_.size())));
    return "";
  }

  StreamRank& self_;
  const std::uint64_t operations_;
  SimDevice& device_;
  std::minstd_rand common_{12345};
  std::minstd_rand own_;
  std::array<void*, kStreams> streams_{};
  std::vector<std::unique_ptr<Slot>> slots_;  // one for each stream, then one for each captured call
  std::vector<Graph> graphs_;
  std::uint64_t made_ = 0;
  std::uint64_t done_ = 0;
};

}  // namespace

TEST_CASE("Mixed eager and captured operations on several streams and communicators are exact") {
  const StreamWorld world{4, 2, {2, 1, 64}, "ROCENANTE_SLOT_BYTES=4096;ROCENANTE_CHUNK_BYTES=1024"};
  REQUIRE(run_streams(world, [](StreamRank& self) { return Program(self, 10'000).run(); }) == "");
}

TEST_CASE("They are so where progress threads carry them, all or some") {
  const StreamWorld world{3, 2, {2, 1, 64}, "ROCENANTE_SLOT_BYTES=4096;ROCENANTE_TRANSPORT=tcp"};
  REQUIRE(run_streams(world, [](StreamRank& self) { return Program(self, 500).run(); }) == "");
}
