// SPDX-License-Identifier: Apache-2.0
//
// Captured calls: replayed with changing payload, mixed with eager ones, in several graphs, on several
// streams and communicators, and after the communicator is gone.
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "tests/gpu/ranks.h"
#include "tests/support/catch.h"

namespace {

using rocenante::test::gpu;
using rocenante::test::GpuGraph;
using rocenante::test::make_id;
using rocenante::test::run_on_gpu;
using rocenante::test::Seat;

// Integers, whose sums are exact; different in every call, element and rank.
std::uint32_t value(std::size_t run, std::size_t element, int rank) {
  return static_cast<std::uint32_t>(run) * 2654435761U + static_cast<std::uint32_t>(element) * 2246822519U +
         static_cast<std::uint32_t>(rank) * 374761393U;
}

void fill(std::uint8_t* memory, std::size_t run, std::size_t count, int rank) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t v = value(run, i, rank);
    std::memcpy(memory + i * 4, &v, 4);
  }
}

std::string check(const std::uint8_t* memory, std::size_t run, std::size_t count, int ranks) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t want = 0, got = 0;
    for (int rank = 0; rank < ranks; ++rank) want += value(run, i, rank);
    std::memcpy(&got, memory + i * 4, 4);
    if (got != want) return "run " + std::to_string(run) + ", element " + std::to_string(i) + " is wrong";
  }
  return "";
}

// A buffer on the device with memory of the host for what goes in and what comes out.
struct Channel {
  Channel(Seat& seat, std::size_t count, std::size_t depth)
      : count(count),
        depth(depth),
        device(seat.buffer(count * 4)),
        in(seat.staging(count * 4 * depth)),
        out(seat.staging(count * 4 * depth)) {}

  void send(std::size_t run, int rank, void* stream) {
    std::uint8_t* const from = in + run % depth * count * 4;
    fill(from, run, count, rank);
    gpu().copy(device, from, count * 4, stream);
  }
  void take(std::size_t run, void* stream) {
    gpu().copy(out + run % depth * count * 4, device, count * 4, stream);
  }
  std::string verify(std::size_t run, int ranks) const {
    return check(out + run % depth * count * 4, run, count, ranks);
  }

  const std::size_t count, depth;  // elements; runs between two looks
  std::uint8_t* const device;
  std::uint8_t* const in;
  std::uint8_t* const out;
};

}  // namespace

TEST_CASE("A graph of 100 calls is replayed with changing payload") {
  constexpr std::size_t kCalls = 100, kEach = 52, kDepth = 8;
  const int ranks = GENERATE(2, 3);
  const auto runs = static_cast<std::size_t>(gpu().runs(1000));
  REQUIRE(run_on_gpu(ranks, "", [&](Seat& seat) -> std::string {
            void* const stream = seat.stream();
            Channel channel(seat, kCalls * kEach, kDepth);
            const auto graph = seat.graph(stream, [&] {
              for (std::size_t call = 0; call < kCalls; ++call) {
                std::uint8_t* const at = channel.device + call * kEach * 4;
                seat.all_reduce(at, at, kEach, rcnUint32, rcnSum, seat.rank.comm(), stream);
              }
            });
            seat.meet();
            for (std::size_t run = 0; run < runs; ++run) {
              channel.send(run, seat.rank.rank(), stream);
              gpu().replay(graph, stream);
              channel.take(run, stream);
              if ((run + 1) % kDepth != 0 && run + 1 != runs) continue;
              gpu().synchronise(stream);
              for (std::size_t past = run / kDepth * kDepth; past <= run; ++past) {
                if (std::string error = channel.verify(past, ranks); !error.empty()) return error;
              }
            }
            return "";
          }) == "");
}

TEST_CASE("A capture alone runs nothing") {
  REQUIRE(run_on_gpu(2, "", [&](Seat& seat) -> std::string {
            void* const stream = seat.stream();
            Channel channel(seat, 100, 1);
            channel.send(7, seat.rank.rank(), stream);
            const auto graph = seat.graph(stream, [&] {
              seat.all_reduce(channel.device, channel.device, 100, rcnUint32, rcnSum, seat.rank.comm(),
                              stream);
            });
            channel.take(7, stream);
            gpu().synchronise(stream);
            if (std::memcmp(channel.in, channel.out, 400) != 0) return "the capture has changed the buffer";
            seat.meet();
            gpu().replay(graph, stream);
            channel.take(7, stream);
            gpu().synchronise(stream);
            return channel.verify(7, 2);
          }) == "");
}

