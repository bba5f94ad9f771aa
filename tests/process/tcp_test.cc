// SPDX-License-Identifier: Apache-2.0
//
// The tcp transport by itself: against peers that send nonsense, strangers, late peers and broken
// connections.
#include "transports/tcp/tcp.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <vector>

#include "lib/base/config.h"
#include "lib/device/device.h"
#include "lib/net/socket.h"
#include "tests/support/catch.h"
#include "transports/tcp/frame.h"

namespace rocenante {
namespace {

using net::Deadline;

constexpr std::uint64_t kWindow = 65536;

Config config(const std::string& more = "") {
  Result<Config> loaded = Config::load("ROCENANTE_SOCKET_IFNAME==lo;ROCENANTE_TCP_WINDOW=64K;" + more);
  REQUIRE(loaded.ok());
  return loaded.take();
}

Deadline patience() {
  return Deadline::after_s(120);
}

bool contains(std::string_view whole, std::string_view part) {
  return whole.find(part) != std::string_view::npos;
}

// One rank's transport with its memory, and no communicator around it.
struct Node {
  Node(std::uint32_t rank, std::uint32_t ranks, const net::SecretKey& key, const Config& settings) {
    protocol::Geometry geometry{ranks, 1, ranks - 1, std::uint64_t{1} << 20};
    context = {rank, ranks, &settings, &key, geometry, nullptr, nullptr, {}, {}};
    for (std::uint32_t peer = 0, next = 0; peer < ranks; ++peer)
      context.recv_index.push_back(peer == rank ? 0 : next++);
    context.inbox = host_device().allocate_region(geometry.inbox_bytes(), PeerAccess::kReadWrite).take();
    context.outbox = host_device().allocate_region(geometry.outbox_bytes(), PeerAccess::kReadOnly).take();
    transport = make_tcp_transport();
    const Result<std::string> opened = transport->open(context);
    REQUIRE(opened.ok());
    blob = opened.value();
  }

  unsigned char* outgoing(std::uint64_t epoch) const {
    return context.outbox->address() + context.geometry.send_offset(epoch % 2);
  }
  const unsigned char* slot(std::uint32_t peer, std::uint64_t epoch) const {
    return context.inbox->address() + context.geometry.recv_offset(epoch % 2, context.recv_index[peer]);
  }
  std::uint64_t signal(std::uint32_t peer, std::uint64_t epoch) const {
    const auto* const line = reinterpret_cast<const protocol::SignalLine*>(
        context.inbox->address() + context.geometry.signal_offset(epoch % 2, peer, 0));
    return __atomic_load_n(&line->epoch, __ATOMIC_ACQUIRE);
  }
  Status post(std::uint32_t peer, std::uint64_t epoch, std::uint64_t bytes) {
    const Put put{peer, outgoing(epoch), bytes, epoch, 17};
    return transport->post(std::span(&put, 1));
  }
  net::SocketAddress address() const {
    net::WireReader reader(blob);
    return net::read_address(&reader);
  }

