// SPDX-License-Identifier: Apache-2.0
//
// The handshake against every kind of interference with its bytes.
#include "lib/net/handshake.h"

#include <sys/socket.h>

#include <functional>
#include <thread>

#include "lib/base/handle.h"
#include "lib/net/acceptor.h"
#include "lib/net/socket.h"
#include "tests/support/catch.h"

namespace rocenante::net {
namespace {

using Role = Handshake::Role;
using Progress = Handshake::Progress;

struct SocketPair {
  SocketPair() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    near = Fd(fds[0]);
    far = Fd(fds[1]);
  }
  Fd near;
  Fd far;
};

// One side, with the wire in the test's hands.
class Side {
 public:
  Side(Role role, const SecretKey& key, const Identity& self) : handshake_(make(role, key, self)) {}

  // Gives it `bytes`; returns what it then sends.
  std::string exchange(std::string_view bytes) {
    REQUIRE(send_all(pair_.far.get(), bytes, Deadline::after_s(10), "side").ok());
    const auto progress = handshake_.advance(pair_.near.get(), "peer");
    if (!progress.ok()) status_ = progress.status();
    is_done_ = progress.ok() && progress.value() == Progress::kDone;
    std::string sent;
    std::array<std::byte, 4096> chunk;
    for (;;) {
      const auto received = receive_some(pair_.far.get(), chunk, "side");
      if (!received.ok() || received.value() == 0) return sent;
      sent.append(reinterpret_cast<const char*>(chunk.data()), received.value());
    }
  }
  // The other end closes.
  void close() {
    pair_.far.reset();
    const auto progress = handshake_.advance(pair_.near.get(), "peer");
    if (!progress.ok()) status_ = progress.status();
  }
  // What it has not read of what it was given.
  std::size_t unread() {
    std::array<std::byte, 4096> chunk;
    const auto received = receive_some(pair_.near.get(), chunk, "side");
    return received.ok() ? received.value() : 0;
  }
  bool is_done() const { return is_done_; }
  const Status& status() const { return status_; }
  const PeerIdentity& peer() const { return handshake_.peer(); }

 private:
  static Handshake make(Role role, const SecretKey& key, const Identity& self) {
    Result<Handshake> handshake = Handshake::make(role, key, self);
    REQUIRE(handshake.ok());
    return handshake.take();
  }

  SocketPair pair_;
  Handshake handshake_;
  Status status_;
  bool is_done_ = false;
};

struct Both {
  explicit Both(const SecretKey& client_key, const SecretKey& server_key)
      : client(Role::kClient, client_key, {"test", 3, "10.0.0.3:3"}),
        server(Role::kServer, server_key, {"test", 0, "10.0.0.1:1"}) {}
  explicit Both(const SecretKey& key) : Both(key, key) {}

  // Runs both, every message passing through `change(number of the message, bytes)`.
  void run(const std::function<void(int, std::string*)>& change = {}) {
    const auto pass = [&](int number, std::string bytes) {
      if (change) change(number, &bytes);
      return bytes;
    };
    const std::string hello = pass(0, client.exchange(""));
    const std::string answer = pass(1, server.exchange(hello));
    const std::string proof = pass(2, client.exchange(answer));
    server.exchange(proof);
  }

