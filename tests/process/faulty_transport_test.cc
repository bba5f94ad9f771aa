// SPDX-License-Identifier: Apache-2.0
//
// The communicator over a transport that maps nothing and misbehaves as far as a network may.
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "lib/comm/communicator.h"
#include "lib/comm/unique_id.h"
#include "tests/support/catch.h"
#include "tests/support/faulty_transport.h"

namespace {

using rocenante::CollectiveCall;
using rocenante::Communicator;
using rocenante::Config;
using rocenante::Result;
using rocenante::Status;
using rocenante::UniqueId;
using rocenante::reduce::DataType;
using rocenante::test::Faults;
using rocenante::test::FaultyCatalog;

Config config() {
  Result<Config> loaded =
      Config::load("ROCENANTE_SOCKET_IFNAME==lo;ROCENANTE_SLOT_BYTES=4096;ROCENANTE_GOODBYE_TIMEOUT_S=60");
  REQUIRE(loaded.ok());
  return loaded.take();
}

// What each rank's body returned; initialisation errors count as results.
template <class Body>
std::vector<Status> run(std::uint32_t ranks, const Faults& faults, Body body) {
  const Config settings = config();
  Result<UniqueId> id = rocenante::create_unique_id(settings);
  REQUIRE(id.ok());
  const FaultyCatalog catalog(faults);
  std::vector<Status> results(ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Result<std::unique_ptr<Communicator>> comm =
          Communicator::create(id.value(), rank, ranks, settings, catalog);
      results[rank] = comm.ok() ? body(*comm.value()) : comm.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

// Sums of small integers; every call and rank has its own values.
Status sum_calls(Communicator& comm, int calls) {
  for (int call = 0; call < calls; ++call) {
    const std::size_t count = static_cast<std::size_t>(1 + (call * 37) % 2500);
    std::vector<std::uint32_t> data(count);
    for (std::size_t i = 0; i < count; ++i) {
      data[i] =
          static_cast<std::uint32_t>(i * 31 + static_cast<std::size_t>(call) * 1000 + comm.rank() * 7);
    }
    Status status = comm.all_reduce(CollectiveCall{data.data(), data.data(), count, DataType::kUint32, 0});
    if (!status.ok()) return status;
    const std::uint32_t n = comm.ranks();
    for (std::size_t i = 0; i < count; ++i) {
      const auto want = static_cast<std::uint32_t>(n * (i * 31 + static_cast<std::size_t>(call) * 1000) +
                                                   7 * n * (n - 1) / 2);
      if (data[i] != want) {
        return rocenante::make_error(rocenante::Code::kInternalError,
                                     "call {} element {}: {} instead of {}", call, i, data[i], want);
      }
    }
  }
  return {};
}

}  // namespace

TEST_CASE("Delay, reordering between peers, late reads and full queues change no result") {
  Faults faults;
  faults.seed = GENERATE(1u, 2u, 3u, 4u);
  faults.delay_percent = GENERATE(0u, 50u, 90u);
  const std::uint32_t ranks = faults.seed % 2 == 0 ? 2 : 4;
  INFO("seed " << faults.seed << ", delay " << faults.delay_percent << " %, " << ranks << " ranks");
  for (const Status& status : run(ranks, faults, [](Communicator& comm) { return sum_calls(comm, 12); })) {
    INFO(status.text());
    REQUIRE(status.ok());
  }
}

TEST_CASE("A completion error on one rank is an error on every rank, naming its first cause") {
  Faults faults;
  faults.fail_after_puts = 7;
  faults.failing_rank = 1;
  const std::vector<Status> results =
      run(3, faults, [](Communicator& comm) { return sum_calls(comm, 100); });
  for (const Status& status : results) {
    INFO(status.text());
    REQUIRE_FALSE(status.ok());
    REQUIRE(status.text().find("completion error of the put to rank") != std::string::npos);
  }
}
