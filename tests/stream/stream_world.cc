// SPDX-License-Identifier: Apache-2.0
#include "tests/stream/stream_world.h"

#include <atomic>
#include <cstdlib>
#include <thread>

namespace rocenante::test {
namespace {

std::string make_comms(const StreamWorld& world, int rank, const std::vector<rcnUniqueId>& ids,
                       std::vector<rcnComm_t>* comms) {
  const std::string options = "ROCENANTE_SOCKET_IFNAME==lo;ROCENANTE_DEVICE=sim;" + world.options;
  rcnConfig_t config = RCN_CONFIG_INITIALIZER;
  config.options = options.c_str();
  for (const rcnUniqueId& id : ids) {
    rcnComm_t comm = nullptr;
    STREAM_CALL(rcnCommInitRankConfig(&comm, world.ranks, id, rank, &config));
    comms->push_back(comm);
  }
  return "";
}

}  // namespace

StreamRank::~StreamRank() {
  for (rcnComm_t const comm : comms_) {
    if (comm != nullptr) (void)rcnCommDestroy(comm);
  }
}

rcnComm_t StreamRank::release(std::size_t index) {
  return std::exchange(comms_[index], nullptr);
}

std::string failure(rcnResult_t result, const char* call) {
  if (result == rcnSuccess) return "";
  return std::string(call) + ": " + rcnGetErrorString(result) + ": " + rcnGetLastError(nullptr);
}

std::string failure(const Status& status) {
  return status.text();
}

std::string run_streams(const StreamWorld& world, const std::function<std::string(StreamRank&)>& body) {
  ::setenv("ROCENANTE_SOCKET_IFNAME", "=lo", 1);
  std::vector<rcnUniqueId> ids(world.comms);
  for (rcnUniqueId& id : ids) STREAM_CALL(rcnGetUniqueId(&id));
  const auto ranks = static_cast<std::size_t>(world.ranks);
  std::atomic<std::uint64_t> arrived{0};
  std::atomic<bool> has_failed{false};
  std::vector<std::string> results(ranks);
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < ranks; ++index) {
    threads.emplace_back([&, index] {
      const int rank = static_cast<int>(index);
      auto device = std::make_shared<SimDevice>(world.shape);
      SimDevice::make_current(device);
      std::vector<rcnComm_t> comms;
      results[index] = make_comms(world, rank, ids, &comms);
      const bool is_there = results[index].empty();
      // Nobody waits for a rank that has failed.
      const std::function<void()> meet = [&] {
        const std::uint64_t all = (arrived.fetch_add(1) / ranks + 1) * ranks;
        while (arrived.load() < all && !has_failed.load()) std::this_thread::yield();
      };
      StreamRank self(device, std::move(comms), rank, world.ranks);
      self.meet = &meet;
      if (is_there) results[index] = body(self);
      if (!results[index].empty()) has_failed = true;
      SimDevice::make_current(nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t index = 0; index < ranks; ++index) {
    if (!results[index].empty()) return "rank " + std::to_string(index) + ": " + results[index];
  }
  return "";
}

void fill(std::uint32_t* data, std::size_t count, std::uint64_t operation, int rank) {
  for (std::size_t place = 0; place < count; ++place) data[place] = value_of(operation, rank, place);
}

std::string judge(const std::uint32_t* data, std::size_t count, std::uint64_t operation, int ranks) {
  for (std::size_t place = 0; place < count; ++place) {
    const std::uint32_t want = sum_of(operation, ranks, place);
    if (data[place] == want) continue;
    return "operation " + std::to_string(operation) + ", place " + std::to_string(place) + ": " +
           std::to_string(data[place]) + " instead of " + std::to_string(want);
  }
  return "";
}

}  // namespace rocenante::test
