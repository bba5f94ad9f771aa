// SPDX-License-Identifier: Apache-2.0
//
// Calls on simulated devices whose peers are reached through made-up adapters, which write the devices' own
// memory or host memory.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "lib/base/log.h"
#include "lib/comm/communicator.h"
#include "lib/comm/unique_id.h"
#include "tests/protocol/thread_world.h"
#include "tests/stream/stream_world.h"
#include "tests/support/catch.h"
#include "tests/support/fake_verbs.h"
#include "tests/support/sysfs_tree.h"
#include "transports/verbs/verbs.h"

namespace {

using namespace rocenante;
using namespace rocenante::test;
using fabric::Port;

std::vector<Port> ports_of_rails(std::uint32_t rails) {
  const SysfsTree tree("soft");
  Result<fabric::Fabric> found = fabric::discover(tree.root(), tree.addresses(), {});
  REQUIRE(found.ok());
  std::vector<Port> ports = found.take().ports;
  ports.resize(rails);
  for (Port& port : ports) port.software = false;  // as if an adapter were behind each
  return ports;
}

// Every rank is on a host of its own, with the same ports.
class Catalog final : public TransportCatalog {
 public:
  Catalog(const std::vector<Port>& ports, std::uint32_t host) : ports_(ports), host_(host) {}
  std::span<const char* const> names() const override { return kNames; }
  void look_around(const Config&, HostIdentity* identity) const override {
    identity->ports = ports_;
    identity->boot_id = "host " + std::to_string(host_);
  }
  bool reachable(std::string_view, const HostIdentity&, const HostIdentity&) const override { return true; }
  Result<std::unique_ptr<Transport>> make(std::string_view) const override {
    FakeVerbs::set_host(host_);
    return make_verbs_transport(&FakeVerbs::api());
  }

 private:
  static constexpr const char* kNames[] = {"verbs"};
  const std::vector<Port>& ports_;
  const std::uint32_t host_;
};

struct Rank {
  std::unique_ptr<Communicator>& comm;
  SimDevice& device;
  void* stream;
  const std::function<void()>& meet;

