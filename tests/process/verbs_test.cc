// SPDX-License-Identifier: Apache-2.0
//
// Communicators whose ranks, threads of this process, reach each other through adapters that are made up.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lib/comm/communicator.h"
#include "lib/comm/topology.h"
#include "lib/comm/unique_id.h"
#include "tests/support/catch.h"
#include "tests/support/fake_verbs.h"
#include "tests/support/sysfs_tree.h"
#include "transports/verbs/verbs.h"

namespace {

using rocenante::Collective;
using rocenante::CollectiveCall;
using rocenante::Communicator;
using rocenante::Config;
using rocenante::HostIdentity;
using rocenante::Result;
using rocenante::Status;
using rocenante::UniqueId;
using rocenante::fabric::Port;
using rocenante::reduce::DataType;
using rocenante::test::FakeVerbs;
using rocenante::test::SysfsTree;

// As if an adapter were behind each: then signals are written unless a test says otherwise.
std::vector<Port> ports_of(const std::string& fixture) {
  const SysfsTree tree(fixture);
  Result<rocenante::fabric::Fabric> found = rocenante::fabric::discover(tree.root(), tree.addresses(), {});
  REQUIRE(found.ok());
  std::vector<Port> ports = found.take().ports;
  for (Port& port : ports) port.software = false;
  return ports;
}

// Puts something between a rank and its transport.
using Decorate = std::function<std::unique_ptr<rocenante::Transport>(std::unique_ptr<rocenante::Transport>,
                                                                     std::uint32_t rank)>;

// What one rank sees: the ports of its own host.
class Catalog final : public rocenante::TransportCatalog {
 public:
  Catalog(std::vector<Port> ports, std::uint32_t host, Decorate decorate)
      : ports_(std::move(ports)), host_(host), decorate_(std::move(decorate)) {}

  std::span<const char* const> names() const override { return kNames; }
  void look_around(const Config&, HostIdentity* identity) const override {
    identity->ports = ports_;
    identity->boot_id = "host " + std::to_string(host_);
  }
  bool reachable(std::string_view, const HostIdentity& a, const HostIdentity& b) const override {
    return rocenante::fabric::have_rail(a.ports, b.ports);
  }
  Result<std::unique_ptr<rocenante::Transport>> make(std::string_view) const override {
    FakeVerbs::set_host(host_);
    Result<std::unique_ptr<rocenante::Transport>> made = rocenante::make_verbs_transport(&FakeVerbs::api());
    if (!made.ok() || !decorate_) return made;
    return decorate_(made.take(), host_);
  }

