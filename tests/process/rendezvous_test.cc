// SPDX-License-Identifier: Apache-2.0
//
// The rendezvous: ranks that disagree, come twice, late or never, and strangers.
#include "lib/comm/rendezvous.h"

#include <dirent.h>
#include <poll.h>

#include <atomic>
#include <fstream>

#include "lib/comm/rendezvous_messages.h"
#include "lib/net/handshake.h"
#include "tests/support/catch.h"
#include "tests/support/star.h"

namespace rocenante {
namespace {

using test::as_threads;
using test::bare_join;
using test::Deadline;
using test::free_address;
using test::patience;
using test::Star;
using test::star_config;

UniqueId fresh_id(const Config& config) {
  Result<UniqueId> id = create_unique_id(config);
  REQUIRE(id.status().text() == "");
  return id.take();
}

std::string who(std::uint32_t rank) {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  return fmt::format("rank {} ({}:{})", rank, name, ::getpid());
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Threads of this process that are a rendezvous.
int number_of_roots() {
  DIR* directory = ::opendir("/proc/self/task");
  REQUIRE(directory != nullptr);
  int count = 0;
  while (const dirent* entry = ::readdir(directory)) {
    std::string name;
    std::ifstream(fmt::format("/proc/self/task/{}/comm", entry->d_name)) >> name;
    count += name == "rcn-root";
  }
  ::closedir(directory);
  return count;
}

// Threads come and go in /proc a moment after they were started and joined.
bool becomes_number_of_roots(int expected) {
  const Deadline deadline = patience();
  while (number_of_roots() != expected) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

// The reply of the root to a bare rank.
Status bare_reply(const net::SocketFd& fd) {
  net::FrameReader reader(16 * 1024);
  const Result<net::Frame> frame = net::receive_frame(fd.get(), &reader, patience(), "root");
  if (!frame.ok()) return frame.status();
  if (frame.value().type == static_cast<std::uint16_t>(RootMessage::kWelcome)) return {};
  return decode_status(frame.value().body).value_or(Status(Code::kInternalError, "malformed"));
}

// Each rank's status when they join with a configuration and number of ranks of their own.
struct Part {
  std::uint32_t rank;
  std::uint32_t nranks;
  Config config = star_config();
};
std::vector<Status> join_parts(const UniqueId& id, const std::vector<Part>& parts) {
  std::vector<Status> statuses(parts.size());
  as_threads(static_cast<std::uint32_t>(parts.size()), [&](std::uint32_t i) {
    const Part& part = parts[i];
    statuses[i] = ControlStar::join(id, part.rank, part.nranks, part.config, patience()).status();
  });
  return statuses;
}

TEST_CASE("a rank that comes twice is named to all", "[rendezvous]") {
  const auto statuses = join_parts(fresh_id(star_config()), {{0, 3}, {1, 3}, {1, 3}});
  for (const Status& status : statuses) {
    CHECK(status.code() == Code::kInvalidUsage);
    CHECK(contains(status.text(), "rank 1 came twice: "));
    CHECK(contains(status.text(), fmt::format(":{} and ", ::getpid())));
  }
}

TEST_CASE("different numbers of ranks are named to all", "[rendezvous]") {
  const auto statuses = join_parts(fresh_id(star_config()), {{0, 3}, {1, 3}, {2, 4}});
  for (const Status& status : statuses) {
    CHECK(status.code() == Code::kInvalidUsage);
    CHECK(status.text().starts_with("nranks differs: "));
    CHECK(contains(status.text(), who(2) + " has 4"));
    CHECK(contains(status.text(), " has 3"));
  }
}

TEST_CASE("a different agreed setting is named to all", "[rendezvous]") {
  const auto statuses = join_parts(fresh_id(star_config()),
                                   {{0, 3}, {1, 3, star_config("ROCENANTE_SLOT_BYTES=64K")}, {2, 3}});
  for (const Status& status : statuses) {
    CHECK(status.code() == Code::kInvalidUsage);
    CHECK(status.text().starts_with("ROCENANTE_SLOT_BYTES must be the same on all ranks: "));
    CHECK(contains(status.text(), who(1) + " has 65536"));
    CHECK(contains(status.text(), " has 1048576"));
  }
}

TEST_CASE("local settings may differ", "[rendezvous]") {
  const auto statuses =
      join_parts(fresh_id(star_config()), {{0, 2}, {1, 2, star_config("ROCENANTE_SPIN_US=1")}});
  CHECK(statuses[0].text() == "");
  CHECK(statuses[1].text() == "");
}

// Joins as rank 1 with another version than ours.
net::SocketFd join_as_other_build(const UniqueId& id) {
  const UniqueIdContents contents = decode_unique_id(id).take();
  net::SocketFd fd = net::connect_to(contents.rendezvous, patience()).take();
  REQUIRE(net::handshake_client(fd.get(), contents.secret, {kJoinPurpose, 1, ""}, patience()).ok());
  JoinMessage message;
  message.version = "9.9.9";
  message.rank = 1;
  message.nranks = 2;
  message.host = "new";
  message.pid = 7;
  REQUIRE(
      net::send_all(fd.get(),
                    net::encode_frame(static_cast<std::uint16_t>(RootMessage::kJoin), encode_join(message)),
                    patience(), "root")
          .ok());
  return fd;
}

TEST_CASE("a different build is named, in the same words whoever comes first", "[rendezvous]") {
  const Config config = star_config();
  const UniqueId id = fresh_id(config);
  net::SocketFd fds[2];
  const bool is_other_first = GENERATE(false, true);
  if (is_other_first) fds[1] = join_as_other_build(id);
  fds[0] = bare_join(id, 0, 2, config);
  if (!is_other_first) fds[1] = join_as_other_build(id);
  for (const net::SocketFd& fd : fds) {
    const Status status = bare_reply(fd);
    CHECK(status.code() == Code::kInvalidUsage);
    CHECK(status.text() ==
          fmt::format("ranks run different versions: rank 0 (bare:1) has {}, rank 1 (new:7) has 9.9.9",
                      build_version()));
  }
}

TEST_CASE("ranks that never come are named at the root's timeout", "[rendezvous]") {
  const UniqueId id = fresh_id(star_config("ROCENANTE_INIT_TIMEOUT_S=1"));
  const auto statuses = join_parts(id, {{0, 8}, {1, 8}, {3, 8}, {4, 8}, {6, 8}, {7, 8}});
  for (const Status& status : statuses) {
    CHECK(status.code() == Code::kTimeout);
    CHECK(contains(status.text(), "ranks 2, 5 of 8 did not come within 1.0"));
  }
}

TEST_CASE("the root's word comes before the ranks' own deadline", "[rendezvous]") {
  const UniqueId id = fresh_id(star_config("ROCENANTE_INIT_TIMEOUT_S=0.5"));
  const auto star = ControlStar::join(id, 1, 2, star_config(), Deadline::after_ms(500));
  CHECK(contains(star.status().text(), "rank 0 of 2 did not come within 0."));
}

TEST_CASE("a rank that gives up before the root does is told who was missing", "[rendezvous]") {
  const UniqueId id = fresh_id(star_config("ROCENANTE_INIT_TIMEOUT_S=100"));
  std::vector<Status> statuses(2);
  as_threads(2, [&](std::uint32_t rank) {
    const Deadline deadline = rank == 0 ? patience() : Deadline::after_ms(300);
    statuses[rank] = ControlStar::join(id, rank, 3, star_config(), deadline).status();
  });
  for (const Status& status : statuses) {
    CHECK(status.code() == Code::kTimeout);
    CHECK(contains(status.text(), "rank 2 of 3 did not come within 0."));
  }
}

TEST_CASE("long lists of missing ranks are cut", "[rendezvous]") {
  const UniqueId id = fresh_id(star_config("ROCENANTE_INIT_TIMEOUT_S=0.2"));
  const auto star = ControlStar::join(id, 0, 1000, star_config(), patience());
  CHECK(contains(star.status().text(),
                 "ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 983 more of 1000 did not "
                 "come within 0."));
}

TEST_CASE("a rank that goes away while others wait is named at once", "[rendezvous]") {
  const Config config = star_config();
  const UniqueId id = fresh_id(config);
  net::SocketFd other = bare_join(id, 2, 3, config);
  Status status;
  std::thread waiting([&] { status = ControlStar::join(id, 0, 3, config, patience()).status(); });
  other.reset();
  waiting.join();
  CHECK(status.code() == Code::kRemoteError);
  CHECK(contains(status.text(), "rank 2 (bare:1) went away while the ranks were meeting"));
}

TEST_CASE("a rank that goes away before it has connected is named at once", "[rendezvous]") {
  const std::uint32_t nranks = 3;
  const Config config = star_config();
  const UniqueId id = fresh_id(config);
  std::vector<Status> statuses(nranks);
  as_threads(nranks, [&](std::uint32_t rank) {
    if (rank != 1) {
      statuses[rank] = ControlStar::join(id, rank, nranks, config, patience()).status();
      return;
    }
    const net::SocketFd other = bare_join(id, 1, nranks, config);
    statuses[rank] = bare_reply(other);
  });
  CHECK(statuses[1].ok());
  for (const std::uint32_t rank : {0, 2}) {
    CHECK(statuses[rank].code() == Code::kRemoteError);
    CHECK(contains(statuses[rank].text(), "rank 1 (bare:1) went away"));
  }
}

TEST_CASE("ranks that come after the failure hear of it", "[rendezvous]") {
  const UniqueId id = fresh_id(star_config());
  const auto statuses = join_parts(id, {{0, 3}, {0, 3}});
  CHECK(contains(statuses[0].text(), "rank 0 came twice"));
  const auto late = join_parts(id, {{1, 3}});
  CHECK(late[0].text() == statuses[0].text());
}

TEST_CASE("an id is good for one communicator", "[rendezvous]") {
  const Config config = star_config();
  const UniqueId id = fresh_id(config);
  REQUIRE(test::join_all(id, 2, config).all_ok());
  // The thread ends a moment after the last rank has joined.
  Status again;
  const Deadline deadline = patience();
  do {
    again = ControlStar::join(id, 0, 2, config, Deadline::after_ms(1)).status();
  } while (!contains(again.text(), "has ended") && !deadline.passed());
  CHECK(again.code() == Code::kInvalidUsage);
}

TEST_CASE("ranks may come before the rendezvous at an address", "[rendezvous]") {
  const std::string address = free_address();
  const Config config = star_config();
  std::vector<Status> statuses(3);
  std::atomic<int> trying{0};
  as_threads(3, [&](std::uint32_t rank) {
    if (rank == 0) {
      while (trying != 2) std::this_thread::yield();
    }
    const auto id = unique_id_at(address, rank == 0, config);
    ++trying;
    statuses[rank] =
        id.ok() ? ControlStar::join(id.value(), rank, 3, config, patience()).status() : id.status();
  });
  for (const Status& status : statuses) CHECK(status.text() == "");
}

TEST_CASE("a rendezvous that never starts is reported with the reason", "[rendezvous]") {
  const std::string address = free_address();
  const auto id = unique_id_at(address, false, star_config());
  REQUIRE(id.ok());
  const auto star = ControlStar::join(id.value(), 1, 2, star_config(), Deadline::after_ms(100));
  CHECK(star.status().code() == Code::kTimeout);
  CHECK(contains(star.status().text(), "rank 1 could not reach the rendezvous at " + address));
  CHECK(contains(star.status().text(), "Connection refused"));
}

TEST_CASE("another secret is refused", "[rendezvous]") {
  const std::string address = free_address();
  const Config right = star_config("ROCENANTE_SECRET=right");
  const auto served = unique_id_at(address, true, right);
  REQUIRE(served.ok());
  const auto wrong = unique_id_at(address, false, star_config("ROCENANTE_SECRET=wrong"));
  REQUIRE(wrong.ok());
  const auto star = ControlStar::join(wrong.value(), 1, 2, star_config(), patience());
  CHECK(star.status().code() == Code::kInvalidUsage);
  CHECK(contains(star.status().text(), "could not prove that it holds the same secret"));
  // And it has done no harm.
  CHECK(test::join_all(served.value(), 2, right).all_ok());
}

TEST_CASE("an address can be served again after a failure", "[rendezvous]") {
  const std::string address = free_address();
  const Config config = star_config();
  auto id = unique_id_at(address, true, config);
  REQUIRE(id.ok());
  CHECK(contains(join_parts(id.value(), {{0, 3}, {0, 3}})[0].text(), "came twice"));
  id = unique_id_at(address, true, config);
  REQUIRE(id.status().text() == "");
  CHECK(test::join_all(id.value(), 2, config).all_ok());
}

TEST_CASE("stopping all rendezvous ends their threads and frees their ranks", "[rendezvous]") {
  stop_all_rendezvous();
  REQUIRE(becomes_number_of_roots(0));
  const Config config = star_config();
  const UniqueId id = fresh_id(config);
  const UniqueId idle = fresh_id(config);
  const net::SocketFd waiting = bare_join(id, 0, 2, config);
  CHECK(becomes_number_of_roots(2));
  stop_all_rendezvous();
  CHECK(becomes_number_of_roots(0));
  CHECK(bare_reply(waiting).code() == Code::kRemoteError);
  CHECK(contains(ControlStar::join(idle, 0, 1, config, patience()).status().text(), "has ended"));
}

TEST_CASE("strangers hammering the port do not disturb the ranks", "[rendezvous]") {
  const Config config = star_config();
  const UniqueId id = fresh_id(config);
  const net::SocketAddress address = decode_unique_id(id).value().rendezvous;
  std::atomic<bool> is_over{false};
  std::atomic<int> attacks{0};
  std::vector<std::thread> strangers;
  for (int kind = 0; kind < 4; ++kind) {
    strangers.emplace_back([&, kind] {
      std::vector<net::SocketFd> held;
      while (!is_over) {
        auto fd = net::connect_to(address, Deadline::after_s(1));
        if (!fd.ok()) continue;
        std::array<std::byte, 300> noise;
        net::random_bytes(noise);
        std::string text(reinterpret_cast<const char*>(noise.data()), noise.size());
        if (kind == 1)
          text = "RCNhelo1" + std::string("\1\0\4\xff", 4) + text;  // oversize, else a good start
        if (kind == 2) text = "R";                                  // and then silence
        if (kind == 3) {
          (void)net::handshake_client(fd.value().get(), net::random_key(), {kJoinPurpose, 0, ""},
                                      Deadline::after_s(1));
        } else {
          (void)net::send_all(fd.value().get(), text, Deadline::after_s(1), "root");
        }
        ++attacks;
        if (kind == 2) held.push_back(fd.take());
        if (held.size() > 100) held.erase(held.begin());
      }
    });
  }
  while (attacks < 100) std::this_thread::yield();
  const test::Stars joined = test::join_all(id, 8, config);
  is_over = true;
  for (std::thread& thread : strangers) thread.join();
  for (const Status& status : joined.statuses) CHECK(status.text() == "");
}

TEST_CASE("messages are decoded whole or not at all", "[rendezvous]") {
  JoinMessage message;
  message.version = "1";
  message.agreed_settings = "A=1\nB=2\n";
  message.host = "host";
  message.control = net::parse_address("[2001:db8::1]:9").value().address;
  const std::string join = encode_join(message);
  const std::string welcome = encode_welcome({message.control, {}});
  const std::string status = encode_status(Status(Code::kTimeout, "text"));
  for (std::size_t length = 0; length < join.size(); ++length)
    CHECK_FALSE(decode_join(join.substr(0, length)));
  for (std::size_t length = 0; length < welcome.size(); ++length) {
    CHECK_FALSE(decode_welcome(welcome.substr(0, length)));
  }
  for (std::size_t length = 0; length < status.size(); ++length) {
    CHECK_FALSE(decode_status(status.substr(0, length)));
  }
  CHECK(decode_join(join)->agreed_settings == message.agreed_settings);
  CHECK_FALSE(decode_join(join + "x"));
  CHECK(decode_status(status)->code() == Code::kTimeout);
  // Success is not a failure to be told.
  CHECK(decode_status(encode_status(Status()))->code() == Code::kInternalError);
}

}  // namespace
}  // namespace rocenante