  TransportContext context;
  std::unique_ptr<Transport> transport;
  std::string blob;
};

// Ranks 0 and 1, connected.
struct Pair {
  Pair() : settings(config()), key(net::random_key()), low(0, 2, key, settings), high(1, 2, key, settings) {
    REQUIRE(low.transport->connect(1, high.blob, patience(), nullptr).ok());
    REQUIRE(high.transport->connect(0, low.blob, patience(), nullptr).ok());
    REQUIRE(low.transport->stop_serving(patience()).ok());
    REQUIRE(high.transport->stop_serving(patience()).ok());
  }
  Config settings;
  net::SecretKey key;
  Node low;
  Node high;
};

// The highest rank's transport, which has posted epoch 1, and, in the test's hands, the authenticated
// connections of those below it.
struct Wires {
  explicit Wires(std::uint32_t below)
      : settings(config()), key(net::random_key()), node(below, below + 1, key, settings) {
    for (std::uint32_t rank = 0; rank < below; ++rank) {
      fds.push_back(net::connect_to(node.address(), patience()).take());
      REQUIRE(net::handshake_client(fds[rank].get(), key, net::Identity{"tcp", rank, ""}, patience()).ok());
      std::array<std::byte, 2> taken_in{};
      REQUIRE(net::receive_all(fds[rank].get(), taken_in, patience(), "server").ok());
      REQUIRE(node.transport->connect(rank, node.blob, patience(), nullptr).ok());
    }
    REQUIRE(node.transport->stop_serving(patience()).ok());
    for (std::uint32_t rank = 0; rank < below; ++rank) REQUIRE(node.post(rank, 1, 0).ok());
  }
  void send(std::uint32_t rank, std::string_view bytes) {
    REQUIRE(net::send_all(fds[rank].get(), bytes, patience(), "node").ok());
  }
  // Sleeps until something is there, and looks at it.
  void sleep() {
    pollfd entry{node.transport->wait_descriptor(), POLLIN, 0};
    REQUIRE(::poll(&entry, 1, 60'000) == 1);
    REQUIRE(node.transport->progress().ok());
  }
  // Whether there would be nothing to wake it.
  bool would_sleep() {
    pollfd entry{node.transport->wait_descriptor(), POLLIN, 0};
    return ::poll(&entry, 1, 0) == 0;
  }
  Config settings;
  net::SecretKey key;
  Node node;
  std::vector<net::SocketFd> fds;
};

// The same with rank 0 alone below.
struct Wire : Wires {
  Wire() : Wires(1) {}
  void send(std::string_view bytes) { Wires::send(0, bytes); }
  void close() { fds[0].reset(); }
  // What the transport says once it has read what was sent, or success when nothing comes of it.
  Status outcome() {
    const Deadline limit = patience();
    while (!limit.passed()) {
      if (Status status = node.transport->progress(); !status.ok()) return status;
      if (!node.transport->connection(0).ok() || node.signal(0, 1) == 1) return {};
    }
    return make_error(Code::kTimeout, "nothing happened");
  }
};

std::string header(std::uint64_t bytes, std::uint64_t epoch) {
  std::array<std::byte, tcp::kHeaderBytes> raw;
  tcp::encode_header({bytes, epoch, 17}, raw);
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

void fill(unsigned char* to, std::uint64_t bytes, std::uint64_t seed) {
  for (std::uint64_t i = 0; i < bytes; ++i) to[i] = static_cast<unsigned char>(i * 131 + seed + (i >> 8));
}

}  // namespace

TEST_CASE("rounds of every size cross in both directions at once") {
  Pair pair;
  std::uint64_t epoch = 0;
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{16384}, kWindow - 32, kWindow - 1, kWindow,
        kWindow + 1, std::uint64_t{1} << 20, std::uint64_t{3}}) {
    ++epoch;
    fill(pair.low.outgoing(epoch), bytes, epoch);
    fill(pair.high.outgoing(epoch), bytes, epoch + 99);
    REQUIRE(pair.low.post(1, epoch, bytes).ok());
    REQUIRE(pair.high.post(0, epoch, bytes).ok());
    const Deadline limit = patience();
    while (pair.low.signal(1, epoch) != epoch || pair.high.signal(0, epoch) != epoch ||
           !pair.low.transport->drained() || !pair.high.transport->drained()) {
      REQUIRE_FALSE(limit.passed());
      REQUIRE(pair.low.transport->progress().ok());
      REQUIRE(pair.high.transport->progress().ok());
    }
    CHECK(std::equal(pair.low.outgoing(epoch), pair.low.outgoing(epoch) + bytes, pair.high.slot(0, epoch)));
    CHECK(
        std::equal(pair.high.outgoing(epoch), pair.high.outgoing(epoch) + bytes, pair.low.slot(1, epoch)));
  }
}

TEST_CASE("ranks that only move when their descriptors wake them get everything across") {
  Pair pair;
  constexpr std::uint64_t kBytes = 1 << 20;
  fill(pair.low.outgoing(1), kBytes, 5);
  fill(pair.high.outgoing(1), kBytes, 6);
  REQUIRE(pair.low.post(1, 1, kBytes).ok());
  REQUIRE(pair.high.post(0, 1, kBytes).ok());
  const std::array<Node*, 2> nodes = {&pair.low, &pair.high};
  const auto is_done = [&] {
    return pair.low.signal(1, 1) == 1 && pair.high.signal(0, 1) == 1 && pair.low.transport->drained() &&
           pair.high.transport->drained();
  };
  while (!is_done()) {
    std::array<pollfd, 2> polls{};
    for (std::size_t i = 0; i < 2; ++i) polls[i] = {nodes[i]->transport->wait_descriptor(), POLLIN, 0};
    // Neither asleep for good: what one has sent, or has read, must wake the other.
    REQUIRE(::poll(polls.data(), polls.size(), 60'000) > 0);
    for (std::size_t i = 0; i < 2; ++i) {
      if (polls[i].revents != 0) REQUIRE(nodes[i]->transport->progress().ok());
    }
  }
  CHECK(std::equal(pair.low.outgoing(1), pair.low.outgoing(1) + kBytes, pair.high.slot(0, 1)));
}

TEST_CASE("a socket is watched while its rank sleeps and not while it looks") {
  Pair pair;
  const auto watched = [](int epoll) {
    std::ifstream info("/proc/self/fdinfo/" + std::to_string(epoll));
    int count = 0;
    for (std::string line; std::getline(info, line);) count += line.starts_with("tfd:");
    return count;
  };
  for (std::uint64_t epoch = 1; epoch <= 2; ++epoch) {
    REQUIRE(pair.high.post(0, epoch, 0).ok());
    const int epoll = pair.high.transport->wait_descriptor();
    REQUIRE(epoll >= 0);
    CHECK(watched(epoll) == 1);
    REQUIRE(pair.low.post(1, epoch, 0).ok());
    pollfd entry{epoll, POLLIN, 0};
    REQUIRE(::poll(&entry, 1, 60'000) == 1);
    REQUIRE(pair.high.transport->progress().ok());
    CHECK(pair.high.signal(0, epoch) == epoch);
    CHECK(watched(epoll) == 0);
  }
}

TEST_CASE("whatever comes ends a sleep once, of few peers and of many") {
  for (const std::uint32_t peers : {1U, 4U, 5U, 9U}) {
    CAPTURE(peers);
    Wires wires(peers);
    CHECK(wires.would_sleep());
    REQUIRE(wires.node.transport->progress().ok());
    for (std::uint32_t rank = 0; rank < peers; ++rank) {
      wires.send(rank, header(0, 1));
      while (wires.node.signal(rank, 1) != 1) wires.sleep();
      CHECK(wires.would_sleep());
    }
    // Of the next round, which is not needed yet, and in two parts.
    wires.send(0, header(0, 2).substr(0, 10));
    wires.sleep();
    CHECK(wires.would_sleep());
    wires.send(0, header(0, 2).substr(10));
    while (wires.node.signal(0, 2) != 2) wires.sleep();
    CHECK(wires.would_sleep());
    // The end, which stays readable for ever.
    wires.fds[peers - 1].reset();
    while (wires.node.transport->connection(peers - 1).ok()) wires.sleep();
    CHECK(wires.would_sleep());
  }
}

TEST_CASE("no more than the window is sent to a peer that has not come") {
  Pair pair;
  constexpr std::uint64_t kBytes = 1 << 20;
  fill(pair.low.outgoing(1), kBytes, 5);
  REQUIRE(pair.low.post(1, 1, kBytes).ok());
  for (int look = 0; look < 1000; ++look) REQUIRE(pair.low.transport->progress().ok());
  CHECK_FALSE(pair.low.transport->drained());
  // The peer is there, but its round is not: the window arrives, and then nothing more.
  REQUIRE(pair.high.transport->wait_descriptor() >= 0);
  for (int look = 0; look < 1000; ++look) {
    (void)pair.high.transport->wait_descriptor();  // reads whatever is there, needed or not
    REQUIRE(pair.high.transport->progress().ok());
    REQUIRE(pair.low.transport->progress().ok());
  }
  CHECK(pair.high.signal(0, 1) == 0);
  CHECK(std::equal(pair.low.outgoing(1), pair.low.outgoing(1) + kWindow, pair.high.slot(0, 1)));
  CHECK(int{pair.high.slot(0, 1)[kWindow]} == 0);
  CHECK(int{pair.high.slot(0, 1)[kBytes - 1]} == 0);
  // An empty contribution of its own opens the way.
  REQUIRE(pair.high.post(0, 1, 0).ok());
  const Deadline limit = patience();
  while (pair.high.signal(0, 1) != 1) {
    REQUIRE_FALSE(limit.passed());
    REQUIRE(pair.low.transport->progress().ok());
    REQUIRE(pair.high.transport->progress().ok());
  }
  CHECK(pair.low.transport->drained());
}

TEST_CASE("an authenticated peer's malformed frame is an error naming it") {
  Wire wire;
  SECTION("no frame") {
    wire.send(std::string(64, 'x'));
  }
  SECTION("of another epoch") {
    wire.send(header(0, 2));
  }
  SECTION("longer than a slot") {
    wire.send(header((1 << 20) + 1, 1));
  }
  const Status status = wire.outcome();
  REQUIRE_FALSE(status.ok());
  CHECK(contains(status.text(), "rank 0 sent"));
  CHECK(wire.node.signal(0, 1) == 0);
}

TEST_CASE("the end of a connection is a state of the peer and no error by itself") {
  Wire wire;
  SECTION("between frames, with the last one still to be read") {
    wire.send(header(3, 1) + "abc");
    wire.close();
    CHECK(wire.outcome().ok());
    CHECK(wire.node.signal(0, 1) == 1);
    REQUIRE(wire.node.post(0, 2, 100).ok());
    const Deadline limit = patience();
    while (wire.node.transport->connection(0).ok() && !limit.passed())
      REQUIRE(wire.node.transport->progress().ok());
    CHECK(wire.node.transport->connection(0).text() == "rank 0 closed its data connection");
  }
  SECTION("inside a frame") {
    wire.send(header(3, 1) + "ab");
    wire.close();
    CHECK(wire.outcome().ok());
    CHECK(wire.node.signal(0, 1) == 0);
    CHECK(wire.node.transport->connection(0).text() == "rank 0 closed its data connection inside a frame");
  }
}

TEST_CASE("posting to a peer that is gone neither fails nor stays pending") {
  Wire wire;
  wire.send(header(0, 1));
  CHECK(wire.outcome().ok());
  wire.close();
  const Deadline limit = patience();
  // Large, so that the socket cannot take it all.
  REQUIRE(wire.node.post(0, 2, std::uint64_t{1} << 20).ok());
  while (!wire.node.transport->drained() && !limit.passed()) REQUIRE(wire.node.transport->progress().ok());
  CHECK(wire.node.transport->drained());
}

TEST_CASE("strangers on the data port keep nobody out") {
  const Config settings = config();
  const net::SecretKey key = net::random_key();
  Node high(1, 2, key, settings);
  std::vector<net::SocketFd> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(net::connect_to(high.address(), patience()).take());
    if (i % 3 == 1)
      REQUIRE(net::send_all(strangers.back().get(), "GET / HTTP/1.0\r\n\r\n", patience(), "x").ok());
    if (i % 3 == 2) REQUIRE(net::send_all(strangers.back().get(), "RCNhelo1", patience(), "x").ok());
  }
  // Another communicator's key proves nothing; a member calls from below.
  const auto greet = [&](const net::SecretKey& with, std::uint32_t rank) {
    net::SocketFd fd = net::connect_to(high.address(), patience()).take();
    const bool met = net::handshake_client(fd.get(), with, net::Identity{"tcp", rank, ""}, patience()).ok();
    std::array<std::byte, 2> taken_in{};
    return met && net::receive_all(fd.get(), taken_in, patience(), "server").ok();
  };
  CHECK_FALSE(greet(net::random_key(), 0));
  CHECK_FALSE(greet(key, 1));
  CHECK_FALSE(greet(key, 7));
  Node low(0, 2, key, settings);
  REQUIRE(low.transport->connect(1, high.blob, patience(), nullptr).ok());
  REQUIRE(high.transport->connect(0, low.blob, patience(), nullptr).ok());
  REQUIRE(high.transport->stop_serving(patience()).ok());
  REQUIRE(low.post(1, 1, 10).ok());
  REQUIRE(high.post(0, 1, 10).ok());
  const Deadline limit = patience();
  while (high.signal(0, 1) != 1 && !limit.passed()) REQUIRE(high.transport->progress().ok());
  CHECK(high.signal(0, 1) == 1);
}

TEST_CASE("a peer that cannot be reached, or is not who it should be, is named") {
  const Config settings = config();
  const net::SecretKey key = net::random_key();
  Node low(0, 3, key, settings);
  std::string blob;
  {
    const Node gone(1, 3, key, settings);
    blob = gone.blob;
  }
  CHECK(contains(low.transport->connect(1, blob, patience(), nullptr).text(), "cannot connect to rank 1"));
  const Node other(2, 3, key, settings);
  const Status swapped = low.transport->connect(1, other.blob, patience(), nullptr);
  CHECK(contains(swapped.text(), "cannot connect to rank 1"));
  CHECK(contains(swapped.text(), "rank 2 answers there instead"));
  CHECK(contains(low.transport->connect(1, "nonsense", patience(), nullptr).text(),
                 "rank 1 sent an address"));
  // A caller that never comes.
  Node last(2, 3, key, settings);
  REQUIRE(last.transport->connect(0, low.blob, patience(), nullptr).ok());
  CHECK(contains(last.transport->stop_serving(Deadline::after_ms(10)).text(),
                 "rank 0 did not open its data connection to rank 2"));
}

}  // namespace rocenante
