// SPDX-License-Identifier: Apache-2.0
//
// The RDMA transport against adapters that are made up.
#include "tests/unit/verbs_pair.h"
#include "transports/verbs/blob.h"
#include "transports/verbs/rail_end.h"

namespace rocenante {
namespace {

TEST_CASE("queue pairs go from INIT over RTR to RTS with the settings and the GID of their port",
          "[verbs]") {
  const auto [a, b, gid, mtu] = GENERATE(table<std::string, std::string, int, int>({
      {"spark-one-cable-1", "spark-one-cable-2", 3, 5},
      {"spark-two-cables-1", "spark-two-cables-2", 3, 5},
      {"triangle-0", "triangle-1", 3, 5},
      {"soft", "soft", 1, 5},
      {"mixed-gids", "mixed-gids", 8, 5},
      {"no-roce-v2", "no-roce-v2", 3, 5},
      {"assorted", "assorted", 3, 0},
  }));
  INFO(a << " and " << b);
  std::size_t rails = 0;
  std::vector<std::vector<std::string>> transitions;
  {
    Pair pair(ports_of(a), ports_of(b),
              "ROCENANTE_IB_TC=106;ROCENANTE_IB_SL=3;ROCENANTE_IB_TIMEOUT=14;ROCENANTE_IB_RETRY_CNT=5");
    require_ok(pair.connect());
    rails = pair.ends[0].geometry.rails;
    pair.ends[0].transport.reset();
    pair.ends[1].transport.reset();
    transitions = pair.verbs.transitions();
    CHECK(pair.verbs.alive() == 0);
  }
  REQUIRE(transitions.size() == 2 * rails);
  std::size_t small = 0;
  for (const std::vector<std::string>& steps : transitions) {
    REQUIRE(steps.size() == 4);
    CHECK(steps[0] == "INIT port 1 pkey 0 access 2");
    const auto rtr = [&, number = gid](int size) {
      return fmt::format("RTR mtu {} gid {} hops 64 tc 106 sl 3 port 1 global 1", size, number);
    };
    small += steps[1] == rtr(3) ? 1 : 0;
    CHECK((steps[1] == rtr(mtu == 0 ? 5 : mtu) || (mtu == 0 && steps[1] == rtr(3))));
    CHECK(steps[2] == "RTS timeout 14 retry 5 rnr 7");
    CHECK(steps[3] == "ERR");
  }
  CHECK(small == (mtu == 0 ? 2u : 0u));
}

TEST_CASE("the path MTU is the smaller of both ends", "[verbs]") {
  std::vector<fabric::Port> a = ports_of("soft"), b = a;
  a.resize(1);
  b.resize(1);
  b[0].mtu = 1024;
  Pair pair(a, b);
  require_ok(pair.connect());
  for (const auto& steps : pair.verbs.transitions()) CHECK(contains(steps[1], "RTR mtu 3 "));
}

TEST_CASE("a put brings tag, payload and then the signal; small ones take one rail, large ones all",
          "[verbs]") {
  const std::string signal = GENERATE("write", "imm");
  INFO("ROCENANTE_SIGNAL=" << signal);
  Pair pair(ports_of("soft"), ports_of("soft"), "ROCENANTE_SIGNAL=" + signal);
  require_ok(pair.connect());
  const End& there = pair.ends[1];
  std::uint64_t epoch = 0;
  for (const std::uint64_t bytes : {0u, 1u, 15u, 56u, 57u, 100u, 4096u, 8192u}) {
    for (const std::uint32_t stripes : {1u, 2u}) {
      ++epoch;
      const auto fill = static_cast<unsigned char>(epoch);
      require_ok(pair.put(epoch, bytes, fill, stripes));
      CHECK_FALSE(pair.ends[0].transport->drained());
      require_ok(pair.settle());
      require_ok(pair.ends[1].transport->progress());
      CHECK(holds(there.recv_slot(epoch), bytes, fill));
      CHECK(*there.link.tag[epoch & 1] == 1000 + epoch);
      CHECK(there.signal(epoch) == epoch);
      if (stripes == 2) CHECK(there.signal(epoch, 1) == epoch);
    }
  }
  CHECK(pair.verbs.overruns() == 0);
  CHECK((pair.verbs.immediates() != 0) == (signal == "imm"));
  const fabric::Gid rails[] = {test::gid_of("10.77.0.1"), test::gid_of("10.77.1.1")};
  const std::uint64_t before[] = {pair.verbs.writes_over(rails[0]), pair.verbs.writes_over(rails[1])};
  require_ok(pair.put(++epoch, 64, 1, 1));
  require_ok(pair.settle());
  // One rail for this pair, always the same: (0 + 1) modulo 2.
  CHECK(pair.verbs.writes_over(rails[0]) == before[0]);
  CHECK(pair.verbs.writes_over(rails[1]) == before[1] + (signal == "imm" ? 1 : 2));
}

TEST_CASE("a tag that the peer's slot has already is not sent again", "[verbs]") {
  const std::string signal = GENERATE("write", "imm");
  const std::uint64_t bytes = GENERATE(0u, 8u, 4096u);
  INFO("ROCENANTE_SIGNAL=" << signal << " bytes " << bytes);
  Pair pair(ports_of("soft"), ports_of("soft"), "ROCENANTE_SIGNAL=" + signal);
  require_ok(pair.connect());
  constexpr std::uint64_t kErased = 1;
  std::uint64_t epoch = 0;
  const auto tag_after_put = [&](std::uint64_t tag) {
    ++epoch;
    const auto fill = static_cast<unsigned char>(epoch);
    const End& end = pair.ends[1];
    std::uint64_t* const there =
        protocol::slot_tag(end.inbox->address() + end.geometry.recv_offset(epoch & 1, 0));
    *there = kErased;
    require_ok(pair.put_tagged(tag, epoch, bytes, fill, epoch % 3 == 0 && bytes > 8 ? 2 : 1));
    require_ok(pair.settle());
    require_ok(pair.ends[1].transport->progress());
    CHECK(holds(end.recv_slot(epoch), bytes, fill));
    CHECK(end.signal(epoch) == epoch);
    return *there;
  };
  // Both slots need it.
  CHECK(tag_after_put(7) == 7);
  CHECK(tag_after_put(7) == 7);
  for (int i = 0; i < 5; ++i) CHECK(tag_after_put(7) == (bytes == 0 ? 7 : kErased));
  // The same as two rounds before, not as one before.
  const std::uint64_t last = epoch;
  CHECK(tag_after_put(8) == 8);
  CHECK(tag_after_put(7) == (bytes == 0 ? 7 : kErased));
  CHECK(tag_after_put(7) == 7);
  CHECK(epoch == last + 3);
  // One that looks like a slot's first content.
  for (int i = 0; i < 3; ++i) CHECK(tag_after_put(0) == 0);
}

TEST_CASE("immediate words carry epochs beyond their bits, on rails that long carried nothing too",
          "[verbs]") {
  Pair pair(ports_of("soft"), ports_of("soft"), "ROCENANTE_SIGNAL=imm");
  require_ok(pair.connect());
  std::uint64_t epoch = 0;
  for (int step = 0; step < 40; ++step) {
    epoch += (1u << 23) - 1;
    // One rail, and now and then both: the other has then missed more rounds than a word can count.
    const std::uint32_t stripes = step % 7 == 6 ? 2 : 1;
    const bool is_late = step % 2 == 1;  // two rounds behind what the receiver has put itself
    require_ok(pair.put(epoch + (is_late ? 2 : 0), 64, 1, stripes, 1));
    require_ok(pair.put(epoch, 64, 1, stripes, 0));
    require_ok(pair.settle());
    require_ok(pair.ends[1].transport->progress());
    for (std::uint32_t line = 0; line < stripes; ++line) REQUIRE(pair.ends[1].signal(epoch, line) == epoch);
  }
}

TEST_CASE("posting never waits: what does not fit is posted when completions come", "[verbs]") {
  const std::string signal = GENERATE("write", "imm");
  Pair pair(ports_of("soft"), ports_of("soft"), "ROCENANTE_SIGNAL=" + signal);
  require_ok(pair.connect());
  pair.verbs.set_delay(100);
  std::uint64_t epoch = 0;
  for (std::uint32_t i = 0; i < 2 * kQueuedStripes; ++i) require_ok(pair.put(++epoch, 8, 1, 2));
  CHECK(pair.verbs.most_queued() <= kSendRequests);
  const Status over = pair.put(epoch + 1, 8, 1, 2);
  CHECK(over.code() == Code::kInternalError);
  CHECK(contains(over.text(), "32 puts wait on"));
  require_ok(pair.ends[0].transport->progress());
  CHECK_FALSE(pair.ends[0].transport->drained());
  pair.verbs.set_delay(30);
  require_ok(pair.settle());
  require_ok(pair.ends[1].transport->progress());
  CHECK(pair.ends[1].signal(epoch) == epoch);
  CHECK(pair.verbs.most_queued() <= kSendRequests);
  CHECK(pair.verbs.overruns() == 0);
}

TEST_CASE("a completion error names rail and peer; what is flushed behind it is not the cause", "[verbs]") {
  Pair pair(ports_of("spark-one-cable-1"), ports_of("spark-one-cable-2"));
  require_ok(pair.connect());
  pair.verbs.cut(test::gid_of("192.168.101.2"));
  require_ok(pair.put(1, 4096, 1, 2));
  require_ok(pair.put(2, 4096, 1, 2));
  const Status failed = pair.settle();
  CHECK(failed.code() == Code::kRemoteError);
  CHECK(contains(failed.text(),
                 "verbs: roceP2p1s0f0:1 (192.168.101.1) to rank 1's roceP2p1s0f0:1 (192.168.101.2): "
                 "transport retry counter exceeded (status 12, vendor 0): the other end does not answer"));
  CHECK(pair.put(3, 8, 1, 1).text() == failed.text());
}

TEST_CASE("a peer that has signalled its part may go", "[verbs]") {
  Pair pair(ports_of("soft"), ports_of("soft"));
  require_ok(pair.connect());
  auto* const line = reinterpret_cast<protocol::SignalLine*>(pair.ends[0].inbox->address() +
                                                             pair.ends[0].geometry.signal_offset(1, 1, 0));
  line->epoch = 1;
  pair.ends[1].transport.reset();
  require_ok(pair.put(1, 8, 1, 1));
  require_ok([&] {
    for (int look = 0; look < 10'000 && !pair.ends[0].transport->drained(); ++look)
      RCN_TRY(pair.ends[0].transport->progress());
    return Status();
  }());
  CHECK(pair.ends[0].transport->drained());
  // The next round does need it.
  CHECK(contains(pair.put(2, 8, 1, 1).text(), "transport retry counter exceeded"));
}

TEST_CASE("a peer that has brought one of two shares may not", "[verbs]") {
  Pair pair(ports_of("soft"), ports_of("soft"));
  require_ok(pair.connect());
  require_ok(pair.put(1, 4096, 1, 2));
  require_ok(pair.settle());
  auto* const line = reinterpret_cast<protocol::SignalLine*>(pair.ends[0].inbox->address() +
                                                             pair.ends[0].geometry.signal_offset(1, 1, 0));
  line[GENERATE(0, 1)].epoch = 1;
  pair.ends[1].transport.reset();
  const net::Deadline deadline = net::Deadline::after_s(60);
  Status status;
  while (status.ok() && !deadline.passed()) status = pair.ends[0].transport->progress();
  CHECK(contains(status.text(), "transport retry counter exceeded"));
}

TEST_CASE("a peer that falls silent while it is waited for is found out without a put", "[verbs]") {
  Pair pair(ports_of("soft"), ports_of("soft"));
  require_ok(pair.connect());
  require_ok(pair.put(1, 8, 1, 1));
  require_ok(pair.settle());
  pair.verbs.cut(test::gid_of("10.77.0.1"));
  const net::Deadline deadline = net::Deadline::after_s(60);
  Status status;
  while (status.ok() && !deadline.passed()) status = pair.ends[0].transport->progress();
  CHECK(contains(status.text(), "rxe0:1 (10.77.0.1) to rank 1's rxe0:1"));
}

TEST_CASE("queue pairs in error without a reason say that", "[verbs]") {
  Pair pair(ports_of("soft"), ports_of("soft"));
  require_ok(pair.connect());
  pair.verbs.set_delay(100);
  require_ok(pair.put(1, 8, 1, 1));
  pair.verbs.reset(test::gid_of("10.77.1.1"));
  const Status failed = pair.settle();
  CHECK(failed.code() == Code::kRemoteError);
  CHECK(contains(failed.text(), "is in error, and no request of it says why"));
}

TEST_CASE("whichever call of verbs fails, the error says so and nothing is left behind", "[verbs]") {
  const auto [signal, memory] =
      GENERATE(table<std::string, std::string>({{"write", "host"}, {"imm", "host"}, {"write", "device"}}));
  const bool in_device = memory == "device";
  const auto run = [&, signal = signal, memory = memory](std::uint64_t failing, int error,
                                                         std::uint64_t* calls, std::string* text) {
    Pair pair(ports_of("soft"), ports_of("soft"),
              "ROCENANTE_SIGNAL=" + signal + ";ROCENANTE_RECEIVE_MEMORY=" + memory);
    for (std::uint32_t rank = 0; rank < 2; ++rank) pair.set_device(rank);
    pair.verbs.fail_call(failing, error);
    pair.verbs.set_delay(0);
    Status status = pair.connect();
    if (status.ok()) status = pair.put(1, 4096, 1, 2);
    if (status.ok()) status = pair.settle();
    if (status.ok()) status = pair.ends[1].transport->progress();
    *calls = pair.verbs.calls();
    *text = status.text();
    pair.ends[0].transport.reset();
    pair.ends[1].transport.reset();
    CHECK(pair.verbs.alive() == 0);
  };
  std::uint64_t calls = 0, ignored = 0;
  std::string text, all;
  run(0, 0, &calls, &text);
  REQUIRE(text.empty());
  REQUIRE(calls > 40);
  for (std::uint64_t failing = 1; failing <= calls; ++failing) {
    INFO("call " << failing << " of " << calls);
    run(failing, ENOMEM, &ignored, &text);
    CHECK(text.starts_with("verbs: "));
    all += text + "\n";
    run(failing, EACCES, &ignored, &text);
    CHECK(text.starts_with("verbs: "));
    all += text + "\n";
  }
  for (const char* part :
       {"ibv_get_device_list: ",
        "rxe0 cannot be opened; may this user read and write /dev/infiniband/uverbs0?", "Permission denied",
        "rxe1 has no protection domain", "rxe0 has no completion queue of ", "rxe0 cannot register ",
        "(RLIMIT_MEMLOCK): raise it with 'ulimit -l unlimited'", "rxe1:1 cannot be queried",
        "no queue pair for rxe0:1 (10.77.0.1) to rank 1's rxe0:1 (10.77.0.1)", "does not reach INIT",
        "does not reach RTR", "does not reach RTS", "takes no send request", "cannot be polled"}) {
    INFO(part);
    CHECK(contains(all, part));
  }
  CHECK(contains(all, "takes no receive request") == (signal == "imm"));
  CHECK(contains(all, "rxe0 or its driver cannot register dma-bufs: ") == in_device);
  CHECK(contains(all, "rxe1 cannot register a dma-buf of ") == in_device);
}

TEST_CASE("a device that libibverbs does not offer is named", "[verbs]") {
  std::vector<fabric::Port> ports = ports_of("soft");
  Pair pair(ports, ports);
  Pair empty({}, {});
  FakeVerbs::set_host(0);
  End end;
  Result<Config> config = Config::load();
  REQUIRE(config.ok());
  const protocol::Geometry geometry{2, 1, 1, kSlotBytes};
  auto inbox = host_device().allocate_region(geometry.inbox_bytes(), PeerAccess::kReadWrite);
  auto outbox = host_device().allocate_region(geometry.outbox_bytes(), PeerAccess::kReadOnly);
  REQUIRE((inbox.ok() && outbox.ok()));
  auto transport = make_verbs_transport(&FakeVerbs::api());
  REQUIRE(transport.ok());
  const Result<std::string> opened = transport.value()->open({0,
                                                              2,
                                                              &config.value(),
                                                              nullptr,
                                                              geometry,
                                                              inbox.value(),
                                                              outbox.value(),
                                                              {0, 0},
                                                              {{}, {{ports[0], ports[0]}}}});
  CHECK(contains(opened.status().text(), "the system has rxe0, but libibverbs does not offer it"));
  CHECK(empty.verbs.alive() == 0);
}

TEST_CASE("a description of queue pairs is taken whole and sane or not at all", "[verbs]") {
  VerbsBlob blob;
  blob.first_packet = 77;
  blob.received = 1;
  blob.inbox_bytes = 4096;
  blob.adapters = {{5, 6}, {7, 8}};
  blob.peers = {{0, {{0, 17, 5}, {1, 18, 3}}}, {0, {}}};
  const std::string good = encode_blob(blob);
  VerbsBlob read;
  REQUIRE(decode_blob(good, 2, &read));
  CHECK(read.peers.at(0).rails.at(1).queue_pair == 18);
  CHECK(read.adapters.at(1).inbox == 8);
  CHECK_FALSE(read.in_device);
  for (std::size_t length = 0; length < good.size(); ++length) {
    VerbsBlob part;
    CHECK_FALSE(decode_blob(good.substr(0, length), 2, &part));
  }
  const auto refused = [](VerbsBlob changed, std::uint32_t ranks = 2) {
    VerbsBlob into;
    return !decode_blob(encode_blob(changed), ranks, &into);
  };
  VerbsBlob changed = blob;
  changed.peers[0].rails[0].adapter = 2;
  CHECK(refused(changed));
  changed = blob;
  changed.peers[0].rails[0].mtu = 6;
  CHECK(refused(changed));
  changed = blob;
  changed.peers[0].rails[0].queue_pair = 1u << 24;
  CHECK(refused(changed));
  changed = blob;
  changed.peers[0].recv_index = 1;
  CHECK(refused(changed));
  changed = blob;
  changed.first_packet = 1u << 24;
  CHECK(refused(changed));
  CHECK(refused(blob, 3));
  CHECK(refused(blob, 1));
  changed = blob;
  changed.peers[0].rails.resize(fabric::kMostRails + 1);
  CHECK(refused(changed));
  changed = blob;
  changed.in_device = true;
  changed.adapters = {{5, 6, 9, 10}, {7, 8, 11, 12}};
  const std::string in_device = encode_blob(changed);
  VerbsBlob both;
  REQUIRE(decode_blob(in_device, 2, &both));
  CHECK(
      (both.in_device && both.adapters.at(1).device_rkey == 11 && both.adapters.at(0).device_inbox == 10));
  for (std::size_t length = 0; length < in_device.size(); ++length) {
    VerbsBlob part;
    CHECK_FALSE(decode_blob(in_device.substr(0, length), 2, &part));
  }
  std::string odd = in_device;
  odd[2 + 4 + 4 + 8] = 2;  // neither no nor yes
  VerbsBlob into;
  CHECK_FALSE(decode_blob(odd, 2, &into));
}

}  // namespace
}  // namespace rocenante
