// SPDX-License-Identifier: Apache-2.0
//
// Deadlines, addresses, sockets, frames and the acceptor. What forks is tagged [fork].
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "lib/net/acceptor.h"
#include "lib/net/deadline.h"
#include "lib/net/fork.h"
#include "lib/net/socket.h"
#include "lib/net/thread.h"
#include "lib/net/wire.h"
#include "tests/support/catch.h"

namespace rocenante::net {
namespace {

SocketAddress loopback(std::uint16_t port = 0) {
  return SocketAddress::ipv4(in_addr{htonl(INADDR_LOOPBACK)}, port);
}

Deadline patience() {
  return Deadline::after_s(60);
}

struct Listening {
  Listening() {
    Result<SocketFd> result = listen_at(loopback());
    REQUIRE(result.status().text() == "");
    fd = result.take();
    address = local_address(fd.get()).take();
  }
  SocketFd fd;
  SocketAddress address;
};

struct Connected {
  Connected() {
    Listening listening;
    Result<SocketFd> one = connect_to(listening.address, patience());
    REQUIRE(one.status().text() == "");
    near = one.take();
    REQUIRE(wait_for(listening.fd.get(), POLLIN, patience(), "listener").ok());
    Result<SocketFd> other = accept_from(listening.fd.get());
    REQUIRE(other.ok());
    far = other.take();
    REQUIRE(far);
  }
  SocketFd near;
  SocketFd far;
};

TEST_CASE("deadlines", "[net]") {
  CHECK(Deadline::never().poll_ms() == -1);
  CHECK_FALSE(Deadline::never().passed());
  CHECK(Deadline::at_ns(1).passed());
  CHECK(Deadline::at_ns(1).poll_ms() == 0);
  CHECK(Deadline::at_ns(1).remaining_ns() == 0);
  CHECK(Deadline::after_s(3600).poll_ms() == 60'000);
  // Rounded up, never 0 before the time.
  const int ms = Deadline::after_ns(1'500'000'000).poll_ms();
  CHECK(ms > 0);
  CHECK(ms <= 1500);
  CHECK(Deadline::after_ns(~std::uint64_t{0}).is_never());
  CHECK(Deadline::never().later_by_ns(5).is_never());
  CHECK(Deadline::at_ns(5).later_by_ns(5).ns() == 10);
  CHECK(Deadline::at_ns(5).sooner(Deadline::at_ns(7)).ns() == 5);
}

TEST_CASE("addresses are read and written", "[net]") {
  for (const char* text : {"127.0.0.1:0", "10.1.2.3:65535", "[::1]:4242", "[2001:db8::1]:1"}) {
    const auto parsed = parse_address(text);
    REQUIRE(parsed.ok());
    CHECK(parsed.value().is_numeric);
    CHECK(parsed.value().address.text() == text);
    WireWriter writer;
    append_address(parsed.value().address, &writer);
    CHECK(writer.bytes().size() == kAddressWireBytes);
    WireReader reader(writer.bytes());
    CHECK(read_address(&reader) == parsed.value().address);
    CHECK(reader.complete());
  }
  const std::string none_of_v6 = parse_address("[::1]:1", AF_INET).status().text();
  CHECK(none_of_v6.find("'[::1]:1'") != std::string::npos);
  CHECK(none_of_v6.find("ROCENANTE_SOCKET_FAMILY allows AF_INET alone") != std::string::npos);
  const std::string none_of_v4 = parse_address("127.0.0.1:1", AF_INET6).status().text();
  CHECK(none_of_v4.find("ROCENANTE_SOCKET_FAMILY allows AF_INET6 alone") != std::string::npos);
  CHECK(parse_address("127.9.9.9:1").value().address.is_loopback());
  CHECK_FALSE(parse_address("128.0.0.1:1").value().address.is_loopback());
  CHECK(parse_address("[::1]:1").value().address.is_loopback());
  CHECK(parse_address("169.254.1.1:1").value().address.is_link_local());
  CHECK(parse_address("[fe80::1]:1").value().address.is_link_local());
  CHECK(parse_address("10.0.0.1:7").value().address.with_any_host().text() == "0.0.0.0:7");
  CHECK(parse_address("[2001:db8::1]:7").value().address.with_any_host().text() == "[::]:7");
  CHECK(SocketAddress().text() == "(no address)");
  CHECK(parse_address("[fe80::1%lo]:1").value().address.text() == "[fe80::1%lo]:1");
}

TEST_CASE("host names are resolved", "[net]") {
  const auto parsed = parse_address("localhost:80", AF_INET);
  REQUIRE(parsed.ok());
  CHECK_FALSE(parsed.value().is_numeric);
  CHECK(parsed.value().address.is_loopback());
  const auto unknown = parse_address("no such host:80");
  CHECK(unknown.status().code() == Code::kSystemError);
  CHECK(unknown.status().text().find("'no such host'") != std::string::npos);
}

TEST_CASE("bytes pass both ways, and deadlines hold", "[net]") {
  Connected pair;
  REQUIRE(send_all(pair.near.get(), "hello", patience(), "far").ok());
  std::array<std::byte, 5> bytes;
  REQUIRE(receive_all(pair.far.get(), bytes, patience(), "near").ok());
  CHECK(std::string_view(reinterpret_cast<const char*>(bytes.data()), 5) == "hello");
  const Status late = receive_all(pair.far.get(), bytes, Deadline::after_ms(20), "near");
  CHECK(late.code() == Code::kTimeout);
  CHECK(late.text() == "no answer from near in time");
  // Nobody reads, so the buffers fill up.
  const std::string much(64 << 20, 'x');
  CHECK(send_all(pair.near.get(), much, Deadline::after_ms(50), "far").code() == Code::kTimeout);
  pair.far.reset();
  CHECK(receive_all(pair.near.get(), bytes, patience(), "far").code() == Code::kRemoteError);
  // Without SIGPIPE.
  CHECK(send_all(pair.near.get(), much, patience(), "far").code() == Code::kRemoteError);
}

TEST_CASE("descriptors are non-blocking and close on exec", "[net]") {
  Listening listening;
  Connected pair;
  for (const int fd : {listening.fd.get(), pair.near.get(), pair.far.get()}) {
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
  }
}

TEST_CASE("a refused connection says so", "[net]") {
  SocketAddress nobody;
  {
    Listening listening;
    nobody = listening.address;
  }
  int error = 0;
  const auto fd = connect_to(nobody, patience(), &error);
  CHECK(fd.status().code() == Code::kSystemError);
  CHECK(error == ECONNREFUSED);
  CHECK(fd.status().text().find(nobody.text()) != std::string::npos);
  CHECK_FALSE(is_network_error(ECONNREFUSED));
  CHECK(is_network_error(ETIMEDOUT));
}

TEST_CASE("wire fields are bounded", "[net]") {
  WireWriter writer;
  writer.integer(std::uint8_t{1}).integer(std::uint64_t{0x0102030405060708}).string("text");
  const std::string bytes = writer.bytes();
  CHECK(bytes[1] == 8);
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    WireReader reader(std::string_view(bytes).substr(0, length));
    reader.integer<std::uint8_t>();
    reader.integer<std::uint64_t>();
    reader.string(4);
    CHECK(reader.complete() == (length == bytes.size()));
  }
  WireReader too_long(std::string_view(bytes).substr(9));
  CHECK(too_long.string(3).empty());
  CHECK_FALSE(too_long.complete());
  WireReader left(bytes);
  left.integer<std::uint8_t>();
  CHECK_FALSE(left.complete());
}

TEST_CASE("frames come whole, in any pieces", "[net]") {
  Connected pair;
  const std::string stream =
      encode_frame(7, "") + encode_frame(8, "body") + encode_frame(9, std::string(100, 'x'));
  FrameReader reader(100);
  std::vector<Frame> frames;
  for (const char byte : stream) {
    REQUIRE(send_all(pair.near.get(), std::string_view(&byte, 1), patience(), "far").ok());
    REQUIRE(wait_for(pair.far.get(), POLLIN, patience(), "near").ok());
    REQUIRE(reader.fill(pair.far.get(), "near").value());
    for (;;) {
      auto frame = reader.next("near");
      REQUIRE(frame.ok());
      if (!frame.value()) break;
      frames.push_back(*frame.take());
    }
  }
  REQUIRE(frames.size() == 3);
  CHECK(frames[0].type == 7);
  CHECK(frames[0].body.empty());
  CHECK(frames[1].body == "body");
  CHECK(frames[2].body == std::string(100, 'x'));
}

TEST_CASE("frames that are too long or nonsense are refused", "[net]") {
  for (const std::string& bytes : {encode_frame(1, std::string(101, 'x')), std::string(8, '\xff'),
                                   std::string("GET / HTTP/1.1\r\n\r\n")}) {
    Connected pair;
    FrameReader reader(100);
    REQUIRE(send_all(pair.near.get(), bytes, patience(), "far").ok());
    const auto frame = receive_frame(pair.far.get(), &reader, patience(), "near");
    CHECK(frame.status().code() == Code::kInternalError);
    CHECK(frame.status().text().starts_with("malformed message from near"));
  }
}

// Runs an acceptor in a thread and collects whom it lets in.
class Doorman {
 public:
  explicit Doorman(const SecretKey& key, AcceptorLimits limits = {})
      : acceptor_(std::move(listening_.fd), key, {"test", 0, "server"}, limits),
        thread_([this] { run(); }) {}
  ~Doorman() {
    is_over_ = true;
    thread_.join();
  }
  const SocketAddress& address() const { return listening_.address; }
  std::uint64_t let_in() const { return let_in_; }
  std::uint64_t rejected() const { return rejected_; }
  std::size_t most_half_open() const { return most_half_open_; }

 private:
  void run() {
    std::vector<Acceptor::Connection> kept;
    while (!is_over_) {
      std::vector<pollfd> polls;
      acceptor_.append_polls(&polls);
      ::poll(polls.data(), polls.size(), acceptor_.next_deadline().sooner(Deadline::after_ms(5)).poll_ms());
      for (auto& one : acceptor_.step(polls)) kept.push_back(std::move(one));
      let_in_ = kept.size();
      rejected_ = acceptor_.rejected();
      most_half_open_ = std::max(most_half_open_.load(), acceptor_.half_open());
    }
  }

  Listening listening_;
  Acceptor acceptor_;
  std::atomic<bool> is_over_{false};
  std::atomic<std::uint64_t> let_in_{0};
  std::atomic<std::uint64_t> rejected_{0};
  std::atomic<std::size_t> most_half_open_{0};
  std::thread thread_;
};

Status come_in(const Doorman& doorman, const SecretKey& key, Deadline deadline = patience()) {
  SocketFd fd;
  RCN_ASSIGN(fd, connect_to(doorman.address(), deadline));
  return handshake_client(fd.get(), key, {"test", 1, "client"}, deadline).status();
}

SocketFd stranger(const Doorman& doorman) {
  Result<SocketFd> fd = connect_to(doorman.address(), patience());
  REQUIRE(fd.ok());
  return fd.take();
}

bool is_cut(const SocketFd& fd) {
  std::array<std::byte, 256> bytes;
  return receive_all(fd.get(), bytes, patience(), "doorman").code() == Code::kRemoteError;
}

TEST_CASE("silent strangers delay nobody", "[net][acceptor]") {
  const SecretKey key = random_key();
  Doorman doorman(key);
  std::vector<SocketFd> silent;
  for (int i = 0; i < 50; ++i) silent.push_back(stranger(doorman));
  // Half a hello.
  for (int i = 0; i < 10; ++i) REQUIRE(send_all(silent[i].get(), "RCNhelo1", patience(), "doorman").ok());
  CHECK(come_in(doorman, key).ok());
  while (doorman.let_in() != 1) std::this_thread::yield();
  CHECK(doorman.rejected() == 0);
}

TEST_CASE("talking strangers are cut off", "[net][acceptor]") {
  const SecretKey key = random_key();
  Doorman doorman(key);
  std::vector<SocketFd> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(stranger(doorman));
    std::array<std::byte, 256> noise;
    random_bytes(noise);
    const std::string_view text(reinterpret_cast<const char*>(noise.data()), noise.size());
    REQUIRE(send_all(strangers.back().get(), text, patience(), "doorman").ok());
  }
  for (const SocketFd& fd : strangers) CHECK(is_cut(fd));
  CHECK(come_in(doorman, random_key()).code() == Code::kInvalidUsage);
  CHECK(come_in(doorman, key).ok());
}

TEST_CASE("a handshake has a time", "[net][acceptor]") {
  Doorman doorman(random_key(), {.handshake_time_ns = 20 * kNanosecondsPerMillisecond});
  const SocketFd fd = stranger(doorman);
  CHECK(is_cut(fd));
}

TEST_CASE("places for strangers are bounded, and the oldest yields", "[net][acceptor]") {
  const SecretKey key = random_key();
  Doorman doorman(key, {.half_open = 4,
                        .handshake_time_ns = 3600 * kNanosecondsPerSecond,
                        .least_time_ns = 10 * kNanosecondsPerMillisecond});
  std::vector<SocketFd> silent;
  for (int i = 0; i < 12; ++i) silent.push_back(stranger(doorman));
  CHECK(come_in(doorman, key).ok());
  CHECK(doorman.most_half_open() <= 4);
  CHECK(is_cut(silent.front()));
}

TEST_CASE("our threads take no signals", "[net]") {
  sigset_t mask;
  char name[16] = {};
  auto thread = start_quiet_thread("rcn-test", [&] {
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    ::pthread_getname_np(::pthread_self(), name, sizeof(name));
  });
  REQUIRE(thread.ok());
  thread.value().join();
  CHECK(::sigismember(&mask, SIGTERM) == 1);
  CHECK(::sigismember(&mask, SIGCHLD) == 1);
  CHECK(std::string(name) == "rcn-test");
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  CHECK(::sigismember(&mask, SIGTERM) == 0);
}

// The exit code of `body` in a forked child.
template <class Body>
int in_child(Body body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("children drop our sockets but not their numbers", "[net][fork]") {
  Fd lower(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Connected pair;
  lower.reset();  // the child finds a free number below the sockets'
  const std::uint64_t generation = fork_generation();
  const int failed = in_child([&] {
    if (fork_generation() != generation + 1) return 1;
    if (send_some(pair.near.get(), "x", "far").ok()) return 2;
    // The numbers are taken: new descriptors, enough to use up all free ones below, have others.
    for (int i = 0; i < 10; ++i) {
      const int fresh = ::open("/dev/null", O_RDONLY);
      if (fresh == pair.near.get() || fresh == pair.far.get()) return 3;
    }
    pair.near.reset();
    const int reused = ::open("/dev/null", O_RDONLY);
    pair.far.reset();
    return ::fcntl(reused, F_GETFD) < 0 ? 4 : 0;
  });
  CHECK(failed == 0);
  CHECK(fork_generation() == generation);
  // And the connection is whole here.
  REQUIRE(send_all(pair.near.get(), "x", patience(), "far").ok());
  std::array<std::byte, 1> byte;
  CHECK(receive_all(pair.far.get(), byte, patience(), "near").ok());
}

TEST_CASE("a child does not keep its parent's connections open", "[net][fork]") {
  Connected pair;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    char byte = 0;
    ::_exit(::read(ready[0], &byte, 1) == 1 ? 0 : 1);
  }
  pair.near.reset();
  std::array<std::byte, 1> byte;
  CHECK(receive_all(pair.far.get(), byte, patience(), "near").code() == Code::kRemoteError);
  REQUIRE(::write(ready[1], "x", 1) == 1);
  int status = 0;
  ::waitpid(pid, &status, 0);
  CHECK(status == 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("forks amid sockets do not deadlock", "[net][fork]") {
  std::atomic<bool> is_over{false};
  std::thread busy([&] {
    while (!is_over) {
      const SocketFd fd = open_socket([] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
    }
  });
  for (int i = 0; i < 50; ++i) {
    CHECK(in_child([] {
            const SocketFd fd =
                open_socket([] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
            return fd ? 0 : 1;
          }) == 0);
  }
  is_over = true;
  busy.join();
}

}  // namespace
}  // namespace rocenante::net
