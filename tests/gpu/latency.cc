// SPDX-License-Identifier: Apache-2.0
//
// What a call costs on a GPU: eager and in a graph, beside a copy of the same bytes and an empty kernel.
// The ranks are threads that share the GPU, so this is the price of launch, protocol and reduction, and of
// no network.
//
// Usage: latency [RANKS], or latency --check: whether the GPU runs the kernels of this program
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lib/device/cuda_device.h"
#include "lib/device/registry.h"
#include "tests/gpu/empty_kernel.h"
#include "tests/gpu/ranks.h"

namespace {

using rocenante::test::gpu;
using rocenante::test::Seat;

constexpr int kCalls = 100;  // of a series, and of a graph
constexpr int kSeries = 21;
constexpr int kWarmUps = 3;

constexpr std::array<std::size_t, 7> kBytes{8, 1024, 8192, 16384, 49152, 262144, 1048576};

using Enqueue = std::function<void(void* stream)>;

// The median over series of the time of one of a series' calls, in microseconds.
double median_us(Seat& seat, void* stream, int calls, const Enqueue& series) {
  std::vector<double> times;
  for (int i = 0; i < kWarmUps + kSeries; ++i) {
    seat.meet();
    const auto begin = std::chrono::steady_clock::now();
    series(stream);
    gpu().synchronise(stream);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (i >= kWarmUps) times.push_back(took.count() / calls);
  }
  std::nth_element(times.begin(), times.begin() + kSeries / 2, times.end());
  return times[kSeries / 2];
}

struct Row {
  double eager;
  double graph;
};

Row measure(Seat& seat, void* stream, const Enqueue& one) {
  const Enqueue series = [&](void* on) {
    for (int i = 0; i < kCalls; ++i) one(on);
  };
  const auto graph = seat.graph(stream, [&] { series(stream); });
  const double eager = median_us(seat, stream, kCalls, series);
  return {eager, median_us(seat, stream, kCalls, [&](void* on) { gpu().replay(graph, on); })};
}

void require(bool fine, const char* call) {
  if (!fine) throw std::runtime_error(std::string(call) + " failed");
}

void print(std::size_t bytes, const Row& call, const Row& copy, const Row& empty) {
  std::printf("%9zu  %9.2f  %9.2f  %9.2f  %9.2f  %9.2f  %9.2f\n", bytes, call.eager, call.graph, copy.eager,
              copy.graph, empty.eager, empty.graph);
  std::fflush(stdout);
}

void launch_empty(void* stream) {
  require(rocenante::test::launch_empty(stream), "the launch of an empty kernel");
}

std::string run(Seat& seat) {
  void* const stream = seat.stream();
  std::uint8_t* const memory = seat.buffer(kBytes.back());
  std::uint8_t* const other = seat.buffer(kBytes.back());
  // A first launch loads its kernel: not in a capture, which would forbid it, nor beside a call that waits.
  launch_empty(stream);
  gpu().copy(other, memory, kBytes.back(), stream);
  gpu().synchronise(stream);
  seat.meet();
  const bool prints = seat.rank.rank() == 0;
  if (prints) {
    std::printf(
        "all-reduce of bf16, %d ranks as threads on one GPU; us per call, median of %d series of %d\n",
        seat.rank.ranks(), kSeries, kCalls);
    std::printf("%9s  %9s  %9s  %9s  %9s  %9s  %9s\n", "bytes", "eager", "graph", "copy", "in graph",
                "empty", "in graph");
  }
  for (const std::size_t bytes : kBytes) {
    const Row call = measure(seat, stream, [&](void* on) {
      seat.all_reduce(memory, other, bytes / 2, rcnBfloat16, rcnSum, seat.rank.comm(), on);
    });
    const Row copy = measure(seat, stream, [&](void* on) { gpu().copy(other, memory, bytes, on); });
    const Row empty = measure(seat, stream, launch_empty);
    if (prints) print(bytes, call, copy, empty);
  }
  return "";
}

bool runs_kernels() {
  gpu().attach();
  const rocenante::Status status = rocenante::cuda_device(rocenante::kCurrentDevice).status();
  if (!status.ok()) std::fprintf(stderr, "latency: %s\n", status.text().c_str());
  return status.ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--check") return runs_kernels() ? 0 : 1;
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  if (ranks < 1 || ranks > 8) {
    std::fprintf(stderr, "latency: RANKS is %s: expected 1 to 8\n", argv[1]);
    return 2;
  }
  const std::string error = rocenante::test::run_on_gpu(ranks, "", run);
  if (!error.empty()) std::fprintf(stderr, "latency: %s\n", error.c_str());
  return error.empty() ? 0 : 1;
}
