// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/data_server.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <vector>

#include "lib/base/log.h"
#include "lib/net/thread.h"

namespace rocenante::tcp {
namespace {

constexpr std::string_view kPurpose = "tcp";
// Tells a client that its handshake was taken to the end; without it, one that was cut by a crowd of
// strangers at the last moment would not know.
constexpr std::string_view kTakenIn = "in";
constexpr std::uint64_t kAttemptTimeNs = 10 * net::kNanosecondsPerSecond;

void set_data_options(int fd) {
  // No user timeout: unread data of a peer that is late is no evidence of anything.
  net::set_stream_options(fd, 0);
}

struct Attempt {
  net::SocketFd fd;  // taken in, or
  Status reason;     // why not
  bool may_pass = false;
};

Attempt try_peer(const net::SocketAddress& address, const net::SecretKey& key, std::uint32_t rank,
                 std::uint32_t peer, net::Deadline deadline) {
  Result<net::SocketFd> fd = net::connect_to(address, deadline);
  if (!fd.ok()) return {{}, fd.status(), fd.status().code() == Code::kTimeout};
  set_data_options(fd.value().get());
  const Result<net::SocketAddress> own = net::local_address(fd.value().get());
  const Result<net::PeerIdentity> server = net::handshake_client(
      fd.value().get(), key, net::Identity{kPurpose, rank, own.ok() ? own.value().text() : ""}, deadline);
  if (!server.ok()) return {{}, server.status(), server.status().code() != Code::kInvalidUsage};
  if (server.value().rank != peer) {
    return {
        {}, make_error(Code::kRemoteError, "rank {} answers there instead", server.value().rank), false};
  }
  std::array<std::byte, kTakenIn.size()> word{};
  Status taken = net::receive_all(fd.value().get(), word, deadline, address.text());
  if (!taken.ok()) return {{}, std::move(taken), true};
  return {fd.take(), {}, false};
}

}  // namespace

DataServer::DataServer(net::Acceptor acceptor, net::SocketFd wake, const net::SocketAddress& address,
                       std::uint32_t rank)
    : acceptor_(std::move(acceptor)), wake_(std::move(wake)), address_(address), rank_(rank) {}

Result<std::unique_ptr<DataServer>> DataServer::start(const net::SocketAddress& address,
                                                      const net::SecretKey& key, std::uint32_t rank,
                                                      std::uint32_t ranks) {
  net::make_room_for_descriptors(ranks);
  RCN_ASSIGN(net::SocketFd listener, net::listen_at(address));
  RCN_ASSIGN(const net::SocketAddress bound, net::local_address(listener.get()));
  net::SocketFd wake = net::open_socket([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!wake) return errno_error("eventfd");
  net::AcceptorLimits limits;
  limits.half_open = std::max<std::size_t>(limits.half_open, std::size_t{4} * ranks);
  net::Acceptor acceptor(std::move(listener), key, net::Identity{kPurpose, rank, bound.text()}, limits);
  std::unique_ptr<DataServer> server(new DataServer(std::move(acceptor), std::move(wake), bound, rank));
  RCN_ASSIGN(server->thread_, net::start_quiet_thread("rcn-tcp", [raw = server.get()] { raw->serve(); }));
  return server;
}

DataServer::~DataServer() {
  if (!thread_.joinable()) return;
  (void)::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void DataServer::serve() {
  std::vector<pollfd> polls;
  for (;;) {
    polls.assign(1, {wake_.get(), POLLIN, 0});
    acceptor_.append_polls(&polls);
    if (::poll(polls.data(), polls.size(), acceptor_.next_deadline().poll_ms()) < 0) continue;
    if (polls[0].revents != 0) return;
    for (net::Acceptor::Connection& one : acceptor_.step(std::span(polls).subspan(1))) {
      admit(std::move(one));
    }
  }
}

void DataServer::admit(net::Acceptor::Connection connection) {
  const std::uint32_t peer = connection.peer.rank;
  if (peer >= rank_) {
    log_warn(static_cast<int>(rank_), "tcp: rank {} opened a data connection ({}), expected one below {}",
             peer, connection.text, rank_);
    return;
  }
  set_data_options(connection.fd.get());
  const int fd = connection.fd.get();
  {
    // A rank whose first attempt was cut comes again; the later connection is the one it uses.
    const std::lock_guard lock(mutex_);
    connections_[peer] = std::move(connection.fd);
    // The socket's buffer is empty and takes these bytes whole; if it does not, the peer comes again.
    (void)net::send_some(fd, kTakenIn, connection.text);
  }
  admitted_.notify_all();
}

Result<net::SocketFd> DataServer::take(std::uint32_t peer, net::Deadline deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (const auto at = connections_.find(peer); at != connections_.end()) {
      net::SocketFd fd = std::move(at->second);
      connections_.erase(at);
      return fd;
    }
    if (deadline.passed()) {
      return make_error(Code::kTimeout, "tcp: rank {} did not open its data connection to rank {} in time",
                        peer, rank_);
    }
    admitted_.wait_for(lock, std::chrono::milliseconds(std::max(1, std::min(deadline.poll_ms(), 1000))));
  }
}

Result<net::SocketFd> open_data_connection(const net::SocketAddress& address, const net::SecretKey& key,
                                           std::uint32_t rank, std::uint32_t peer, net::Deadline deadline) {
  for (;;) {
    Attempt attempt =
        try_peer(address, key, rank, peer, deadline.sooner(net::Deadline::after_ns(kAttemptTimeNs)));
    if (attempt.fd) return std::move(attempt.fd);
    if (!attempt.may_pass || deadline.passed()) {
      return make_error(attempt.reason.code(), "tcp: rank {} cannot connect to rank {} at {}: {}", rank,
                        peer, address.text(), attempt.reason.text());
    }
    // Cut or not answered: strangers may crowd the port, and their time runs out.
    net::sleep_ns(10 * net::kNanosecondsPerMillisecond);
  }
}

}  // namespace rocenante::tcp