  Side client;
  Side server;
};

TEST_CASE("both sides learn who the other is", "[handshake]") {
  Both both(random_key());
  both.run();
  REQUIRE(both.client.is_done());
  REQUIRE(both.server.is_done());
  CHECK(both.server.peer().purpose == "test");
  CHECK(both.server.peer().rank == 3);
  CHECK(both.server.peer().address == "10.0.0.3:3");
  CHECK(both.client.peer().rank == 0);
  CHECK(both.client.peer().address == "10.0.0.1:1");
}

TEST_CASE("neither the key nor its halves are on the wire", "[handshake]") {
  const SecretKey key = random_key();
  const std::string secret(reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size());
  std::string wire;
  Both both(key);
  both.run([&](int, std::string* bytes) { wire += *bytes; });
  REQUIRE(both.server.is_done());
  CHECK(wire.find(secret.substr(0, 8)) == std::string::npos);
  CHECK(wire.find(secret.substr(24)) == std::string::npos);
}

TEST_CASE("another key is refused by the client first", "[handshake]") {
  Both both(random_key(), random_key());
  std::string proof;
  both.run([&](int number, std::string* bytes) {
    if (number == 2) proof = *bytes;
  });
  CHECK_FALSE(both.client.is_done());
  CHECK_FALSE(both.server.is_done());
  CHECK(both.client.status().code() == Code::kInvalidUsage);
  CHECK(both.client.status().text().find("same secret") != std::string::npos);
  CHECK(proof.empty());
}

TEST_CASE("another purpose is refused by name", "[handshake]") {
  const SecretKey key = random_key();
  Side client(Role::kClient, key, {"data", 1, ""});
  Side server(Role::kServer, key, {"control", 0, ""});
  const std::string answer = server.exchange(client.exchange(""));
  CHECK(server.status().code() == Code::kInvalidUsage);
  client.exchange(answer);
  CHECK(client.status().code() == Code::kInvalidUsage);
  CHECK(client.status().text().find("does not serve this purpose") != std::string::npos);
}

TEST_CASE("another version is refused with both versions", "[handshake]") {
  Both both(random_key());
  std::string hello = both.client.exchange("");
  hello[8] = 9;
  const std::string answer = both.server.exchange(hello);
  CHECK(both.server.status().text().find("version 9, this process 1") != std::string::npos);
  both.client.exchange(answer);
  CHECK(both.client.status().text().find("handshake version 1") != std::string::npos);
}

TEST_CASE("every flipped bit of every message is noticed", "[handshake]") {
  const SecretKey key = random_key();
  std::array<std::size_t, 3> sizes{};
  Both(key).run(
      [&](int number, std::string* bytes) { sizes[static_cast<std::size_t>(number)] = bytes->size(); });
  REQUIRE(sizes[2] == kMacBytes);
  for (int message = 0; message < 3; ++message) {
    for (std::size_t bit = 0; bit < 8 * sizes[static_cast<std::size_t>(message)]; ++bit) {
      Both both(key);
      both.run([&](int number, std::string* bytes) {
        if (number == message) (*bytes)[bit / 8] = static_cast<char>((*bytes)[bit / 8] ^ (1 << (bit % 8)));
      });
      INFO("message " << message << ", bit " << bit);
      // The last message is the client's last word, so only the server can object to it.
      REQUIRE_FALSE(both.server.is_done());
      if (message < 2) REQUIRE_FALSE(both.client.is_done());
    }
  }
}

TEST_CASE("every truncation is noticed, and nothing is read beyond the end", "[handshake]") {
  const SecretKey key = random_key();
  std::array<std::size_t, 3> sizes{};
  Both(key).run(
      [&](int number, std::string* bytes) { sizes[static_cast<std::size_t>(number)] = bytes->size(); });
  for (int message = 0; message < 3; ++message) {
    for (std::size_t length = 0; length < sizes[static_cast<std::size_t>(message)]; ++length) {
      Both both(key);
      both.run([&](int number, std::string* bytes) {
        if (number == message) bytes->resize(length);
        if (number > message) bytes->clear();
      });
      Side& reader = message == 1 ? both.client : both.server;
      INFO("message " << message << ", length " << length);
      REQUIRE_FALSE(reader.is_done());
      REQUIRE(reader.status().ok());
      reader.close();
      REQUIRE(reader.status().code() == Code::kRemoteError);
    }
  }
  Both both(key);
  both.run([&](int number, std::string* bytes) {
    if (number != 0) *bytes += "what follows";
  });
  CHECK(both.client.is_done());
  CHECK(both.server.is_done());
  CHECK(both.client.unread() == 12);
  CHECK(both.server.unread() == 12);
}

TEST_CASE("one byte at a time is as good as all at once", "[handshake]") {
  const SecretKey key = random_key();
  Side client(Role::kClient, key, {"test", 3, "a"});
  Side server(Role::kServer, key, {"test", 0, "b"});
  const auto trickle = [](Side* side, const std::string& bytes) {
    std::string sent;
    for (const char byte : bytes) sent += side->exchange(std::string(1, byte));
    return sent;
  };
  trickle(&server, trickle(&client, trickle(&server, client.exchange(""))));
  CHECK(client.is_done());
  CHECK(server.is_done());
}

TEST_CASE("a recorded client is not let in again", "[handshake]") {
  const SecretKey key = random_key();
  std::array<std::string, 3> recorded;
  Both(key).run(
      [&](int number, std::string* bytes) { recorded[static_cast<std::size_t>(number)] = *bytes; });
  Side server(Role::kServer, key, {"test", 0, "10.0.0.1:1"});
  server.exchange(recorded[0] + recorded[2]);
  CHECK_FALSE(server.is_done());
  CHECK(server.status().code() == Code::kInvalidUsage);
  Side client(Role::kClient, key, {"test", 3, "10.0.0.3:3"});
  client.exchange(recorded[1]);
  CHECK_FALSE(client.is_done());
  CHECK(client.status().code() == Code::kInvalidUsage);
}

TEST_CASE("a reflected message is not accepted", "[handshake]") {
  const SecretKey key = random_key();
  Side client(Role::kClient, key, {"test", 3, ""});
  client.exchange(client.exchange(""));
  CHECK_FALSE(client.is_done());
  CHECK(client.status().code() == Code::kInvalidUsage);

  // A stranger who opens as a client and returns the server's own proof.
  Side server(Role::kServer, key, {"test", 0, ""});
  Side honest(Role::kClient, key, {"test", 3, ""});
  const std::string answer = server.exchange(honest.exchange(""));
  server.exchange(answer.substr(answer.size() - kMacBytes));
  CHECK_FALSE(server.is_done());
  CHECK(server.status().code() == Code::kInvalidUsage);

  // Two servers wired together: neither can be talked into playing the client.
  Side other(Role::kServer, key, {"test", 0, ""});
  other.exchange(answer);
  CHECK_FALSE(other.is_done());
  CHECK(other.status().code() == Code::kInvalidUsage);
}

TEST_CASE("lengths are bounded", "[handshake]") {
  const SecretKey key = random_key();
  CHECK_FALSE(Handshake::make(Role::kClient, key, {"test", 0, std::string(kLongestAddress + 1, 'a')}).ok());
  const std::string purpose(kLongestPurpose + 1, 'p');
  CHECK_FALSE(Handshake::make(Role::kClient, key, {purpose, 0, ""}).ok());
  for (const std::size_t place : {10, 11}) {
    Side server(Role::kServer, key, {"test", 0, ""});
    Side client(Role::kClient, key, {"test", 3, ""});
    std::string hello = client.exchange("");
    hello[place] = static_cast<char>(0xff);
    // At once, not when all that was announced has come.
    server.exchange(hello);
    CHECK(server.status().code() == Code::kInvalidUsage);
  }
}

TEST_CASE("the waiting forms agree, and end in time when nobody answers", "[handshake]") {
  const SecretKey key = random_key();
  {
    SocketPair pair;
    Result<PeerIdentity> client = Status(Code::kInternalError, "not run");
    std::thread thread([&] {
      client = handshake_client(pair.near.get(), key, {"test", 3, "a"}, Deadline::after_s(30));
    });
    const auto server = handshake_server(pair.far.get(), key, {"test", 0, "b"}, Deadline::after_s(30));
    thread.join();
    REQUIRE(client.ok());
    REQUIRE(server.ok());
    CHECK(client.value().address == "b");
    CHECK(server.value().rank == 3);
  }
  SocketPair silent;
  const auto client = handshake_client(silent.near.get(), key, {"test", 3, ""}, Deadline::after_ms(20));
  CHECK(client.status().code() == Code::kTimeout);
  const auto server = handshake_server(silent.near.get(), key, {"test", 3, ""}, Deadline::after_ms(20));
  CHECK(server.status().code() == Code::kTimeout);
}

}  // namespace
}  // namespace rocenante::net
