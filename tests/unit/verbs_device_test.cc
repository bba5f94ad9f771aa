// SPDX-License-Identifier: Apache-2.0
//
// The RDMA transport where peers write a device's memory: the host sees notices of the signals and nothing
// else.
#include <algorithm>

#include "tests/unit/verbs_pair.h"
#include "transports/verbs/blob.h"
#include "transports/verbs/rail_end.h"

namespace rocenante {
namespace {

bool comes_true(const std::function<bool()>& condition) {
  const net::Deadline deadline = net::Deadline::after_s(60);
  while (!condition()) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

// Whether nothing but words has been written there.
bool slots_are_empty(const End& end) {
  return holds(end.inbox->address() + end.geometry.signals_end(),
               end.geometry.inbox_bytes() - end.geometry.signals_end(), 0);
}

// A pair whose rank 1 receives in device memory, and rank 0 as `memory` says.
struct DevicePair : Pair {
  explicit DevicePair(bool both = false) : Pair(ports_of("soft"), ports_of("soft")) {
    set_device(1);
    if (both) set_device(0);
  }
};

}  // namespace

TEST_CASE("what is put for a device arrives in its memory, and a notice of it with the host",
          "[verbs][device]") {
  DevicePair pair(GENERATE(false, true));
  pair.verbs.delay_dma_bufs();
  require_ok(pair.connect());
  const End& there = pair.ends[1];
  REQUIRE(there.transport->device_inbox() != nullptr);
  CHECK_FALSE(there.transport->device_inbox()->dma_buf);  // registered, and so closed
  std::uint64_t epoch = 0;
  for (const std::uint64_t bytes : {0u, 1u, 15u, 56u, 57u, 100u, 4096u, 8192u}) {
    for (const std::uint32_t stripes : {1u, 2u}) {
      ++epoch;
      const auto fill = static_cast<unsigned char>(epoch);
      require_ok(pair.put(epoch, bytes, fill, stripes));
      require_ok(pair.settle());
      // Nothing is missing as far as the host can tell, although the device may not have it yet.
      CHECK(there.notice(epoch, 1) == epoch);  // (0 + 1) modulo 2 is the rail of small ones
      if (stripes == 2) CHECK(there.notice(epoch, 0) == epoch);
      REQUIRE(comes_true([&] {
        return there.signal(epoch) == epoch && (stripes == 1 || there.signal(epoch, 1) == epoch);
      }));
      CHECK(holds(there.recv_slot(epoch), bytes, fill));
      const auto tag_at =
          reinterpret_cast<const unsigned char*>(there.link.tag[epoch & 1]) - there.inbox->address();
      CHECK(*reinterpret_cast<const std::uint64_t*>(there.received() + tag_at) == 1000 + epoch);
    }
  }
  CHECK(slots_are_empty(there));
  CHECK(pair.verbs.long_host_writes() == 0);
  CHECK(pair.verbs.dma_buf_writes() != 0);
  CHECK(pair.verbs.overruns() == 0);
}

TEST_CASE("notices of one rail never undo those of another", "[verbs][device]") {
  DevicePair pair;
  require_ok(pair.connect());
  pair.verbs.stall(test::gid_of("10.77.0.1"), true);
  require_ok(pair.put(1, 4096, 1, 2));
  require_ok(pair.put(3, 8, 3, 1));
  const End& there = pair.ends[1];
  REQUIRE(comes_true([&] {
    require_ok(pair.ends[0].transport->progress());
    return there.notice(3, 1) == 3;
  }));
  pair.verbs.stall(test::gid_of("10.77.0.1"), false);
  require_ok(pair.settle());
  CHECK(std::max(there.notice(3, 0), there.notice(3, 1)) == 3);
  CHECK(there.notice(1, 0) == 1);
}

TEST_CASE("by notices the host knows of whom something is missing", "[verbs][device]") {
  DevicePair pair(true);
  require_ok(pair.connect());
  const End& here = pair.ends[0];
  CHECK_FALSE(here.transport->expects(1));
  const std::uint32_t stripes = GENERATE(1u, 2u);
  require_ok(pair.put(1, 4096, 1, stripes));
  CHECK(here.transport->expects(1));
  const auto line = [&](std::uint32_t number) -> std::uint64_t& {
    return reinterpret_cast<protocol::SignalLine*>(here.inbox->address() +
                                                   here.geometry.signal_offset(1, 1, number))
        ->epoch;
  };
  line(1) = 1;
  CHECK(here.transport->expects(1) == (stripes == 2));
  line(0) = 1;
  CHECK_FALSE(here.transport->expects(1));
}

TEST_CASE("posting for a device never waits", "[verbs][device]") {
  DevicePair pair;
  require_ok(pair.connect());
  pair.verbs.set_delay(100);
  std::uint64_t epoch = 0;
  for (std::uint32_t i = 0; i < 2 * kQueuedStripes; ++i) require_ok(pair.put(++epoch, 8, 1, 2));
  CHECK(pair.verbs.most_queued() == kSendRequests);
  CHECK(contains(pair.put(epoch + 1, 8, 1, 2).text(), "32 puts wait on"));
  pair.verbs.set_delay(30);
  require_ok(pair.settle());
  CHECK(pair.ends[1].signal(epoch) == epoch);
  CHECK(pair.verbs.most_queued() == kSendRequests);
  CHECK(pair.verbs.overruns() == 0);
}

TEST_CASE("an inbox that an adapter cannot write is named when ranks connect", "[verbs][device]") {
  DevicePair pair;
  require_ok(pair.open());
  VerbsBlob blob;
  REQUIRE(decode_blob(pair.ends[1].blob, 2, &blob));
  for (VerbsBlob::AdapterPart& adapter : blob.adapters) adapter.device_rkey += 1000;
  pair.ends[1].blob = encode_blob(blob);
  require_ok(pair.connect_opened());
  const Status probed = pair.ends[0].transport->probe(net::Deadline::after_s(60));
  INFO(probed.text());
  CHECK(contains(probed.text(), "to rank 1's rxe"));
  CHECK(contains(probed.text(), "the other end refuses access to its memory"));
}

namespace {

struct Lack {
  const char* options;
  std::function<void(Pair&)> take_away;
  const char* text;
};

std::vector<Lack> lacks() {
  const auto nothing = [](Pair&) {};
  return {{"ROCENANTE_SIGNAL=imm", nothing, "ROCENANTE_SIGNAL=imm has the host store the signals"},
          {"", [](Pair& pair) { pair.verbs.forbid_dma_bufs(test::gid_of("10.77.1.1")); },
           "rxe1 or its driver cannot register dma-bufs: Operation not supported"},
          {"", [](Pair& pair) { pair.api = &FakeVerbs::old_api(); }, "libibverbs lacks ibv_reg_dmabuf_mr"},
          {"", [](Pair& pair) { pair.set_device(1, false); }, "this device gives no memory to NICs"}};
}

}  // namespace

TEST_CASE("what is missing for device memory is an error where it is demanded, else host memory is taken",
          "[verbs][device]") {
  for (const Lack& lack : lacks()) {
    for (const std::string memory : {"auto", "device"}) {
      INFO(lack.text << ", " << memory);
      Pair pair(ports_of("soft"), ports_of("soft"),
                std::string(lack.options) + ";ROCENANTE_RECEIVE_MEMORY=" + memory);
      pair.set_device(0);
      pair.set_device(1);
      lack.take_away(pair);
      const Status connected = pair.connect();
      if (memory == "device") {
        CHECK(contains(connected.text(), "verbs: ROCENANTE_RECEIVE_MEMORY=device cannot be: "));
        CHECK(contains(connected.text(), lack.text));
        continue;
      }
      require_ok(connected);
      CHECK(pair.ends[1].transport->device_inbox() == nullptr);
      require_ok(pair.put(1, 4096, 1, 2));
      require_ok(pair.settle());
      require_ok(pair.ends[1].transport->progress());
      CHECK(holds(pair.ends[1].recv_slot(1), 4096, 1));
    }
  }
}

TEST_CASE("host memory is taken where it is asked for, and where calls are on no device",
          "[verbs][device]") {
  {
    Pair asked(ports_of("soft"), ports_of("soft"), "ROCENANTE_RECEIVE_MEMORY=host");
    asked.set_device(1);
    require_ok(asked.connect());
    CHECK(asked.ends[1].transport->device_inbox() == nullptr);
  }
  Pair demanded(ports_of("soft"), ports_of("soft"), "ROCENANTE_RECEIVE_MEMORY=device");
  CHECK(contains(demanded.connect().text(), "calls are on no device that has memory of its own"));
}

TEST_CASE("whichever call of verbs fails, host memory is taken or nothing is left behind",
          "[verbs][device]") {
  const auto run = [&](std::uint64_t failing, std::uint64_t* calls) {
    DevicePair pair(true);
    pair.verbs.fail_call(failing, ENOMEM);
    pair.verbs.set_delay(0);
    Status status = pair.connect();
    const bool in_device = status.ok() && pair.ends[0].transport->device_inbox() != nullptr &&
                           pair.ends[1].transport->device_inbox() != nullptr;
    if (status.ok()) status = pair.put(1, 4096, 1, 2);
    if (status.ok()) status = pair.settle();
    CHECK((status.ok() || status.text().starts_with("verbs: ")));
    if (status.ok()) CHECK(holds(pair.ends[1].recv_slot(1), 4096, 1));
    *calls = pair.verbs.calls();
    pair.ends[0].transport.reset();
    pair.ends[1].transport.reset();
    CHECK(pair.verbs.alive() == 0);
    return status.ok() && !in_device;
  };
  std::uint64_t calls = 0, ignored = 0;
  REQUIRE_FALSE(run(0, &calls));
  std::uint64_t on_host = 0;
  for (std::uint64_t failing = 1; failing <= calls; ++failing) {
    INFO("call " << failing << " of " << calls);
    on_host += run(failing, &ignored) ? 1 : 0;
  }
  CHECK(on_host == 2u * 2 * 2);  // ranks, adapters, and the question and the registration of each
}

}  // namespace rocenante