TEST_CASE("Eager and captured calls of two communicators mix on three streams") {
  constexpr std::size_t kCount = 700, kDepth = 4;  // up to three are under way
  const auto steps = static_cast<std::size_t>(gpu().runs(900));
  const int ranks = GENERATE(2, 4);
  const rcnUniqueId second = make_id();
  REQUIRE(run_on_gpu(ranks, "", [&](Seat& seat) -> std::string {
            const std::array<rcnComm_t, 2> comms{seat.rank.comm(), seat.communicator(second, "").comm()};
            std::array<void*, 3> streams{};
            std::vector<Channel> channels;
            for (void*& stream : streams) {
              stream = seat.stream();
              channels.emplace_back(seat, kCount, kDepth);
            }
            // On stream 1 a graph of the first communicator, on stream 2 one of both.
            const auto call = [&](std::size_t channel, rcnComm_t comm, void* stream) {
              seat.all_reduce(channels[channel].device, channels[channel].device, kCount, rcnUint32, rcnSum,
                              comm, stream);
            };
            const auto one = seat.graph(streams[1], [&] { call(1, comms[0], streams[1]); });
            std::uint8_t* const extra = seat.buffer(kCount * 4);
            const auto both = seat.graph(streams[2], [&] {
              call(2, comms[1], streams[2]);
              seat.all_reduce(extra, extra, kCount, rcnUint32, rcnMax, comms[0], streams[2]);
            });
            seat.meet();
            for (std::size_t step = 0; step < steps; ++step) {
              const std::size_t which = step % 7 % 3;
              void* const stream = streams[which];
              channels[which].send(step, seat.rank.rank(), stream);
              if (which == 0) call(0, comms[step % 2], stream);
              if (which == 1) gpu().replay(one, stream);
              if (which == 2) gpu().replay(both, stream);
              channels[which].take(step, stream);
              if (step % 3 != 0) continue;  // now and then several are under way
              for (void* each : streams) gpu().synchronise(each);
              if (std::string error = channels[which].verify(step, ranks); !error.empty()) return error;
            }
            for (void* each : streams) gpu().synchronise(each);
            return "";
          }) == "");
}

TEST_CASE("A capture that forks to a second stream keeps the communicator's order") {
  constexpr std::size_t kCount = 300;
  const auto runs = static_cast<std::size_t>(gpu().runs(200));
  REQUIRE(run_on_gpu(2, "", [&](Seat& seat) -> std::string {
            void* const first = seat.stream();
            void* const second = seat.stream();
            Channel a(seat, kCount, 1), b(seat, kCount, 1);
            const auto graph = seat.graph(first, [&] {
              gpu().follow(second, first);
              seat.all_reduce(a.device, a.device, kCount, rcnUint32, rcnSum, seat.rank.comm(), first);
              seat.all_reduce(b.device, b.device, kCount, rcnUint32, rcnSum, seat.rank.comm(), second);
              gpu().follow(first, second);
            });
            seat.meet();
            for (std::size_t run = 0; run < runs; ++run) {
              a.send(2 * run, seat.rank.rank(), first);
              b.send(2 * run + 1, seat.rank.rank(), first);
              gpu().replay(graph, first);
              a.take(2 * run, first);
              b.take(2 * run + 1, first);
              gpu().synchronise(first);
              if (std::string error = a.verify(2 * run, 2); !error.empty()) return "a: " + error;
              if (std::string error = b.verify(2 * run + 1, 2); !error.empty()) return "b: " + error;
            }
            return "";
          }) == "");
}

TEST_CASE("A graph outlives its communicator, and a replay then ends") {
  REQUIRE(run_on_gpu(2, "", [&](Seat& seat) -> std::string {
            void* const stream = seat.stream();
            Channel channel(seat, 100, 1);
            const auto graph = seat.graph(stream, [&] {
              seat.all_reduce(channel.device, channel.device, 100, rcnUint32, rcnSum, seat.rank.comm(),
                              stream);
            });
            seat.meet();
            channel.send(1, seat.rank.rank(), stream);
            gpu().replay(graph, stream);
            channel.take(1, stream);
            gpu().synchronise(stream);
            std::string text = channel.verify(1, 2);
            seat.meet();
            rocenante::test::succeed(rcnCommDestroy(seat.rank.release()), "rcnCommDestroy");
            gpu().replay(graph, stream);
            gpu().synchronise(stream);  // returns although nobody answers
            return text;
          }) == "");
}
