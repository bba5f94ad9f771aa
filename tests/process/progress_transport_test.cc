// SPDX-License-Identifier: Apache-2.0
//
// Doorbells over transports that move something: ranks of one process whose rounds the test plays as a
// device would, while progress threads carry them.
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/comm/doorbell_puts.h"
#include "lib/comm/progress.h"
#include "tests/support/catch.h"
#include "tests/support/faulty_transport.h"
#if ROCENANTE_TEST_VERBS
#include "tests/support/dma_buf.h"
#include "tests/support/fake_verbs.h"
#include "tests/support/sysfs_tree.h"
#include "transports/verbs/verbs.h"
#endif

namespace rocenante {
namespace {

constexpr std::uint64_t kSlotBytes = 4096;

using MakeTransport = std::function<Result<std::unique_ptr<Transport>>(std::uint32_t rank)>;

template <class T>
T require(Result<T> result) {
  INFO(result.status().text());
  REQUIRE(result.ok());
  return result.take();
}

// One rank, with what its communicator would own; the place goes first and the transport before the
// regions.
struct Rank {
  std::shared_ptr<Region> inbox, outbox;
  std::unique_ptr<Transport> transport;
  std::string blob;
  std::vector<protocol::PeerLink> links;
  protocol::Lane lane{};
  protocol::DoorbellRing ring{};
  std::uint64_t abort_word = 0;
  std::atomic<int> failures{0};
  std::atomic<std::uint64_t> reason{0};
  std::string text;
  std::unique_ptr<DoorbellPuts> puts;
  ProgressPlace place;
  std::uint64_t epoch = 0;  // rung
};

class World {
 public:
  World(std::uint32_t ranks, const std::string& options, std::uint32_t rails, const MakeTransport& make,
        const std::function<std::vector<fabric::Rail>(std::uint32_t, std::uint32_t)>& rails_of,
        Device* device = nullptr)
      : geometry_{ranks, rails, ranks - 1, kSlotBytes},
        config_(require(Config::load(options))),
        device_(device) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      ranks_.push_back(std::make_unique<Rank>());
      open(rank, make, rails_of);
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) connect(rank);
  }

