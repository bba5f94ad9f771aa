// SPDX-License-Identifier: Apache-2.0
//
// Calls on a device whose peers are reached by a progress thread.
#include <atomic>
#include <thread>

#include "lib/comm/communicator.h"
#include "lib/comm/progress.h"
#include "lib/comm/unique_id.h"
#include "tests/protocol/thread_world.h"
#include "tests/stream/one_sided.h"
#include "tests/stream/stream_world.h"
#include "tests/support/catch.h"
#include "tests/support/faulty_transport.h"

namespace {

using namespace rocenante;
using namespace rocenante::test;

// One rank of a world over transports of the test's own.
struct Carried {
  Communicator& comm;
  SimDevice& device;
  void* stream;
  const std::function<void()>& meet;

  Status all_reduce(const Numbers& numbers) const {
    CollectiveCall call{numbers.data(), numbers.data(), numbers.count(), reduce::DataType::kUint32, 0};
    RCN_TRY(comm.check(&call));
    RCN_TRY(comm.check_on_device(call));
    return comm.enqueue(call, stream);
  }
};

// What each rank's body, or its initialisation, returned.
std::vector<std::string> run(std::uint32_t ranks, const TransportCatalog& catalog,
                             const std::function<std::string(const Carried&)>& body) {
  const Config config = Config::load("ROCENANTE_SOCKET_IFNAME==lo;ROCENANTE_SLOT_BYTES=4096").take();
  const UniqueId id = create_unique_id(config).take();
  model::MeetingPlace place;
  std::vector<std::string> results(ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto device = std::make_shared<SimDevice>();
      model::ThreadGroup group(place, rank, ranks);
      const std::function<void()> meet = [&] { group.sync(); };
      Result<std::unique_ptr<Communicator>> comm =
          Communicator::create(id, rank, ranks, config, catalog, std::shared_ptr<Device>(device));
      results[rank] =
          comm.ok() ? body({*comm.value(), *device, device->make_stream(), meet}) : comm.status().text();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

// Calls of one round and of several, eager ones and a graph's.
std::string check_sums(const Carried& self) {
  const auto rank = static_cast<int>(self.comm.rank());
  const auto ranks = static_cast<int>(self.comm.ranks());
  const Numbers captured(self.device, 900);
  STREAM_TRY(failure(self.device.begin_capture(self.stream)));
  STREAM_TRY(failure(self.all_reduce(captured)));
  auto ended = self.device.end_capture(self.stream);
  STREAM_TRY(failure(ended.status()));
  std::uint64_t operation = 0;
  for (const std::size_t count : {1u, 28u, 29u, 1000u, 2500u}) {
    const Numbers eager(self.device, count);
    fill(eager.data(), count, ++operation, rank);
    STREAM_TRY(failure(self.all_reduce(eager)));
    STREAM_TRY(failure(self.device.synchronise(self.stream)));
    STREAM_TRY(judge(eager.data(), count, operation, ranks));
    fill(captured.data(), captured.count(), ++operation, rank);
    STREAM_TRY(failure(self.device.replay(ended.value(), self.stream)));
    STREAM_TRY(failure(self.device.synchronise(self.stream)));
    STREAM_TRY(judge(captured.data(), captured.count(), operation, ranks));
  }
  return "";
}

// Keeps a device's progress thread from everything else.
class Holdup final : public ProgressWork {
 public:
  bool look() override {
    holds_.store(true);
    while (!released_.load()) std::this_thread::yield();
    return false;
  }
  void on_exception(Status) noexcept override {}
  void wait_until_it_holds() const {
    while (!holds_.load()) std::this_thread::yield();
  }
  void release() { released_.store(true); }

 private:
  std::atomic<bool> holds_{false};
  std::atomic<bool> released_{false};
};

}  // namespace

// "Missed doorbell": the progress thread gets no processor while the device rings twice, and must post both
// rounds, not the last.
TEST_CASE("A progress thread that was away for two rounds posts both") {
  const OneSidedCatalog catalog(false);
  const auto results = run(2, catalog, [](const Carried& self) -> std::string {
    const Numbers first(self.device, 100), second(self.device, 900);
    fill(first.data(), first.count(), 1, static_cast<int>(self.comm.rank()));
    fill(second.data(), second.count(), 2, static_cast<int>(self.comm.rank()));
    Holdup holdup;
    ProgressPlace place;
    if (self.comm.rank() == 0) {
      place = Progress::add(&self.device, &holdup, ProgressSettings{}).take();
      holdup.wait_until_it_holds();
    }
    self.meet();
    STREAM_TRY(failure(self.all_reduce(first)));
    STREAM_TRY(failure(self.all_reduce(second)));
    if (self.comm.rank() == 0) {
      // The first has all it needs from its peer; the second needs the first to have been posted.
      while (self.device.launches() < 2) std::this_thread::yield();
      for (int i = 0; i < 2000; ++i) std::this_thread::yield();
      holdup.release();
    }
    STREAM_TRY(failure(self.device.synchronise(self.stream)));
    STREAM_TRY(judge(first.data(), first.count(), 1, 2));
    return judge(second.data(), second.count(), 2, 2);
  });
  REQUIRE(results == std::vector<std::string>(2));
}

TEST_CASE("Carried and mapped peers work together on a device") {
  const std::uint32_t ranks = GENERATE(2u, 3u, 4u);
  const OneSidedCatalog catalog(true);
  REQUIRE(run(ranks, catalog, check_sums) == std::vector<std::string>(ranks));
}

TEST_CASE("Delay, late reads and full queues change no result on a device") {
  Faults faults;
  faults.seed = GENERATE(1u, 2u, 3u);
  faults.delay_percent = 50;
  faults.piece_bytes = 500;
  const FaultyCatalog catalog(faults);
  REQUIRE(run(3, catalog, check_sums) == std::vector<std::string>(3));
}

TEST_CASE("A completion error frees every rank's launch, naming its first cause") {
  Faults faults;
  faults.delay_percent = 0;
  faults.piece_bytes = 4096;
  faults.fail_after_puts = 7;
  faults.failing_rank = 1;
  const FaultyCatalog catalog(faults);
  const auto results = run(3, catalog, [](const Carried& self) {
    const Numbers data(self.device, 500);
    for (;;) {
      STREAM_TRY(failure(self.all_reduce(data)));
      if (self.device.synchronise(self.stream).ok()) continue;
      while (self.comm.async_error().ok()) std::this_thread::yield();
      return self.comm.async_error().text();
    }
  });
  for (const std::string& text : results) {
    INFO(text);
    REQUIRE(text.find("completion error of the put to rank") != std::string::npos);
  }
}
