// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/tcp.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "lib/base/log.h"
#include "lib/net/interfaces.h"
#include "lib/net/socket.h"
#include "lib/net/wire.h"
#include "transports/tcp/connection.h"
#include "transports/tcp/data_server.h"

namespace rocenante {
namespace {

using tcp::Connection;

// With more peers than this, one look asks the kernel once for all of them. So few are watched only during
// a sleep: what arrives at a watched socket costs the sender 0.2 us more.
constexpr std::size_t kAskedOneByOne = 4;
constexpr int kEventsAtOnce = 64;

class TcpTransport final : public Transport {
 public:
  const char* name() const override { return "tcp"; }
  TransportCaps caps() const override {
    return {.needs_goodbye = true, .carries_tag = true, .reads_anywhere = true};
  }

  Result<std::string> open(const TransportContext& context) override;
  Status connect(std::uint32_t peer, std::string_view blob, net::Deadline deadline,
                 protocol::PeerLink* link) override;
  Status stop_serving(net::Deadline deadline) override;
  Fd process_handle(std::uint32_t) override { return Fd(); }

  Status post(std::span<const Put> puts) override;
  Status progress() override;
  bool drained() const override;

  int wait_descriptor() override;
  Status connection(std::uint32_t peer) const override;
  void finish_sending() override;

 private:
  Status add(std::uint32_t peer, net::SocketFd fd);
  Status receive(Connection& one);
  Status receive_ready(std::size_t at_most);
  Status watch(Connection& one, std::uint32_t events);

