// SPDX-License-Identifier: Apache-2.0
//
// Peers that hold the key and still talk nonsense: their connection is closed and they are named; nothing
// else happens.
#include <poll.h>

#include "lib/base/log.h"
#include "lib/comm/control.h"
#include "lib/comm/control_messages.h"
#include "lib/comm/rendezvous.h"
#include "lib/net/acceptor.h"
#include "tests/support/catch.h"
#include "tests/support/star.h"

namespace rocenante {
namespace {

using test::Deadline;
using test::patience;
using test::Recorder;
using test::Star;
using test::star_config;

std::string ready() {
  return control_frame(ControlMessage::kReady, {});
}

// Rank 1 of 2 up to the connection to rank 0, and nothing after.
net::SocketFd bare_rank_one(const UniqueId& id, const Config& config) {
  Result<Meeting> meeting =
      Meeting::join(decode_unique_id(id).take(), {1, 2, config.agreed_text(), {}}, patience());
  if (!meeting.ok()) return {};
  Result<net::SocketFd> fd = net::connect_to(meeting.value().control(), patience());
  if (!fd.ok()) return {};
  if (!net::handshake_client(fd.value().get(), meeting.value().key(), {kControlPurpose, 1, ""}, patience())
           .ok()) {
    return {};
  }
  net::FrameReader reader(100);
  if (!net::receive_frame(fd.value().get(), &reader, patience(), "rank 0").ok()) return {};
  meeting.value().report({});
  return fd.take();
}

// Rank 0 of 2 up to the connection of rank 1, which is told `greeting`.
net::SocketFd bare_rank_zero(const UniqueId& id, const Config& config, const std::string& greeting) {
  net::SocketFd listener = net::listen_at(net::parse_address("127.0.0.1:0").value().address).take();
  const net::SocketAddress own = net::local_address(listener.get()).take();
  Result<Meeting> meeting =
      Meeting::join(decode_unique_id(id).take(), {0, 2, config.agreed_text(), own}, patience());
  if (!meeting.ok() || !net::wait_for(listener.get(), POLLIN, patience(), "rank 1").ok()) return {};
  net::SocketFd fd = net::accept_from(listener.get()).take();
  if (!net::handshake_server(fd.get(), meeting.value().key(), {kControlPurpose, 0, ""}, patience()).ok()) {
    return {};
  }
  if (!net::send_all(fd.get(), greeting, patience(), "rank 1").ok()) return {};
  meeting.value().report({});
  return fd;
}

struct BarePeer {
  Star star;  // of the well-behaved rank
  net::SocketFd fd;
  Status status;
};
BarePeer with_bare_peer(std::uint32_t good_rank, const std::string& greeting = ready()) {
  const Config config = star_config();
  const UniqueId id = create_unique_id(config).take();
  BarePeer result;
  std::thread good([&] {
    Result<Star> star = ControlStar::join(id, good_rank, 2, config, patience());
    result.status = star.status();
    if (star.ok()) result.star = star.take();
  });
  result.fd = good_rank == 0 ? bare_rank_one(id, config) : bare_rank_zero(id, config, greeting);
  good.join();
  return result;
}

void expect_gone(std::uint32_t good_rank, const std::string& bytes) {
  BarePeer peer = with_bare_peer(good_rank);
  REQUIRE(peer.status.text() == "");
  REQUIRE(peer.fd);
  Recorder recorder;
  REQUIRE(peer.star->start_events(&recorder).ok());
  REQUIRE(net::send_all(peer.fd.get(), bytes, patience(), "peer").ok());
  REQUIRE(recorder.wait_gone(1 - good_rank));
  const std::string how = recorder.gone()[1 - good_rank];
  CHECK(how.starts_with("malformed message"));
  CHECK(how.find(fmt::format("rank {} (", 1 - good_rank)) != std::string::npos);
  peer.star->stop_events();
  CHECK(recorder.aborts() == 0);
  CHECK(recorder.left().empty());
}

TEST_CASE("rank 0 closes on nonsense and names the rank", "[control][malformed]") {
  const LogLevel level = log_level();
  set_log_level(LogLevel::kNone);
  const std::vector<std::string> nonsense = {
      "GET / HTTP/1.1\r\n\r\n",
      std::string(100, '\xff'),
      net::encode_frame(77, "unknown type"),
      net::encode_frame(0, ""),
      control_frame(ControlMessage::kHeartbeat, std::string(kLongestNotice + 1, 'x')),
      control_frame(ControlMessage::kHeartbeat, "not empty"),
      control_frame(ControlMessage::kAbort, encode_abort({0, 1, "in another's name"})),
      control_frame(ControlMessage::kAbort, encode_abort({7, 1, "of no rank"})),
      control_frame(ControlMessage::kAbort, encode_abort({1, 1, "cut"}).substr(0, 14)),
      control_frame(ControlMessage::kLeft, encode_left(0)),
      control_frame(ControlMessage::kLeft, encode_left(7)),
      control_frame(ControlMessage::kLeft, ""),
      control_frame(ControlMessage::kGone, encode_gone({0, "says a rank"})),
      control_frame(ControlMessage::kBlob, encode_blob({0, 1, "too late"})),
      control_frame(ControlMessage::kReady, ""),
      control_frame(ControlMessage::kFailure, ""),
  };
  for (const std::string& bytes : nonsense) expect_gone(0, bytes);
  set_log_level(level);
}

TEST_CASE("rank 0 passes on one abort only", "[control][malformed]") {
  BarePeer peer = with_bare_peer(0);
  REQUIRE(peer.fd);
  Recorder recorder;
  REQUIRE(peer.star->start_events(&recorder).ok());
  const std::string bytes = control_frame(ControlMessage::kAbort, encode_abort({1, 1, "first"})) +
                            control_frame(ControlMessage::kAbort, encode_abort({1, 2, "second"})) +
                            control_frame(ControlMessage::kLeft, encode_left(1));
  REQUIRE(net::send_all(peer.fd.get(), bytes, patience(), "rank 0").ok());
  REQUIRE(recorder.wait_left(1));
  peer.star->stop_events();
  CHECK(recorder.aborts() == 1);
  CHECK(recorder.abort().text == "first");
}

TEST_CASE("a rank closes on nonsense of rank 0", "[control][malformed]") {
  const LogLevel level = log_level();
  set_log_level(LogLevel::kNone);
  const std::vector<std::string> nonsense = {
      std::string(100, '\0') + "x",
      net::encode_frame(77, "unknown type"),
      control_frame(ControlMessage::kHeartbeat, ""),
      control_frame(ControlMessage::kHeartbeat, "three"),
      control_frame(ControlMessage::kAbort, encode_abort({2, 1, "of no rank"})),
      control_frame(ControlMessage::kLeft, encode_left(1)),
      control_frame(ControlMessage::kLeft, encode_left(2)),
      control_frame(ControlMessage::kGone, encode_gone({0, "oneself"})),
      control_frame(ControlMessage::kGone, encode_gone({2, "of no rank"})),
      control_frame(ControlMessage::kGathered, encode_blob({0, 1, "too late"})),
  };
  for (const std::string& bytes : nonsense) expect_gone(1, bytes);
  set_log_level(level);
}

TEST_CASE("rank 0 refuses nonsense instead of a blob", "[control][malformed]") {
  const std::vector<std::string> nonsense = {
      std::string(100, '\xff'),
      net::encode_frame(77, ""),
      control_frame(ControlMessage::kBlob, encode_blob({1, 1, "another round"})),
      control_frame(ControlMessage::kBlob, encode_blob({0, 0, "another rank"})),
      control_frame(ControlMessage::kBlob, "cut"),
      control_frame(ControlMessage::kBlob, encode_blob({0, 1, std::string(kLongestBlob + 1, 'x')})),
      control_frame(ControlMessage::kAbort, "cut"),
  };
  for (const std::string& bytes : nonsense) {
    BarePeer peer = with_bare_peer(0);
    REQUIRE(peer.star);
    std::thread speaker([&] { (void)net::send_all(peer.fd.get(), bytes, patience(), "rank 0"); });
    const Status status = peer.star->all_gather("mine", patience()).status();
    peer.star.reset();
    speaker.join();
    CHECK(status.code() == Code::kInternalError);
    CHECK(status.text().find("rank 1 (") != std::string::npos);
    CHECK(status.text().find("malformed") != std::string::npos);
  }
}

TEST_CASE("a peer that gives up during an exchange may beat before it closes", "[control][malformed]") {
  BarePeer center = with_bare_peer(1, ready() + control_frame(ControlMessage::kHeartbeat, "") +
                                          control_frame(ControlMessage::kLeft, encode_left(0)));
  REQUIRE(center.star);
  const Status left = center.star->all_gather("mine", patience()).status();
  CHECK(left.code() == Code::kRemoteError);
  CHECK(left.text().find("left during initialisation") != std::string::npos);

  BarePeer peer = with_bare_peer(0);
  REQUIRE(peer.star);
  std::thread speaker([&] {
    const std::string bytes = control_frame(ControlMessage::kHeartbeat, "") +
                              control_frame(ControlMessage::kBlob, encode_blob({0, 1, "theirs"}));
    (void)net::send_all(peer.fd.get(), bytes, patience(), "rank 0");
  });
  const Result<std::vector<std::string>> blobs = peer.star->all_gather("mine", patience());
  speaker.join();
  REQUIRE(blobs.ok());
  CHECK(blobs.value().back() == "theirs");
}

TEST_CASE("a rank refuses nonsense instead of the others' blobs", "[control][malformed]") {
  const std::vector<std::string> nonsense = {
      std::string(100, '\xff'),
      control_frame(ControlMessage::kReady, ""),
      control_frame(ControlMessage::kGathered, encode_blob({1, 0, "another round"})),
      control_frame(ControlMessage::kGathered, encode_blob({0, 1, "out of order"})),
      control_frame(ControlMessage::kGathered, ""),
      control_frame(ControlMessage::kFailure, "cut"),
  };
  for (const std::string& bytes : nonsense) {
    BarePeer peer = with_bare_peer(1, ready() + bytes);
    REQUIRE(peer.star);
    const Status status = peer.star->all_gather("mine", patience()).status();
    CHECK(status.code() == Code::kInternalError);
    CHECK(status.text().find("rank 0 (") != std::string::npos);
  }
}

TEST_CASE("a rank refuses a rank 0 that does not say it is ready", "[control][malformed]") {
  const std::string greeting = GENERATE(std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8),
                                        control_frame(ControlMessage::kHeartbeat, ""));
  const BarePeer peer = with_bare_peer(1, greeting);
  CHECK(peer.status.code() == Code::kInternalError);
  CHECK(peer.status.text().find("malformed message") != std::string::npos);
}

TEST_CASE("control messages are decoded whole or not at all", "[control][malformed]") {
  const std::string abort = encode_abort({3, 0x0102030405060708, "text"});
  const std::string gone = encode_gone({3, "text"});
  const std::string left = encode_left(3);
  for (std::size_t length = 0; length < abort.size(); ++length)
    CHECK_FALSE(decode_abort(abort.substr(0, length)));
  for (std::size_t length = 0; length < gone.size(); ++length)
    CHECK_FALSE(decode_gone(gone.substr(0, length)));
  for (std::size_t length = 0; length < left.size(); ++length)
    CHECK_FALSE(decode_left(left.substr(0, length)));
  CHECK(decode_abort(abort)->word == 0x0102030405060708);
  CHECK_FALSE(decode_abort(abort + "x"));
  CHECK(decode_gone(gone)->how == "text");
  CHECK(decode_left(left) == 3u);
  for (const std::uint32_t nranks : {1u, 7u, 8u, 9u, 1024u}) {
    std::vector<bool> heard(nranks);
    for (std::uint32_t rank = 0; rank < nranks; rank += 3) heard[rank] = true;
    const std::string body = encode_heard(heard);
    CHECK(decode_heard(body, nranks) == heard);
    CHECK_FALSE(decode_heard(body + "x", nranks));
  }
}

}  // namespace
}  // namespace rocenante