  // Ranks 0 and 1 share a thread, as communicators of one device do; the others have one each.
  void start(std::uint64_t spin_ns) {
    ProgressSettings settings;
    settings.spin_ns = spin_ns;
    settings.crowded = true;
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const void* const device = ranks_[rank < 2 ? 0 : rank].get();
      ranks_[rank]->place = require(Progress::add(device, ranks_[rank]->puts.get(), settings));
    }
  }

  // Plays rounds until all ranks have completed `rounds`, or one has failed; the first wrong payload.
  std::string play(std::uint64_t rounds) {
    const net::Deadline deadline = net::Deadline::after_s(120);
    std::vector<bool> has_ended(ranks_.size(), false);
    for (std::size_t ended = 0; ended < ranks_.size();) {
      if (deadline.passed()) return "the rounds do not end";
      for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
        if (has_ended[rank]) continue;
        Rank& one = *ranks_[rank];
        if (one.failures != 0) return "a rank has failed";
        if (one.epoch != 0) {
          if (!has_come(rank)) continue;
          if (std::string wrong = check(rank); !wrong.empty()) return wrong;
        }
        if (one.epoch == rounds) {
          has_ended[rank] = true;
          ++ended;
        } else {
          stage(rank);
        }
      }
      std::this_thread::yield();
    }
    return {};
  }

  bool comes_true(const std::function<bool()>& condition) const {
    const net::Deadline deadline = net::Deadline::after_s(60);
    while (!condition()) {
      if (deadline.passed()) return false;
      std::this_thread::yield();
    }
    return true;
  }

  void leave() {
    for (auto& rank : ranks_) rank->place.leave();
  }
  Rank& rank(std::uint32_t number) { return *ranks_[number]; }

 private:
  static std::uint32_t slot_of(std::uint32_t of, std::uint32_t peer) { return peer < of ? peer : peer - 1; }

  void open(std::uint32_t rank, const MakeTransport& make,
            const std::function<std::vector<fabric::Rail>(std::uint32_t, std::uint32_t)>& rails_of) {
    Rank& one = *ranks_[rank];
    one.inbox = require(host_device().allocate_region(geometry_.inbox_bytes(), PeerAccess::kReadWrite));
    one.outbox = require(host_device().allocate_region(geometry_.outbox_bytes(), PeerAccess::kReadOnly));
    TransportContext context{rank, geometry_.ranks, &config_, nullptr, geometry_, one.inbox, one.outbox, {},
                             {},   false,           device_};
    for (std::uint32_t peer = 0; peer < geometry_.ranks; ++peer) {
      context.recv_index.push_back(peer == rank ? 0 : slot_of(rank, peer));
      context.rails.push_back(peer == rank ? std::vector<fabric::Rail>() : rails_of(rank, peer));
    }
    one.transport = require(make(rank));
    one.blob = require(one.transport->open(context));
  }

  void connect(std::uint32_t rank) {
    Rank& one = *ranks_[rank];
    one.links.resize(geometry_.ranks);
    for (std::uint32_t peer = 0; peer < geometry_.ranks; ++peer) {
      if (peer == rank) continue;
      const Status status =
          one.transport->connect(peer, ranks_[peer]->blob, net::Deadline::after_s(60), &one.links[peer]);
      INFO(status.text());
      REQUIRE(status.ok());
      one.links[peer].rails = geometry_.rails;
    }
    one.lane.rank = rank;
    one.lane.ranks = geometry_.ranks;
    one.lane.striped_bytes = 2048;
    one.lane.peers = one.links.data();
    for (std::uint64_t parity = 0; parity < protocol::kParities; ++parity)
      one.lane.send[parity] = one.outbox->address() + geometry_.send_offset(parity);
    DoorbellPuts::Setup setup;
    setup.ring = &one.ring;
    setup.lane = &one.lane;
    setup.slot_bytes = kSlotBytes;
    setup.carriers.assign(geometry_.ranks, one.transport.get());
    setup.carriers[rank] = nullptr;
    setup.abort_word = &one.abort_word;
    setup.on_failure = [&one](protocol::AbortCause cause, Status status) {
      one.text = status.text();
      one.reason = static_cast<std::uint64_t>(cause.reason);
      ++one.failures;
    };
    one.puts = std::make_unique<DoorbellPuts>(std::move(setup));
  }

  static std::uint64_t bytes_of(std::uint64_t epoch) { return epoch * 613 % (kSlotBytes + 1); }
  static unsigned char byte_of(std::uint32_t rank, std::uint64_t epoch, std::uint64_t at) {
    return static_cast<unsigned char>(rank * 91 + epoch * 7 + at);
  }

  void stage(std::uint32_t rank) {
    Rank& one = *ranks_[rank];
    const std::uint64_t epoch = ++one.epoch;
    unsigned char* const slot = one.lane.send[epoch & 1];
    for (std::uint64_t i = 0; i < bytes_of(epoch); ++i) slot[i] = byte_of(rank, epoch, i);
    *protocol::slot_tag(slot) = epoch;
    protocol::ring_doorbell(env_, one.ring, epoch, {bytes_of(epoch), epoch});
    if (epoch % 3 == 0) one.place.wake();
  }

  // The inbox that peers write.
  static unsigned char* received(const Rank& one) {
    const auto in_device = one.transport->device_inbox();
    return in_device != nullptr ? in_device->device : one.inbox->address();
  }

  bool has_come(std::uint32_t rank) const {
    const Rank& one = *ranks_[rank];
    for (std::uint32_t peer = 0; peer < geometry_.ranks; ++peer) {
      const std::uint32_t lines = protocol::lines_of(one.lane, one.links[peer], bytes_of(one.epoch));
      for (std::uint32_t line = 0; peer != rank && line < lines; ++line) {
        const auto* const signal = reinterpret_cast<const protocol::SignalLine*>(
            received(one) + geometry_.signal_offset(one.epoch & 1, peer, line));
        if (env_.load_acquire(&signal->epoch) < one.epoch) return false;
      }
    }
    return true;
  }

  std::string check(std::uint32_t rank) const {
    const Rank& one = *ranks_[rank];
    for (std::uint32_t peer = 0; peer < geometry_.ranks; ++peer) {
      if (peer == rank) continue;
      const unsigned char* const slot =
          received(one) + geometry_.recv_offset(one.epoch & 1, slot_of(rank, peer));
      for (std::uint64_t i = 0; i < bytes_of(one.epoch); ++i) {
        if (slot[i] != byte_of(peer, one.epoch, i)) {
          return fmt::format("epoch {}: byte {} from rank {} at rank {} is wrong", one.epoch, i, peer,
                             rank);
        }
      }
    }
    return {};
  }

  const protocol::Geometry geometry_;
  const Config config_;
  Device* const device_;
  HostEnv env_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

World faulty_world(const test::FaultyCatalog& catalog, std::uint32_t ranks) {
  return World(
      ranks, "", 1, [&](std::uint32_t) { return catalog.make("faulty"); },
      [](std::uint32_t, std::uint32_t) { return std::vector<fabric::Rail>(); });
}