  TransportContext context_;
  std::unique_ptr<tcp::DataServer> server_;
  std::vector<std::uint32_t> callers_;                    // peers that connect to us
  std::vector<std::unique_ptr<Connection>> connections_;  // by rank
  std::vector<Connection*> peers_;                        // those there are
  net::SocketFd epoll_;
  bool watches_always_ = false;
  std::uint64_t own_epoch_ = 0;  // newest that was posted
  bool has_slept_ = false;       // since the last progress
};

Result<std::string> TcpTransport::open(const TransportContext& context) {
  context_ = context;
  connections_.resize(context.ranks);
  epoll_ = net::open_socket([] { return ::epoll_create1(EPOLL_CLOEXEC); });
  if (!epoll_) return errno_error("epoll_create1");
  RCN_ASSIGN(const net::Interface interface, net::configured_interface(*context.config));
  RCN_ASSIGN(server_, tcp::DataServer::start(interface.address, *context.key, context.rank, context.ranks));
  log_info(context.rank, "tcp: data connections use {} ({})", interface.name, server_->address().text());
  net::WireWriter blob;
  net::append_address(server_->address(), &blob);
  return blob.take();
}

// Of each pair the lower rank connects. Nobody waits for a caller here, so no two can wait for each other.
Status TcpTransport::connect(std::uint32_t peer, std::string_view blob, net::Deadline deadline,
                             protocol::PeerLink*) {
  net::WireReader reader(blob);
  const net::SocketAddress address = net::read_address(&reader);
  if (!reader.complete() || address.family() == AF_UNSPEC) {
    return make_error(Code::kRemoteError, "tcp: rank {} sent an address that cannot be read", peer);
  }
  if (peer < context_.rank) {
    callers_.push_back(peer);
    return {};
  }
  RCN_ASSIGN(net::SocketFd fd, tcp::open_data_connection(net::as_seen_from_here(address, *context_.config),
                                                         *context_.key, context_.rank, peer, deadline));
  return add(peer, std::move(fd));
}

Status TcpTransport::stop_serving(net::Deadline deadline) {
  for (const std::uint32_t peer : callers_) {
    RCN_ASSIGN(net::SocketFd fd, server_->take(peer, deadline));
    RCN_TRY(add(peer, std::move(fd)));
  }
  server_.reset();
  watches_always_ = peers_.size() > kAskedOneByOne;
  if (!watches_always_) return {};
  for (Connection* const one : peers_) RCN_TRY(watch(*one, EPOLLIN));
  return {};
}

Status TcpTransport::add(std::uint32_t peer, net::SocketFd fd) {
  const protocol::Geometry& geometry = context_.geometry;
  unsigned char* const inbox = context_.inbox->address();
  tcp::Inlet inlet;
  inlet.slot_bytes = geometry.slot_bytes;
  for (std::uint64_t parity = 0; parity < protocol::kParities; ++parity) {
    inlet.slot[parity] = inbox + geometry.recv_offset(parity, context_.recv_index[peer]);
    inlet.line[parity] =
        reinterpret_cast<protocol::SignalLine*>(inbox + geometry.signal_offset(parity, peer, 0));
  }
  connections_[peer] =
      std::make_unique<Connection>(std::move(fd), peer, inlet, context_.config->integer(Key::kTcpWindow));
  peers_.push_back(connections_[peer].get());
  return {};
}

Status TcpTransport::post(std::span<const Put> puts) {
  for (const Put& put : puts) {
    own_epoch_ = put.epoch;
    Connection& one = *connections_[put.peer];
    RCN_TRY(one.queue(put));
    one.flush();
  }
  return {};
}

Status TcpTransport::progress() {
  std::size_t missing = 0;
  for (Connection* const one : peers_) {
    if (one->has_output()) one->flush();
    missing += one->completed() < own_epoch_ && !one->has_ended();
  }
  // After a sleep also those that are ahead of us, or what has woken us would do so again.
  const bool has_slept = std::exchange(has_slept_, false);
  if (watches_always_) {
    if (has_slept) return receive_ready(peers_.size());
    if (missing > kAskedOneByOne) return receive_ready(kEventsAtOnce);
  }
  for (Connection* const one : peers_) {
    if (has_slept) RCN_TRY(watch(*one, 0));
    if ((has_slept || one->completed() < own_epoch_) && !one->has_ended()) RCN_TRY(receive(*one));
  }
  return {};
}

Status TcpTransport::receive(Connection& one) {
  Status status = one.receive(own_epoch_);
  // What has come opens the window. The caller may sleep next, and the peer's next bytes wait for ours.
  if (one.has_output()) one.flush();
  // The end of a connection stays readable for ever.
  if (one.has_ended() && status.ok()) status = watch(one, 0);
  return status;
}

// Looks at up to `at_most` connections that have something.
Status TcpTransport::receive_ready(std::size_t at_most) {
  std::array<epoll_event, kEventsAtOnce> events;
  std::size_t seen = 0;
  while (seen < at_most) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsAtOnce, 0);
    for (int i = 0; i < count; ++i) {
      RCN_TRY(receive(*static_cast<Connection*>(events[static_cast<std::size_t>(i)].data.ptr)));
    }
    seen += static_cast<std::size_t>(std::max(count, 0));
    if (count < kEventsAtOnce) break;
  }
  return {};
}

bool TcpTransport::drained() const {
  for (const Connection* const one : peers_) {
    if (one->has_output()) return false;
  }
  return true;
}

// For none: it is not watched.
Status TcpTransport::watch(Connection& one, std::uint32_t events) {
  if (one.watched == events) return {};
  const int operation = one.watched == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
  epoll_event event{};
  event.events = events;
  event.data.ptr = &one;
  if (::epoll_ctl(epoll_.get(), operation, one.fd(), &event) != 0) return errno_error("epoll_ctl");
  one.watched = events;
  return {};
}

int TcpTransport::wait_descriptor() {
  has_slept_ = true;
  for (Connection* const one : peers_) {
    if (one->has_ended()) continue;
    const bool needs_room = one->has_output() && one->is_congested();
    if (!watch(*one, needs_room ? EPOLLIN | EPOLLOUT : EPOLLIN).ok()) return -1;
  }
  return epoll_.get();
}

Status TcpTransport::connection(std::uint32_t peer) const {
  const Connection& one = *connections_[peer];
  return one.has_ended() ? Status(Code::kRemoteError, one.end()) : Status();
}

void TcpTransport::finish_sending() {
  for (Connection* const one : peers_) one->finish_sending();
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport() {
  return std::make_unique<TcpTransport>();
}

}  // namespace rocenante
