// SPDX-License-Identifier: Apache-2.0
//
// What the simulated device promises and refuses, so that what other tests see of it counts.
#include "tests/support/sim_device.h"

#include <atomic>
#include <thread>

#include "lib/base/config.h"
#include "lib/device/registry.h"
#include "tests/support/catch.h"

namespace {

using namespace rocenante;
using namespace rocenante::test;

// Work that adds a number to a list, which one thread at a time may see.
struct Trace {
  std::function<void()> add(int number) {
    return [this, number] {
      const std::lock_guard lock(mutex);
      seen.push_back(number);
    };
  }
  std::mutex mutex;
  std::vector<int> seen;
};

bool refuses(const Status& status, const char* part) {
  return !status.ok() && status.text().find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("Streams run their work in order, and a mark orders one behind another") {
  SimDevice device;
  void* const first = device.make_stream();
  void* const second = device.make_stream();
  Trace trace;
  SimTicket gate;
  REQUIRE(device.run(first, [&] { gate.wait(); }).ok());
  REQUIRE(device.run(first, trace.add(1)).ok());
  const SimMark mark = device.mark(first).take();
  REQUIRE(device.follow(second, mark).ok());
  REQUIRE(device.run(second, trace.add(2)).ok());
  gate.finish();
  REQUIRE(device.synchronise(second).ok());
  REQUIRE(trace.seen == std::vector<int>{1, 2});
}

TEST_CASE("A stream that was destroyed still does its work, and no more is taken") {
  Trace trace;
  void* stream = nullptr;
  SimTicket gate;
  {
    SimDevice device;
    stream = device.make_stream();
    REQUIRE(device.run(stream, [&] { gate.wait(); }).ok());
    REQUIRE(device.run(stream, trace.add(1)).ok());
    device.destroy_stream(stream);
    REQUIRE(refuses(device.run(stream, trace.add(2)), "not a stream"));
    gate.finish();
  }
  REQUIRE(trace.seen == std::vector<int>{1});
}

TEST_CASE("An event waits for its last record, and has passed when that has") {
  SimDevice device;
  void* const first = device.make_stream();
  void* const second = device.make_stream();
  const auto event = device.make_event().take();
  REQUIRE(device.has_passed(*event).value());
  Trace trace;
  SimTicket gate;
  REQUIRE(device.wait(second, *event).ok());  // nothing is recorded: no wait
  REQUIRE(device.run(second, trace.add(0)).ok());
  REQUIRE(device.synchronise(second).ok());
  REQUIRE(device.run(first, [&] { gate.wait(); }).ok());
  REQUIRE(device.run(first, trace.add(1)).ok());
  REQUIRE(device.record(first, *event).ok());
  REQUIRE_FALSE(device.has_passed(*event).value());
  REQUIRE(device.wait(second, *event).ok());
  REQUIRE(device.run(second, trace.add(2)).ok());
  gate.finish();
  REQUIRE(device.synchronise(second).ok());
  REQUIRE(device.has_passed(*event).value());
  REQUIRE(trace.seen == std::vector<int>{0, 1, 2});
}

TEST_CASE("A graph runs its branches side by side and as often as it is replayed") {
  SimDevice device;
  void* const origin = device.make_stream();
  void* const side = device.make_stream();
  Trace trace;
  std::atomic<int> there{0};
  // Each branch waits for the other to have begun.
  const auto meet = [&] {
    const int all = (there.fetch_add(1) / 2 + 1) * 2;
    while (there.load() < all) std::this_thread::yield();
  };
  REQUIRE(device.begin_capture(origin).ok());
  REQUIRE(device.run(origin, trace.add(1)).ok());
  REQUIRE(device.follow(side, device.mark(origin).take()).ok());
  REQUIRE(device.run(origin, meet).ok());
  REQUIRE(device.run(side, meet).ok());
  REQUIRE(device.follow(origin, device.mark(side).take()).ok());
  REQUIRE(device.run(origin, trace.add(2)).ok());
  REQUIRE(trace.seen.empty());
  const auto graph = device.end_capture(origin).take();
  for (int run = 0; run < 3; ++run) REQUIRE(device.replay(graph, run == 1 ? side : origin).ok());
  REQUIRE(device.synchronise(origin).ok());
  REQUIRE(device.synchronise(side).ok());
  REQUIRE(trace.seen == std::vector<int>{1, 2, 1, 2, 1, 2});
}

TEST_CASE("External nodes order a graph's runs with work outside") {
  SimDevice device;
  void* const stream = device.make_stream();
  void* const outside = device.make_stream();
  const auto event = device.make_event().take();
  Trace trace;
  REQUIRE(device.begin_capture(stream).ok());
  REQUIRE(device.wait(stream, *event).ok());
  REQUIRE(device.run(stream, trace.add(2)).ok());
  const SimMark mark = device.mark(stream).take();
  auto* const last = reinterpret_cast<GraphNode*>(mark.nodes.at(0));
  GraphNode* const record = device.record_in_graph(stream, *event, last, nullptr).take();
  REQUIRE(device.record_in_graph(stream, *event, last, record).value() == record);
  REQUIRE(device.run(stream, trace.add(3)).ok());
  const auto graph = device.end_capture(stream).take();

  SimTicket gate;
  REQUIRE(device.run(outside, [&] { gate.wait(); }).ok());
  REQUIRE(device.run(outside, trace.add(1)).ok());
  REQUIRE(device.record(outside, *event).ok());
  REQUIRE(device.replay(graph, stream).ok());
  REQUIRE(device.wait(outside, *event).ok());
  REQUIRE(device.run(outside, [] {}).ok());
  REQUIRE_FALSE(device.has_passed(*event).value());
  gate.finish();
  REQUIRE(device.synchronise(outside).ok());
  REQUIRE(device.synchronise(stream).ok());
  REQUIRE(trace.seen == std::vector<int>{1, 2, 3});
}

TEST_CASE("What a capture forbids is refused or breaks it") {
  SimDevice device;
  void* const origin = device.make_stream();
  void* const side = device.make_stream();
  REQUIRE(refuses(device.begin_capture(nullptr), "default stream"));
  const SimMark before = device.mark(side).take();
  REQUIRE(device.begin_capture(origin).ok());
  REQUIRE(refuses(device.begin_capture(origin), "being captured"));
  REQUIRE(refuses(device.allocate_shared(8).status(), "while a stream is being captured"));
  REQUIRE(refuses(device.make_event().status(), "while a stream is being captured"));
  SECTION("a stream that forked and was not joined") {
    REQUIRE(device.follow(side, device.mark(origin).take()).ok());
    REQUIRE(device.run(side, [] {}).ok());
    REQUIRE(refuses(device.end_capture(side).status(), "did not begin on this stream"));
    REQUIRE(refuses(device.end_capture(origin).status(), "not joined"));
  }
  SECTION("a wait for work outside") {
    REQUIRE(refuses(device.follow(origin, before), "outside"));
    REQUIRE(refuses(device.capture_of(origin).status(), "broken"));
    REQUIRE_FALSE(device.end_capture(origin).ok());
  }
  SECTION("a synchronisation") {
    REQUIRE(refuses(device.synchronise(origin), "synchronised"));
    REQUIRE(refuses(device.end_capture(origin).status(), "synchronised"));
  }
  // Nothing is left of it.
  REQUIRE_FALSE(device.capture_of(origin).value().active);
  REQUIRE(device.allocate_shared(8).ok());
}

TEST_CASE("Captures have ids of their own, though their streams are the same") {
  SimDevice device;
  void* const stream = device.make_stream();
  REQUIRE(device.begin_capture(stream).ok());
  const std::uint64_t first = device.capture_of(stream).value().id;
  REQUIRE(device.end_capture(stream).ok());
  REQUIRE(device.begin_capture(stream).ok());
  REQUIRE(device.capture_of(stream).value().id != first);
  REQUIRE(device.end_capture(stream).ok());
}

TEST_CASE("A graph lets go of what it has kept with its last owner, on another thread") {
  SimDevice device;
  void* const stream = device.make_stream();
  std::atomic<bool> gone{false};
  std::thread::id by;
  REQUIRE(device.begin_capture(stream).ok());
  REQUIRE(device
              .keep(stream, std::shared_ptr<void>(&gone,
                                                  [&](void*) {
                                                    by = std::this_thread::get_id();
                                                    gone = true;
                                                  }))
              .ok());
  auto graph = device.end_capture(stream).take();
  REQUIRE(device.replay(graph, stream).ok());
  REQUIRE(device.synchronise(stream).ok());
  REQUIRE_FALSE(gone);
  graph.reset();
  while (!gone) std::this_thread::yield();
  REQUIRE(by != std::this_thread::get_id());
}

TEST_CASE("Memory is told apart, and gone when nobody holds it") {
  SimDevice device, other;
  const auto buffer = device.buffer(100);
  int host = 0;
  REQUIRE(device.check_buffer("sendbuff", buffer.get(), 100).ok());
  REQUIRE(refuses(device.check_buffer("sendbuff", buffer.get(), 101), "sendbuff is"));
  REQUIRE(refuses(device.check_buffer("recvbuff", &host, 1), "recvbuff is"));
  REQUIRE(refuses(device.device_address(buffer.get()).status(), "out of the simulated device's reach"));
  const auto region = device.allocate_region(100, PeerAccess::kReadOnly).take();
  REQUIRE(device.device_address(region->address() + 50).ok());
  REQUIRE_FALSE(other.device_address(region->address()).ok());
  auto reach =
      other.make_reachable({region->address(), region->bytes(), PeerAccess::kReadOnly, region}).take();
  REQUIRE(other.device_address(region->address()).ok());
  reach.reset();
  REQUIRE_FALSE(other.device_address(region->address()).ok());
  REQUIRE(device.memory_ranges() == 2);
}

TEST_CASE("The simulated device is found by its name where a thread has one") {
  REQUIRE(Config::load("ROCENANTE_DEVICE=SIM").value().text(Key::kDevice) == "sim");
  REQUIRE_FALSE(Config::load("ROCENANTE_DEVICE=simulated").ok());
  REQUIRE(refuses(open_device("sim").status(), "this thread has no simulated device"));
  const auto device = std::make_shared<SimDevice>();
  SimDevice::make_current(device);
  REQUIRE(open_device("sim").value() == device);
  SimDevice::make_current(nullptr);
  REQUIRE(open_device("auto").value().get() == &host_device());
}