TEST_CASE("rounds over a network that delays, reorders and has short queues", "[progress]") {
  const std::uint64_t spin_ns = GENERATE(0, 1'000'000);
  test::Faults faults;
  faults.seed = 5 + spin_ns;
  faults.queue_slots = 1;
  faults.piece_bytes = 1500;
  const test::FaultyCatalog catalog(faults);
  World world = faulty_world(catalog, 3);
  world.start(spin_ns);
  REQUIRE(world.play(100).empty());
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    REQUIRE(world.comes_true([&] { return world.rank(rank).puts->drained(); }));
    REQUIRE(world.rank(rank).failures == 0);
    REQUIRE(world.rank(rank).puts->next_epoch() == 101);
  }
  world.leave();
  REQUIRE(Progress::threads() == 0);
}

TEST_CASE("a completion error is reported once, by the rank that has it, and stops that lane alone",
          "[progress]") {
  test::Faults faults;
  faults.queue_slots = 1;
  faults.piece_bytes = 4096;
  faults.fail_after_puts = 41;
  const test::FaultyCatalog catalog(faults);
  World world = faulty_world(catalog, 3);
  world.start(0);
  REQUIRE(world.play(1000) == "a rank has failed");
  const std::uint64_t next = world.rank(0).puts->next_epoch();
  const std::uint64_t looks = world.rank(1).puts->next_epoch();
  REQUIRE(world.rank(0).puts->has_stopped());
  REQUIRE(world.rank(0).puts->drained());
  REQUIRE_FALSE(world.rank(1).puts->has_stopped());
  REQUIRE(next > 15);
  REQUIRE(looks > 15);
  world.leave();
  REQUIRE(world.rank(0).failures == 1);
  REQUIRE(world.rank(0).reason == static_cast<std::uint64_t>(protocol::AbortReason::kTransport));
  REQUIRE(world.rank(0).text.find("faulty: completion error of the put to rank") == 0);
  REQUIRE(world.rank(1).failures == 0);
  REQUIRE(world.rank(2).failures == 0);
}

#if ROCENANTE_TEST_VERBS
struct Verbs {
  Verbs() {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const test::SysfsTree tree("spark-one-cable-" + std::to_string(rank + 1));
      ports[rank] = require(fabric::discover(tree.root(), tree.addresses(), {})).ports;
      fake.add_host(rank, ports[rank]);
    }
  }
  ~Verbs() { test::FakeVerbs::set_host(0); }
  World world(const std::string& signal, const std::string& memory = "host") {
    return World(
        2, "ROCENANTE_SIGNAL=" + signal + ";ROCENANTE_RECEIVE_MEMORY=" + memory, 2,
        [](std::uint32_t rank) {
          test::FakeVerbs::set_host(rank);
          return make_verbs_transport(&test::FakeVerbs::api());
        },
        [&](std::uint32_t rank, std::uint32_t peer) {
          return fabric::rails_between(ports[rank], ports[peer]);
        },
        &device);
  }

  test::DmaBufDevice device;
  test::FakeVerbs fake;
  std::vector<fabric::Port> ports[2];
};

TEST_CASE("rounds over queue pairs, some over both rails, with either kind of signal and of memory",
          "[progress][verbs]") {
  const auto [signal, memory] =
      GENERATE(table<std::string, std::string>({{"write", "host"}, {"imm", "host"}, {"write", "device"}}));
  Verbs verbs;
  verbs.fake.delay_dma_bufs();
  World world = verbs.world(signal, memory);
  world.start(100'000);
  REQUIRE(world.play(300).empty());
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    REQUIRE(world.comes_true([&] { return world.rank(rank).puts->drained(); }));
    REQUIRE(world.rank(rank).failures == 0);
  }
  REQUIRE((verbs.fake.immediates() != 0) == (signal == "imm"));
  REQUIRE((verbs.fake.dma_buf_writes() != 0) == (memory == "device"));
  REQUIRE(verbs.fake.overruns() == 0);
  world.leave();
}

TEST_CASE("a cable that is cut is reported once, naming the other end", "[progress][verbs]") {
  Verbs verbs;
  World world = verbs.world("write");
  world.start(0);
  REQUIRE(world.play(20).empty());
  for (const auto& ports : verbs.ports) verbs.fake.cut(ports.front().gid);
  REQUIRE(world.play(100) == "a rank has failed");
  // The other end may have finished its part; who needs the cable finds it cut.
  std::uint32_t failed = world.rank(0).failures != 0 ? 0 : 1;
  world.leave();
  REQUIRE(world.rank(failed).failures == 1);
  REQUIRE(world.rank(failed).text.find("rank " + std::to_string(1 - failed)) != std::string::npos);
}
#endif

}  // namespace
}  // namespace rocenante