 private:
  static constexpr const char* kNames[] = {"verbs"};
  const std::vector<Port> ports_;
  const std::uint32_t host_;
  const Decorate decorate_;
};

// What each rank's body returned; initialisation errors count as results. `hosts` has the ports of each
// rank's host.
template <class Body>
std::vector<Status> run(FakeVerbs& verbs, const std::vector<std::vector<Port>>& hosts,
                        const std::string& options, Body body, const Decorate& decorate = nullptr) {
  Result<Config> config = Config::load(
      "ROCENANTE_SOCKET_IFNAME==lo;ROCENANTE_SLOT_BYTES=4096;ROCENANTE_GOODBYE_TIMEOUT_S=60;" + options);
  REQUIRE(config.ok());
  Result<UniqueId> id = rocenante::create_unique_id(config.value());
  REQUIRE(id.ok());
  const auto ranks = static_cast<std::uint32_t>(hosts.size());
  for (std::uint32_t rank = 0; rank < ranks; ++rank) verbs.add_host(rank, hosts[rank]);
  std::vector<Status> results(ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const Catalog catalog(hosts[rank], rank, decorate);
      Result<std::unique_ptr<Communicator>> comm =
          Communicator::create(id.value(), rank, ranks, config.value(), catalog);
      results[rank] = comm.ok() ? body(*comm.value()) : comm.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(verbs.alive() == 0);
  CHECK(verbs.overruns() == 0);
  return results;
}

// Sums of small integers; every call and rank has its own values.
Status sum_call(Communicator& comm, int call, std::size_t count) {
  std::vector<std::uint32_t> data(count);
  const auto base = [&](std::size_t i) { return i * 31 + static_cast<std::size_t>(call) * 1000; };
  for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<std::uint32_t>(base(i) + comm.rank() * 7);
  RCN_TRY(comm.all_reduce(CollectiveCall{data.data(), data.data(), count, DataType::kUint32, 0}));
  const std::size_t n = comm.ranks();
  for (std::size_t i = 0; i < count; ++i) {
    const auto want = static_cast<std::uint32_t>(n * base(i) + 7 * n * (n - 1) / 2);
    if (data[i] != want) {
      return rocenante::make_error(rocenante::Code::kInternalError, "call {} element {}: {} instead of {}",
                                   call, i, data[i], want);
    }
  }
  return {};
}

// Sizes from nothing to several rounds, with and without the line's inline payload.
Status sum_calls(Communicator& comm, int calls) {
  constexpr std::size_t kCounts[] = {1, 28, 29, 100, 1024, 1025, 2500, 0, 511, 513};
  for (int call = 0; call < calls; ++call) RCN_TRY(sum_call(comm, call, kCounts[call % 10]));
  return {};
}

// Element i of block b that a rank sends is a number of its own. The root is the last rank.
Status collective_call(Communicator& comm, Collective collective, std::size_t count) {
  const std::uint32_t n = comm.ranks();
  const auto value = [&](std::size_t rank, std::size_t block, std::size_t i) {
    return static_cast<std::uint32_t>(rank * 1000003 + block * 10007 + i * 31);
  };
  std::vector<std::uint32_t> send(n * count), received(n * count, 7), want(n * count, 7);
  for (std::size_t k = 0; k < send.size(); ++k) send[k] = value(comm.rank(), k / count, k % count);
  const bool is_root = comm.rank() == n - 1;
  for (std::size_t k = 0; k < want.size(); ++k) {
    const std::size_t block = k / count, i = k % count;
    if (collective == Collective::kAllGather) want[k] = value(block, 0, i);
    if (collective == Collective::kAllToAll) want[k] = value(block, comm.rank(), i);
    if (block != 0) continue;
    if (collective == Collective::kBroadcast) want[k] = value(n - 1, 0, i);
    const bool scatters = collective == Collective::kReduceScatter;
    if (!scatters && (collective != Collective::kReduce || !is_root)) continue;
    want[k] = 0;
    for (std::uint32_t rank = 0; rank < n; ++rank) want[k] += value(rank, scatters ? comm.rank() : 0, i);
  }
  const std::uint32_t root = rocenante::has_root(collective) ? n - 1 : 0;
  RCN_TRY(comm.perform(
      CollectiveCall{send.data(), received.data(), count, DataType::kUint32, 0, {}, collective, root}));
  if (received == want) return {};
  return rocenante::make_error(rocenante::Code::kInternalError, "collective {} of {} elements is wrong",
                               static_cast<int>(collective), count);
}

void require_all_ok(const std::vector<Status>& results) {
  for (const Status& status : results) {
    INFO(status.text());
    REQUIRE(status.ok());
  }
}

bool contains(const std::string& whole, const std::string& part) {
  return whole.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("All-reduces over RDMA are right: ranks, rails, both signals, late and torn reads") {
  const auto ranks = GENERATE(2u, 3u, 4u);
  const auto rails = GENERATE(1u, 2u);
  const std::string signal = GENERATE("write", "imm");
  const std::string two_rounds = GENERATE("auto", "1K");  // from which all of these sizes are far, and not
  INFO(ranks << " ranks, " << rails << " rails, ROCENANTE_SIGNAL=" << signal << ", two rounds "
             << two_rounds);
  std::vector<Port> ports = ports_of("soft");
  ports.resize(rails);
  FakeVerbs verbs;
  verbs.set_delay(ranks == 3 ? 90 : 30);
  require_all_ok(run(
      verbs, std::vector(ranks, ports),
      "ROCENANTE_STRIPE_BYTES=2048;ROCENANTE_SIGNAL=" + signal + ";ROCENANTE_TWO_ROUND_BYTES=" + two_rounds,
      [](Communicator& comm) { return sum_calls(comm, 30); }));
  CHECK((verbs.immediates() != 0) == (signal == "imm"));
  for (const Port& port : ports) CHECK(verbs.writes_over(port.gid) != 0);
}

TEST_CASE("Every collective over RDMA is right, on one rail and on two, in rounds") {
  const auto rails = GENERATE(1u, 2u);
  std::vector<Port> ports = ports_of("soft");
  ports.resize(rails);
  FakeVerbs verbs;
  verbs.set_delay(50);
  require_all_ok(
      run(verbs, std::vector(3, ports), "ROCENANTE_STRIPE_BYTES=2048", [](Communicator& comm) -> Status {
        for (const std::size_t count : {1u, 29u, 700u, 3000u}) {
          for (int which = 1; which < static_cast<int>(rocenante::kNumCollectives); ++which) {
            RCN_TRY(collective_call(comm, static_cast<Collective>(which), count));
          }
        }
        return {};
      }));
}

TEST_CASE("three hosts in a triangle use the two rails of each cable") {
  FakeVerbs verbs;
  const std::vector<std::vector<Port>> hosts = {ports_of("triangle-0"), ports_of("triangle-1"),
                                                ports_of("triangle-2")};
  require_all_ok(run(verbs, hosts, "ROCENANTE_STRIPE_BYTES=1K",
                     [](Communicator& comm) { return sum_calls(comm, 20); }));
  for (const auto& ports : hosts) {
    for (const Port& port : ports) CHECK(verbs.writes_over(port.gid) != 0);
  }
}

TEST_CASE(
    "Ranks that call different things over RDMA are told so, also when one stripes and the other does "
    "not") {
  FakeVerbs verbs;
  const auto odd = GENERATE(std::size_t{99}, std::size_t{1000});
  const std::vector<Status> results =
      run(verbs, std::vector(2, ports_of("soft")), "ROCENANTE_STRIPE_BYTES=1K", [&](Communicator& comm) {
        RCN_TRY(sum_calls(comm, 5));
        return sum_call(comm, 5, comm.rank() == 1 ? odd : 100);
      });
  for (const Status& status : results) {
    INFO(status.text());
    CHECK(status.code() == rocenante::Code::kInvalidUsage);
    CHECK(contains(status.text(), "all_reduce of " + std::to_string(odd) + " uint32 sum"));
  }
}

TEST_CASE("A cable that is not where the addresses say is named at initialisation, by every rank") {
  FakeVerbs verbs;
  verbs.cut(rocenante::test::gid_of("192.168.101.2"));
  const std::vector<Status> results =
      run(verbs, {ports_of("spark-one-cable-1"), ports_of("spark-one-cable-2")}, "",
          [](Communicator&) { return Status(); });
  for (const Status& status : results) {
    INFO(status.text());
    CHECK_FALSE(status.ok());
    CHECK(contains(status.text(), "roceP2p1s0f0:1 (192.168.101."));
    CHECK(contains(status.text(), "transport retry counter exceeded"));
  }
}

TEST_CASE("A rail that fails between calls is an error on every rank that names rail and peer") {
  FakeVerbs verbs;
  const std::vector<Status> results =
      run(verbs, std::vector(3, ports_of("soft")), "ROCENANTE_STRIPE_BYTES=16", [&](Communicator& comm) {
        for (int call = 0; call < 1000; ++call) {
          if (call == 5 && comm.rank() == 0) verbs.cut(rocenante::test::gid_of("10.77.1.1"));
          RCN_TRY(sum_call(comm, call, 100));
        }
        return Status();
      });
  for (const Status& status : results) {
    INFO(status.text());
    CHECK_FALSE(status.ok());
    CHECK(contains(status.text(), "rxe1:1 (10.77.1.1) to rank "));
    CHECK(contains(status.text(), "transport retry counter exceeded"));
  }
}

namespace {

// Verbs, but rank 1 puts whole payloads over one rail where they are to be striped, and rank 0 hears
// nothing of failures: what the transport finds out by itself is not what is tested.
class HalfTransport final : public rocenante::Transport {
 public:
  HalfTransport(std::unique_ptr<Transport> inner, std::uint32_t rank)
      : inner_(std::move(inner)), rank_(rank) {}

  const char* name() const override { return inner_->name(); }
  rocenante::TransportCaps caps() const override { return inner_->caps(); }
  Result<std::string> open(const rocenante::TransportContext& context) override {
    return inner_->open(context);
  }
  Status connect(std::uint32_t peer, std::string_view blob, rocenante::net::Deadline deadline,
                 rocenante::protocol::PeerLink* link) override {
    return inner_->connect(peer, blob, deadline, link);
  }
  Status probe(rocenante::net::Deadline deadline) override { return inner_->probe(deadline); }
  rocenante::Fd process_handle(std::uint32_t peer) override { return inner_->process_handle(peer); }
  Status post(std::span<const rocenante::Put> puts) override {
    std::vector<rocenante::Put> sent(puts.begin(), puts.end());
    for (rocenante::Put& put : sent) {
      if (rank_ == 1) put.stripes = 1;
    }
    return inner_->post(sent);
  }
  Status progress() override {
    Status status = inner_->progress();
    return rank_ == 0 ? Status() : status;
  }
  bool drained() const override { return inner_->drained(); }

 private:
  const std::unique_ptr<Transport> inner_;
  const std::uint32_t rank_;
};

}  // namespace

TEST_CASE("A peer that leaves when one of two rails has brought its share is missed") {
  FakeVerbs verbs;
  const std::vector<Status> results = run(
      verbs, std::vector(2, ports_of("soft")), "ROCENANTE_STRIPE_BYTES=16;ROCENANTE_FIRST_OP_TIMEOUT_S=60",
      [](Communicator& comm) { return sum_call(comm, 0, 100); },
      [](std::unique_ptr<rocenante::Transport> inner, std::uint32_t rank) {
        return std::make_unique<HalfTransport>(std::move(inner), rank);
      });
  INFO(results[0].text());
  CHECK(results[1].ok());  // both shares of rank 0 have come
  CHECK(contains(results[0].text(), "rank 1 has left the communicator: needed by all_reduce of 100"));
  CHECK(contains(results[0].text(), "its last signal was epoch 1"));
}

TEST_CASE("Adapters in software signal by completions, if all ranks have no other, and wake who sleeps") {
  const auto ranks = GENERATE(2u, 5u);
  const bool is_mixed = GENERATE(false, true);
  INFO(ranks << " ranks, mixed " << is_mixed);
  std::vector<std::vector<Port>> hosts(ranks, ports_of("soft"));
  for (std::vector<Port>& ports : hosts) {
    for (Port& port : ports) port.software = true;
  }
  if (is_mixed) hosts.back().back().software = false;
  FakeVerbs verbs;
  require_all_ok(run(verbs, hosts, "ROCENANTE_STRIPE_BYTES=2048", [&](Communicator& comm) {
    RCN_TRY(sum_calls(comm, 10));
    // One that the others sleep for.
    if (comm.rank() == 0 && !is_mixed) {
      const std::uint64_t before = verbs.arms();
      while (verbs.arms() < before + 2 * (ranks - 1)) std::this_thread::yield();
    }
    return sum_call(comm, 10, 1000);
  }));
  CHECK((verbs.immediates() != 0) == !is_mixed);
  CHECK((verbs.events() != 0) == !is_mixed);
}

TEST_CASE("Ranks may leave one after the other") {
  FakeVerbs verbs;
  const std::string signal = GENERATE("write", "imm");
  require_all_ok(
      run(verbs, std::vector(3, ports_of("soft")), "ROCENANTE_SIGNAL=" + signal, [](Communicator& comm) {
        RCN_TRY(sum_calls(comm, 3));
        // Those that go early have said goodbye when the last one looks.
        for (std::uint32_t turn = 0; turn < comm.rank() * 100; ++turn) std::this_thread::yield();
        return Status();
      }));
}

TEST_CASE("Hosts whose ports share no subnet are told what each has") {
  FakeVerbs verbs;
  const std::vector<Status> results = run(verbs, {ports_of("soft"), ports_of("spark-one-cable-1")}, "",
                                          [](Communicator&) { return Status(); });
  for (const Status& status : results) {
    CHECK(status.code() == rocenante::Code::kInvalidUsage);
    CHECK(contains(status.text(),
                   "RDMA ports of rank 0: rxe0:1 in 10.77.0.0/24, rxe1:1 in 10.77.1.0/24; of rank 1: "
                   "roceP2p1s0f0:1 in 192.168.101.0/24, rocep1s0f0:1 in 192.168.100.0/24"));
  }
}

TEST_CASE("Settings that name ports badly are an error as soon as a pair of ranks would need them") {
  HostIdentity a, b;
  a.boot_id = b.boot_id = "one";
  a.process_nonce = 1;
  b.process_nonce = 2;
  b.ports_error = "NCCL_IB_HCA lists 'mlx9'";
  const auto chosen = [&](const char* setting) {
    const HostIdentity ranks[] = {a, b};
    const auto names = rocenante::choose_transports(rocenante::builtin_transports(), setting, 0, ranks);
    return names.ok() ? names.value().at(1) : names.status().text();
  };
  CHECK(chosen("auto") == "shm");
  CHECK(contains(chosen("verbs"), "rank 1 (): NCCL_IB_HCA lists 'mlx9'"));
  b.boot_id = "two";
  CHECK(contains(chosen("auto"), "rank 1 (): NCCL_IB_HCA lists 'mlx9'"));
}

TEST_CASE("Where signals lie depends on what all ranks have, not on one rank's own peers") {
  HostIdentity ranks[3];
  ranks[0].boot_id = ranks[1].boot_id = "one";
  ranks[2].boot_id = "two";
  ranks[0].ports = ranks[2].ports = ports_of("soft");
  CHECK(rocenante::most_rails("auto", ranks) == 2);
  ranks[2].boot_id = "one";
  CHECK(rocenante::most_rails("auto", ranks) == 1);
  CHECK(rocenante::most_rails("verbs", ranks) == 2);
  ranks[0].ports.resize(20);
  CHECK(rocenante::most_rails("verbs", ranks) == rocenante::fabric::kMostRails);
}

TEST_CASE("Within one host shm comes first and verbs can be forced; between hosts verbs is found") {
  HostIdentity a, b;
  a.boot_id = b.boot_id = "one";
  a.process_nonce = b.process_nonce = 1;
  a.ports = b.ports = ports_of("soft");
  const auto chosen = [&](const char* setting) {
    const HostIdentity ranks[] = {a, b};
    const auto names = rocenante::choose_transports(rocenante::builtin_transports(), setting, 0, ranks);
    return names.ok() ? names.value().at(1) : names.status().text();
  };
  CHECK(chosen("auto") == "loopback");
  CHECK(chosen("verbs") == "verbs");
  b.process_nonce = 2;
  CHECK(chosen("auto") == "shm");
  CHECK(chosen("verbs") == "verbs");
  b.boot_id = "two";
  CHECK(chosen("auto") == "verbs");
}
