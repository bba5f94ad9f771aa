// SPDX-License-Identifier: Apache-2.0
//
// What a progress thread does with a lane's doorbells: in order, none lost, none that is out of bounds, and
// one failure at most.
#include "lib/comm/doorbell_puts.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lib/comm/abort_state.h"
#include "tests/support/catch.h"
#include "tests/support/recording_transport.h"

namespace rocenante {
namespace {

using protocol::AbortCause;
using protocol::AbortReason;
using test::RecordingTransport;

constexpr std::uint64_t kSlotBytes = 4096;

// A lane of rank 1 of 4: ranks 0 and 2 are carried by one transport, 2 over three rails, rank 3 is mapped;
// `second` carries rank 0 instead where given.
struct Bench {
  explicit Bench(Transport* second = nullptr, std::uint64_t first_cause_ns = 0) {
    for (unsigned char& byte : memory) byte = 0;
    lane.rank = 1;
    lane.ranks = 4;
    lane.striped_bytes = 1024;
    lane.peers = links;
    links[0].rails = 1;
    links[2].rails = 3;
    lane.send[0] = memory;
    lane.send[1] = memory + kSlotBytes;
    DoorbellPuts::Setup setup;
    setup.ring = &ring;
    setup.lane = &lane;
    setup.slot_bytes = kSlotBytes;
    setup.carriers = {second != nullptr ? second : &transport, nullptr, &transport, nullptr};
    setup.abort_word = abort.address();
    setup.first_cause_ns = first_cause_ns;
    setup.on_failure = [this](AbortCause why, Status status) {
      cause = why;
      text = status.text();
      ++failures;
    };
    puts = std::make_unique<DoorbellPuts>(std::move(setup));
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void ring_at(std::uint64_t epoch, std::uint64_t bytes) {
    protocol::ring_doorbell(env, ring, epoch, {bytes, 1000 + epoch});
  }

  HostEnv env;
  RecordingTransport transport;
  AbortState abort;
  protocol::DoorbellRing ring{};
  protocol::PeerLink links[4]{};
  protocol::Lane lane{};
  alignas(64) unsigned char memory[2 * kSlotBytes];
  std::atomic<int> failures{0};
  AbortCause cause{};
  std::string text;
  std::unique_ptr<DoorbellPuts> puts;
};

TEST_CASE("an entry becomes a put to every carried member, from the slot and over the rails of its round",
          "[doorbell]") {
  Bench bench;
  REQUIRE_FALSE(bench.puts->look());
  REQUIRE(bench.puts->drained());
  bench.ring_at(1, 1023);
  REQUIRE_FALSE(bench.puts->drained());
  REQUIRE(bench.puts->look());
  bench.ring_at(2, kSlotBytes);
  REQUIRE(bench.puts->look());
  bench.ring_at(3, 0);
  REQUIRE(bench.puts->look());
  REQUIRE_FALSE(bench.puts->look());
  REQUIRE(bench.puts->drained());
  REQUIRE(bench.puts->next_epoch() == 4);
  REQUIRE(bench.transport.posts() == 3);  // one call a round
  const std::vector<Put> made = bench.transport.puts();
  REQUIRE(made.size() == 6);
  const std::uint64_t bytes[] = {1023, kSlotBytes, 0};
  for (std::size_t i = 0; i < made.size(); ++i) {
    INFO(i);
    const std::uint64_t epoch = 1 + i / 2;
    CHECK(made[i].peer == (i % 2 == 0 ? 2 : 0));  // from the next rank on
    CHECK(made[i].epoch == epoch);
    CHECK(made[i].tag == 1000 + epoch);
    CHECK(made[i].bytes == bytes[epoch - 1]);
    CHECK(made[i].payload == bench.lane.send[epoch & 1]);
    CHECK(made[i].stripes == (made[i].peer == 2 && epoch == 2 ? 3 : 1));
  }
  REQUIRE(bench.failures == 0);
}

TEST_CASE("two entries that have come meanwhile are both put, and each transport gets its own",
          "[doorbell]") {
  RecordingTransport second;
  Bench bench(&second);
  bench.ring_at(1, 8);
  bench.ring_at(2, 16);
  REQUIRE(bench.puts->look());
  for (RecordingTransport* const one : {&bench.transport, &second}) {
    const std::vector<Put> made = one->puts();
    REQUIRE(made.size() == 2);
    CHECK(made[0].epoch == 1);
    CHECK(made[0].bytes == 8);
    CHECK(made[1].epoch == 2);
    CHECK(made[1].bytes == 16);
    CHECK(made[0].peer == (one == &second ? 0 : 2));
    CHECK(one->looks == 1);  // one progress a look
  }
}

TEST_CASE("nothing is drained while a transport holds it", "[doorbell]") {
  RecordingTransport second;
  Bench bench(&second);
  second.holds = true;
  bench.ring_at(1, 8);
  REQUIRE(bench.puts->look());
  REQUIRE_FALSE(bench.puts->drained());
  REQUIRE_FALSE(bench.puts->look());
  REQUIRE_FALSE(bench.puts->drained());
  second.holds = false;
  REQUIRE_FALSE(bench.puts->look());
  REQUIRE(bench.puts->drained());
}

TEST_CASE("an entry that was overwritten is fatal", "[doorbell]") {
  Bench bench;
  bench.ring_at(1, 8);
  bench.ring_at(9, 8);  // in the place of 1
  REQUIRE_FALSE(bench.puts->look());
  REQUIRE(bench.failures == 1);
  REQUIRE(bench.cause.reason == AbortReason::kOverrun);
  REQUIRE(bench.cause.epoch == 1);
  REQUIRE(bench.text.find("epoch 1") != std::string::npos);
  REQUIRE(bench.puts->has_stopped());
  REQUIRE(bench.puts->drained());
  bench.ring_at(1, 8);
  REQUIRE_FALSE(bench.puts->look());
  REQUIRE(bench.transport.posts() == 0);
  REQUIRE(bench.failures == 1);
}

TEST_CASE("an entry that is larger than a slot is fatal and not put", "[doorbell]") {
  for (const std::uint64_t bytes : {kSlotBytes + 1, ~std::uint64_t{0}}) {
    Bench bench;
    bench.ring_at(1, bytes);
    REQUIRE_FALSE(bench.puts->look());
    REQUIRE_FALSE(bench.puts->look());
    REQUIRE(bench.failures == 1);
    REQUIRE(bench.cause.reason == AbortReason::kOverrun);
    REQUIRE(bench.text.find(std::to_string(bytes)) != std::string::npos);
    REQUIRE(bench.text.find("4096") != std::string::npos);
    REQUIRE(bench.transport.posts() == 0);
  }
}

TEST_CASE("after an abort nothing is put", "[doorbell]") {
  Bench bench;
  bench.ring_at(1, 8);
  REQUIRE(bench.puts->look());
  bench.abort.raise({AbortReason::kExplicit, 0, 1}, Status(Code::kRemoteError, "enough"));
  bench.ring_at(2, 8);
  REQUIRE_FALSE(bench.puts->look());
  REQUIRE(bench.puts->has_stopped());
  REQUIRE(bench.puts->drained());
  REQUIRE(bench.transport.posts() == 1);
  REQUIRE(bench.failures == 0);
}

TEST_CASE("a transport's error is reported once, with the epoch put last", "[doorbell]") {
  const bool at_post = GENERATE(true, false);
  Bench bench;
  bench.ring_at(1, 8);
  REQUIRE(bench.puts->look());
  (at_post ? bench.transport.refuses_post : bench.transport.fails) = true;
  bench.ring_at(2, 8);
  (void)bench.puts->look();
  for (int i = 0; i < 10; ++i) REQUIRE_FALSE(bench.puts->look());
  REQUIRE(bench.failures == 1);
  REQUIRE(bench.cause.reason == AbortReason::kTransport);
  REQUIRE(bench.cause.epoch == 2);
  REQUIRE(bench.text == (at_post ? "recording: post refused" : "recording: completion error"));
}

TEST_CASE("a transport's error waits for the abort that may have caused it", "[doorbell]") {
  Bench bench(nullptr, net::kNanosecondsPerSecond * 3600);
  bench.transport.fails = true;
  for (int i = 0; i < 10; ++i) REQUIRE_FALSE(bench.puts->look());
  REQUIRE(bench.puts->has_stopped());
  REQUIRE(bench.failures == 0);
  bench.abort.raise({AbortReason::kRemote, 0, 1}, Status(Code::kRemoteError, "the first cause"));
  for (int i = 0; i < 10; ++i) REQUIRE_FALSE(bench.puts->look());
  REQUIRE(bench.failures == 0);

  Bench soon(nullptr, 1'000'000);
  soon.transport.fails = true;
  const net::Deadline deadline = net::Deadline::after_s(60);
  while (soon.failures == 0 && !deadline.passed()) REQUIRE_FALSE(soon.puts->look());
  REQUIRE(soon.failures == 1);
}

TEST_CASE("what a transport throws is reported once", "[doorbell]") {
  const bool has_failed = GENERATE(true, false);
  Bench bench(nullptr, net::kNanosecondsPerSecond * 3600);
  if (has_failed) {
    bench.transport.fails = true;
    (void)bench.puts->look();
  }
  bench.puts->on_exception(Status(Code::kInternalError, "thrown"));
  bench.puts->on_exception(Status(Code::kInternalError, "again"));
  REQUIRE(bench.failures == 1);
  REQUIRE(bench.text == (has_failed ? "recording: completion error" : "thrown"));
  REQUIRE(bench.puts->has_stopped());
}

ProgressSettings settings_of(std::uint64_t spin_ns) {
  ProgressSettings settings;
  settings.spin_ns = spin_ns;
  settings.crowded = true;
  return settings;
}

TEST_CASE("what a transport throws on the thread fails its lane alone", "[doorbell]") {
  Bench bad, good;
  bad.transport.throws = true;
  const int device = 0;
  Result<ProgressPlace> first = Progress::add(&device, bad.puts.get(), settings_of(1000));
  Result<ProgressPlace> second = Progress::add(&device, good.puts.get(), settings_of(1000));
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  const net::Deadline deadline = net::Deadline::after_s(60);
  while (bad.failures == 0 && !deadline.passed()) std::this_thread::yield();
  good.ring_at(1, 8);
  while (good.puts->next_epoch() != 2 && !deadline.passed()) std::this_thread::yield();
  first.value().leave();
  second.value().leave();
  REQUIRE(bad.failures == 1);
  REQUIRE(bad.text == "recording: thrown");
  REQUIRE(good.failures == 0);
  REQUIRE(good.transport.posts() == 1);
}

std::uint64_t bytes_of(std::uint64_t epoch) {
  return epoch * 37 % (kSlotBytes + 1);
}

// A device as the protocol bounds it: at most two rounds ahead of what has been put.
void produce(Bench* bench, std::uint64_t entries, std::uint32_t seed, const ProgressPlace* eager) {
  std::mt19937 random(seed);
  for (std::uint64_t epoch = 1; epoch <= entries; ++epoch) {
    const net::Deadline deadline = net::Deadline::after_s(60);
    while (bench->puts->next_epoch() + 1 < epoch && !deadline.passed()) std::this_thread::yield();
    bench->ring_at(epoch, bytes_of(epoch));
    if (eager != nullptr && random() % 4 == 0) eager->wake();
    // None, shorter than the spin time, about as long, long enough for several naps.
    switch (random() % 8) {
      case 0:
        net::sleep_ns(random() % 400'000);
        break;
      case 1:
      case 2:
        for (auto spin = random() % 4000; spin != 0; --spin) cpu_pause();
        break;
      default:
        break;
    }
  }
}

// Two communicators on one thread, one of whose producers wakes it now and then.
TEST_CASE("no entry is lost, whatever the gaps between them", "[doorbell]") {
  constexpr std::uint64_t kEntries = 3000;
  const std::uint64_t spin_ns = GENERATE(0, 20'000, 100'000'000);
  INFO("spin time " << spin_ns);
  Bench first, second;
  const int device = 0;
  Result<ProgressPlace> a = Progress::add(&device, first.puts.get(), settings_of(spin_ns));
  Result<ProgressPlace> b = Progress::add(&device, second.puts.get(), settings_of(spin_ns));
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  REQUIRE(Progress::threads() == 1);
  std::thread other([&] { produce(&second, kEntries, 7, nullptr); });
  produce(&first, kEntries, 3, &a.value());
  other.join();
  const net::Deadline deadline = net::Deadline::after_s(60);
  for (Bench* const bench : {&first, &second}) {
    while (!(bench->puts->next_epoch() == kEntries + 1 && bench->puts->drained()) && !deadline.passed())
      std::this_thread::yield();
  }
  a.value().leave();
  b.value().leave();
  for (Bench* const bench : {&first, &second}) {
    REQUIRE(bench->failures == 0);
    const std::vector<Put> made = bench->transport.puts();
    REQUIRE(made.size() == 2 * kEntries);
    for (std::uint64_t i = 0; i < made.size(); ++i) {
      const std::uint64_t epoch = 1 + i / 2;
      const bool right = made[i].epoch == epoch && made[i].tag == 1000 + epoch &&
                         made[i].bytes == bytes_of(epoch) && made[i].payload == bench->lane.send[epoch & 1];
      if (!right) FAIL("put " << i << " is wrong");
    }
  }
}

}  // namespace
}  // namespace rocenante