  int number() const { return static_cast<int>(comm->rank()); }
  Status all_reduce(const Numbers& numbers) const {
    CollectiveCall call{numbers.data(), numbers.data(), numbers.count(), reduce::DataType::kUint32, 0};
    RCN_TRY(comm->check(&call));
    RCN_TRY(comm->check_on_device(call));
    return comm->enqueue(call, stream);
  }
  std::string sum(std::size_t count, std::uint64_t operation) const {
    const auto ranks = static_cast<int>(comm->ranks());
    const Numbers numbers(device, count);
    fill(numbers.data(), count, operation, number());
    STREAM_TRY(failure(all_reduce(numbers)));
    STREAM_TRY(failure(device.synchronise(stream)));
    return judge(numbers.data(), count, operation, ranks);
  }
};

struct VerbsWorld {
  std::uint32_t ranks = 2;
  std::uint32_t rails = 1;
  std::string options;
  std::function<bool(std::uint32_t rank)> receives = [](std::uint32_t) { return true; };
};

// What each rank's body, or its initialisation, returned.
std::vector<std::string> run(FakeVerbs& verbs, const VerbsWorld& world,
                             const std::function<std::string(const Rank&)>& body) {
  const std::vector<Port> ports = ports_of_rails(world.rails);
  const Config config =
      Config::load(
          "ROCENANTE_SOCKET_IFNAME==lo;ROCENANTE_SLOT_BYTES=4096;ROCENANTE_STRIPE_BYTES=1K;"
          "ROCENANTE_GOODBYE_TIMEOUT_S=60;" +
          world.options)
          .take();
  const UniqueId id = create_unique_id(config).take();
  for (std::uint32_t rank = 0; rank < world.ranks; ++rank) verbs.add_host(rank, ports);
  model::MeetingPlace place;
  std::vector<std::string> results(world.ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < world.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      SimShape shape;
      shape.receives = world.receives(rank);
      const auto device = std::make_shared<SimDevice>(shape);
      const Catalog catalog(ports, rank);
      model::ThreadGroup group(place, rank, world.ranks);
      const std::function<void()> meet = [&] { group.sync(); };
      Result<std::unique_ptr<Communicator>> made =
          Communicator::create(id, rank, world.ranks, config, catalog, std::shared_ptr<Device>(device));
      if (!made.ok()) {
        results[rank] = made.status().text();
        return;
      }
      std::unique_ptr<Communicator> comm = made.take();
      results[rank] = body({comm, *device, device->make_stream(), meet});
      comm.reset();
      // All that the device gave comes back; the last run of a graph may just be letting go.
      const net::Deadline deadline = net::Deadline::after_s(60);
      while (device->memory_ranges() != 0 && !deadline.passed()) std::this_thread::yield();
      if (results[rank].empty() && device->memory_ranges() != 0)
        results[rank] = fmt::format("{} ranges of memory are left", device->memory_ranges());
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(verbs.alive() == 0);
  CHECK(verbs.overruns() == 0);
  return results;
}

// Calls of one round and of several, striped and not, eager ones and a graph's.
std::string check_sums(const Rank& self) {
  const auto ranks = static_cast<int>(self.comm->ranks());
  std::uint64_t operation = 0;
  {
    const Numbers captured(self.device, 900);
    STREAM_TRY(failure(self.device.begin_capture(self.stream)));
    STREAM_TRY(failure(self.all_reduce(captured)));
    auto ended = self.device.end_capture(self.stream);
    STREAM_TRY(failure(ended.status()));
    for (const std::size_t count : {1u, 28u, 29u, 255u, 256u, 1000u, 2500u}) {
      STREAM_TRY(self.sum(count, ++operation));
      for (int replay = 0; replay < 2; ++replay) {
        fill(captured.data(), captured.count(), ++operation, self.number());
        STREAM_TRY(failure(self.device.replay(ended.value(), self.stream)));
        STREAM_TRY(failure(self.device.synchronise(self.stream)));
        STREAM_TRY(judge(captured.data(), captured.count(), operation, ranks));
      }
    }
  }
  return "";
}

// What is written to stderr while it lives.
class Stderr {
 public:
  Stderr() : file_(std::tmpfile()), before_(::dup(STDERR_FILENO)) {
    ::dup2(::fileno(file_), STDERR_FILENO);
  }
  ~Stderr() {
    if (before_ >= 0) (void)text();
    std::fclose(file_);
  }
  Stderr(const Stderr&) = delete;
  Stderr& operator=(const Stderr&) = delete;
  // Ends it.
  std::string text() {
    ::dup2(before_, STDERR_FILENO);
    ::close(std::exchange(before_, -1));
    std::string all;
    std::rewind(file_);
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) all += static_cast<char>(c);
    return all;
  }

 private:
  std::FILE* const file_;
  int before_;
};

bool contains(const std::string& whole, const std::string& part) {
  return whole.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("All-reduces are right when adapters write the devices' own memory, late ones too") {
  VerbsWorld world;
  world.ranks = GENERATE(2u, 3u);
  world.rails = GENERATE(1u, 2u);
  const bool is_late = GENERATE(false, true);
  INFO(world.ranks << " ranks, " << world.rails << " rails" << (is_late ? ", late" : ""));
  FakeVerbs verbs;
  if (is_late) verbs.delay_dma_bufs();
  REQUIRE(run(verbs, world, check_sums) == std::vector<std::string>(world.ranks));
  CHECK(verbs.dma_buf_writes() != 0);
  CHECK(verbs.long_host_writes() == 0);  // signals' notices are words
}

TEST_CASE("Ranks that receive in device memory and ranks that do not work together") {
  VerbsWorld world;
  world.ranks = 3;
  world.rails = GENERATE(1u, 2u);
  const std::uint32_t odd = GENERATE(0u, 2u);
  const bool is_alone = GENERATE(false, true);
  world.receives = [&](std::uint32_t rank) { return (rank == odd) == is_alone; };
  FakeVerbs verbs;
  verbs.delay_dma_bufs();
  REQUIRE(run(verbs, world, check_sums) == std::vector<std::string>(3));
  CHECK(verbs.dma_buf_writes() != 0);
  CHECK(verbs.long_host_writes() != 0);
}

TEST_CASE("A rank says why it receives in host memory") {
  const auto [options, forbids, receives, why] = GENERATE(table<std::string, bool, bool, std::string>({
      {"ROCENANTE_SIGNAL=imm", false, true, "ROCENANTE_SIGNAL=imm has the host store the signals"},
      {"", true, true, "rxe1 or its driver cannot register dma-bufs: Operation not supported"},
      {"", false, false, "the simulated device lets no NIC write to its memory"},
  }));
  VerbsWorld world;
  world.rails = 2;
  world.receives = [receives = receives](std::uint32_t) { return receives; };
  for (const bool is_demanded : {false, true}) {
    INFO(options << " " << why << " " << is_demanded);
    FakeVerbs verbs;
    if (forbids) verbs.forbid_dma_bufs(gid_of("10.77.1.1"));
    world.options = options + (is_demanded ? ";ROCENANTE_RECEIVE_MEMORY=device" : "");
    Stderr log;
    const LogLevel level = log_level();
    set_log_level(LogLevel::kInfo);
    const std::vector<std::string> results = run(verbs, world, check_sums);
    set_log_level(level);
    const std::string logged = log.text();
    CHECK(verbs.dma_buf_writes() == 0);
    if (!is_demanded) {
      CHECK(results == std::vector<std::string>(2));
      INFO(logged);
      CHECK(contains(logged, "verbs: peers write host memory: "));
      CHECK(contains(logged, why));
      continue;
    }
    for (const std::string& text : results) {
      INFO(text);
      CHECK(contains(text, "verbs: ROCENANTE_RECEIVE_MEMORY=device cannot be: "));
      CHECK(contains(text, why));
    }
  }
}

TEST_CASE("One rank that cannot do what its setting demands fails all of them") {
  VerbsWorld world;
  world.ranks = 3;
  world.options = "ROCENANTE_RECEIVE_MEMORY=device";
  world.receives = [](std::uint32_t rank) { return rank != 1; };
  FakeVerbs verbs;
  const auto results = run(verbs, world, check_sums);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    INFO(results[rank]);
    CHECK(contains(results[rank], "the simulated device lets no NIC write to its memory"));
    CHECK(contains(results[rank], "rank 1 cannot take part") == (rank != 1));
  }
}

TEST_CASE("Host memory is received in where it is asked for") {
  VerbsWorld world;
  world.options = "ROCENANTE_RECEIVE_MEMORY=host";
  FakeVerbs verbs;
  REQUIRE(run(verbs, world, check_sums) == std::vector<std::string>(2));
  CHECK(verbs.dma_buf_writes() == 0);
}

TEST_CASE("A cable that is cut ends the calls of ranks that receive in device memory") {
  VerbsWorld world;
  world.ranks = 3;
  world.receives = [](std::uint32_t rank) { return rank != 2; };
  FakeVerbs verbs;
  const auto results = run(verbs, world, [&](const Rank& self) -> std::string {
    for (std::uint64_t operation = 1;; ++operation) {
      if (operation == 4 && self.number() == 0) verbs.cut(gid_of("10.77.0.1"));
      const Numbers data(self.device, 300);
      STREAM_TRY(failure(self.all_reduce(data)));
      if (self.device.synchronise(self.stream).ok()) continue;
      while (self.comm->async_error().ok()) std::this_thread::yield();
      return self.comm->async_error().text();
    }
  });
  for (const std::string& text : results) {
    INFO(text);
    CHECK(contains(text, "transport retry counter exceeded"));
  }
}

// Its notices are there long before what they tell of: the others must not take for missing what is on its
// way to their devices.
TEST_CASE("A rank that leaves while its last signals are on their way to devices harms nobody") {
  const std::string goodbye_s =
      GENERATE("0", "60");  // its queue pairs go before the others are done, or after
  VerbsWorld world;
  world.ranks = 3;
  world.rails = GENERATE(1u, 2u);
  world.options = "ROCENANTE_GOODBYE_TIMEOUT_S=" + goodbye_s;
  FakeVerbs verbs;
  verbs.delay_dma_bufs();
  std::atomic<std::uint64_t> leaves_ns{0};
  const auto results = run(verbs, world, [&](const Rank& self) -> std::string {
    for (std::uint64_t operation = 1; operation < 4; ++operation) STREAM_TRY(self.sum(300, operation));
    self.meet();
    if (self.number() == 0) verbs.hold_dma_bufs(0, true);
    self.meet();
    const Numbers last(self.device, 300);
    fill(last.data(), 300, 9, self.number());
    STREAM_TRY(failure(self.all_reduce(last)));
    if (self.number() == 0) {
      STREAM_TRY(failure(self.device.synchronise(self.stream)));
      leaves_ns = net::monotonic_ns();
      self.comm.reset();
      return judge(last.data(), 300, 9, 3);
    }
    // Longer than the host doubts that somebody who has left may still bring something.
    while (leaves_ns == 0 || net::monotonic_ns() < leaves_ns + 2 * net::kNanosecondsPerSecond) {
      STREAM_TRY(failure(self.comm->async_error()));
      std::this_thread::yield();
    }
    verbs.hold_dma_bufs(0, false);
    STREAM_TRY(failure(self.device.synchronise(self.stream)));
    return judge(last.data(), 300, 9, 3);
  });
  REQUIRE(results == std::vector<std::string>(3));
}

TEST_CASE("Writes that never reach the device's memory are told from a peer that does not come") {
  VerbsWorld world;
  world.options = "ROCENANTE_TIMEOUT_S=2";
  FakeVerbs verbs;
  verbs.delay_dma_bufs();
  const auto results = run(verbs, world, [&](const Rank& self) -> std::string {
    STREAM_TRY(self.sum(100, 1));
    self.meet();
    if (self.number() == 0) verbs.hold_dma_bufs(0, true);
    self.meet();
    const Numbers data(self.device, 100);
    STREAM_TRY(failure(self.all_reduce(data)));
    (void)self.device.synchronise(self.stream);
    if (self.number() == 0) return "";
    while (self.comm->async_error().ok()) std::this_thread::yield();
    verbs.hold_dma_bufs(0, false);
    return self.comm->async_error().text();
  });
  CHECK(results[0] == "");
  INFO(results[1]);
  CHECK(contains(results[1], "rank 0 did not come within 2.000 s"));
  CHECK(contains(results[1], "ROCENANTE_RECEIVE_MEMORY=host does without"));
}

TEST_CASE("A rank that has left is missed by the next call, wherever its signals would have arrived") {
  VerbsWorld world;
  world.ranks = 3;
  world.receives = [](std::uint32_t rank) { return rank != 2; };
  FakeVerbs verbs;
  verbs.delay_dma_bufs();
  const auto results = run(verbs, world, [&](const Rank& self) -> std::string {
    for (std::uint64_t operation = 1; operation < 4; ++operation) STREAM_TRY(self.sum(300, operation));
    if (self.number() == 0) {
      self.comm.reset();  // waits for the others' goodbyes
      return "left";
    }
    const Numbers data(self.device, 300);
    STREAM_TRY(failure(self.all_reduce(data)));
    (void)self.device.synchronise(self.stream);
    while (self.comm->async_error().ok()) std::this_thread::yield();
    return self.comm->async_error().text();
  });
  CHECK(results[0] == "left");
  for (const std::uint32_t rank : {1u, 2u}) {
    INFO(results[rank]);
    CHECK(contains(results[rank], "rank 0 has left the communicator: needed by all_reduce"));
    CHECK(contains(results[rank], "(its signal was epoch 3 then and is 3 now)"));
  }
}
