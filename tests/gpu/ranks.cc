// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/ranks.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace rocenante::test {
namespace {

constexpr int kSkipped = 77;

std::string options_for(const std::string& more) {
  return "ROCENANTE_SOCKET_IFNAME==lo;ROCENANTE_DEVICE=" + gpu().name() +
         ";ROCENANTE_TIMEOUT_S=60;ROCENANTE_FIRST_OP_TIMEOUT_S=60;" + more;
}

std::shared_ptr<Rank> join(const rcnUniqueId& id, int rank, int ranks, const std::string& options) {
  const std::string text = options_for(options);
  rcnConfig_t config = RCN_CONFIG_INITIALIZER;
  config.options = text.c_str();
  rcnComm_t comm = nullptr;
  succeed(rcnCommInitRankConfig(&comm, ranks, id, rank, &config), "rcnCommInitRankConfig");
  return std::make_shared<Rank>(comm, rank, ranks);
}

// What the rank has made, which outlives its work.
std::unique_ptr<Seat> run_rank(const rcnUniqueId& id, int rank, int ranks, const std::string& options,
                               std::barrier<>& work, const std::function<std::string(Seat&)>& body,
                               std::string* text) {
  std::unique_ptr<Seat> seat;
  try {
    gpu().attach();
    seat = std::make_unique<Seat>(join(id, rank, ranks, options), work);
    *text = body(*seat);
  } catch (const std::exception& error) {
    *text = error.what();
  }
  return seat;
}

}  // namespace

Gpu& gpu() {
  static Gpu* const device = [] {
    std::string why;
    Gpu* const found = find_gpu(&why);
    if (found != nullptr) return found;
    const bool expected = ::access("/dev/nvidiactl", F_OK) == 0;
    std::fprintf(stderr, "%s: %s\n", expected ? "this machine has NVIDIA devices, but" : "skipped",
                 why.c_str());
    std::exit(expected ? 1 : kSkipped);
  }();
  return *device;
}

void* Seat::stream() {
  kept_.push_back(gpu().make_stream());
  return kept_.back().get();
}

std::uint8_t* Seat::buffer(std::size_t bytes) {
  const std::shared_ptr<std::uint8_t> memory = gpu().buffer(bytes);
  kept_.push_back(memory);
  return memory.get();
}

std::uint8_t* Seat::staging(std::size_t bytes) {
  const std::shared_ptr<std::uint8_t> memory = gpu().staging(bytes);
  kept_.push_back(memory);
  return memory.get();
}

std::shared_ptr<GpuGraph> Seat::graph(void* stream, const std::function<void()>& capture) {
  gpu().begin_capture(stream);
  capture();
  std::shared_ptr<GpuGraph> made = gpu().end_capture(stream);
  kept_.push_back(made);
  return made;
}

Rank& Seat::communicator(const rcnUniqueId& id, const std::string& options) {
  kept_.push_back(join(id, rank.rank(), rank.ranks(), options));
  return *static_cast<Rank*>(kept_.back().get());
}

void Seat::all_reduce(const void* from, void* to, std::size_t count, rcnDataType_t type, rcnRedOp_t op,
                      rcnComm_t comm, void* stream) {
  succeed(rcnAllReduce(from, to, count, type, op, comm, stream), "rcnAllReduce");
}

std::string run_on_gpu(int ranks, const std::string& options,
                       const std::function<std::string(Seat&)>& body) {
  const rcnUniqueId id = make_id();
  std::barrier<> work(ranks), leave(ranks);
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Seat> seat =
          run_rank(id, rank, ranks, options, work, body, &texts[static_cast<std::size_t>(rank)]);
      work.arrive_and_drop();
      leave.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  // All of them: where one fails, the others' errors are often its doing.
  std::string all;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    if (!text.empty()) all += "rank " + std::to_string(rank) + ": " + text + "\n";
  }
  return all;
}

rcnUniqueId make_id() {
  rcnUniqueId id{};
  ::setenv("ROCENANTE_SOCKET_IFNAME", "=lo", 1);
  succeed(rcnGetUniqueId(&id), "rcnGetUniqueId");
  return id;
}

void succeed(rcnResult_t result, const char* call) {
  if (std::string text = failure(result, call); !text.empty()) throw std::runtime_error(text);
}

rcnResult_t await_async_error(rcnComm_t comm) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  rcnResult_t error = rcnSuccess;
  while (error == rcnSuccess && std::chrono::steady_clock::now() < end) {
    succeed(rcnCommGetAsyncError(comm, &error), "rcnCommGetAsyncError");
    std::this_thread::yield();
  }
  return error;
}

}  // namespace rocenante::test
