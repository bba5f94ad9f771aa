// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/hand_over.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "lib/base/log.h"
#include "lib/net/crypto.h"
#include "lib/net/socket.h"
#include "lib/net/thread.h"

namespace rocenante {
namespace {

constexpr std::string_view kPurpose = "shm";
constexpr std::uint64_t kSendTimeoutS = 10;

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t bytes = 0;
};

Result<AbstractAddress> abstract_address(std::string_view name) {
  AbstractAddress result;
  result.address.sun_family = AF_UNIX;
  if (name.empty() || name.size() > sizeof result.address.sun_path - 1) {
    return make_error(Code::kRemoteError, "a socket name of {} bytes was offered, expected 1 to {}",
                      name.size(), sizeof result.address.sun_path - 1);
  }
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());
  result.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

std::string random_name() {
  std::array<std::byte, 16> random{};
  net::random_bytes(random);
  std::string name = "rocenante.";
  for (const std::byte byte : random) name += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return name;
}

Result<net::SocketFd> listen_on(const std::string& name, std::uint32_t ranks) {
  RCN_ASSIGN(const AbstractAddress at, abstract_address(name));
  net::SocketFd fd =
      net::open_socket([] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  if (!fd) return errno_error("socket(AF_UNIX)");
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at.address), at.bytes) != 0) {
    return errno_error("bind of the abstract socket {}", name);
  }
  if (::listen(fd.get(), static_cast<int>(std::max(ranks, 64u))) != 0)
    return errno_error("listen on {}", name);
  return fd;
}

// A full backlog answers EAGAIN to a non-blocking connect; there is nothing to wait on but time.
Result<net::SocketFd> connect_to(std::string_view name, net::Deadline deadline) {
  RCN_ASSIGN(const AbstractAddress at, abstract_address(name));
  net::SocketFd fd =
      net::open_socket([] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  if (!fd) return errno_error("socket(AF_UNIX)");
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&at.address), at.bytes) != 0) {
    if (errno != EAGAIN && errno != EINTR) return errno_error("connect to the abstract socket {}", name);
    if (deadline.passed())
      return make_error(Code::kTimeout, "the abstract socket {} accepts no connections", name);
    net::sleep_ns(net::kNanosecondsPerMillisecond);
  }
  return fd;
}

constexpr std::size_t kDescriptors = 2;
constexpr std::size_t kSizes = 2;
union ControlBuffer {
  char bytes[CMSG_SPACE(sizeof(int) * kDescriptors)];
  cmsghdr align;
};

}  // namespace

HandOverServer::HandOverServer(net::Acceptor acceptor, net::SocketFd wake, std::string name,
                               HandedOver regions)
    : acceptor_(std::move(acceptor)),
      wake_(std::move(wake)),
      name_(std::move(name)),
      regions_(std::move(regions)) {}

Result<std::unique_ptr<HandOverServer>> HandOverServer::start(const net::SecretKey& key, std::uint32_t rank,
                                                              std::uint32_t ranks, HandedOver regions) {
  std::string name = random_name();
  RCN_ASSIGN(net::SocketFd listener, listen_on(name, ranks));
  net::SocketFd wake = net::open_socket([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!wake) return errno_error("eventfd");
  net::AcceptorLimits limits;
  limits.half_open = std::max<std::size_t>(limits.half_open, std::size_t{4} * ranks);
  net::Acceptor acceptor(std::move(listener), key, net::Identity{kPurpose, rank, name}, limits);
  std::unique_ptr<HandOverServer> server(
      new HandOverServer(std::move(acceptor), std::move(wake), std::move(name), std::move(regions)));
  RCN_ASSIGN(server->thread_,
             net::start_quiet_thread("rcn-hand-over", [raw = server.get()] { raw->serve(); }));
  return server;
}

HandOverServer::~HandOverServer() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

void HandOverServer::serve() {
  std::vector<pollfd> polls;
  for (;;) {
    polls.clear();
    polls.push_back({wake_.get(), POLLIN, 0});
    acceptor_.append_polls(&polls);
    ::poll(polls.data(), polls.size(), acceptor_.next_deadline().poll_ms());
    if (polls[0].revents != 0) return;
    const std::span<const pollfd> callers = std::span(polls).subspan(1);
    for (const net::Acceptor::Connection& connection : acceptor_.step(callers)) send_regions(connection);
  }
}

void HandOverServer::send_regions(const net::Acceptor::Connection& connection) const {
  std::array<std::uint64_t, kSizes> sizes = {regions_.inbox_bytes, regions_.outbox_bytes};
  iovec part{sizes.data(), sizeof sizes};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * kDescriptors);
  const std::array<int, kDescriptors> descriptors = {regions_.inbox.get(), regions_.outbox.get()};
  std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof descriptors);
  // A fresh connection's buffer is empty and takes sixteen bytes whole.
  if (::sendmsg(connection.fd.get(), &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof sizes)) {
    log_warn(-1, "handing shared memory to rank {} failed: {}", connection.peer.rank, std::strerror(errno));
  }
}

Result<HandedOver> receive_regions(std::string_view name, const net::SecretKey& key, std::uint32_t rank,
                                   std::uint32_t peer, net::Deadline deadline) {
  RCN_ASSIGN(const net::SocketFd fd, connect_to(name, deadline));
  RCN_ASSIGN(
      const net::PeerIdentity identity,
      net::handshake_client(fd.get(), key, net::Identity{kPurpose, rank, std::string(name)}, deadline));
  if (identity.rank != peer) {
    return make_error(Code::kRemoteError, "the socket of rank {} is answered by rank {}", peer,
                      identity.rank);
  }
  RCN_TRY(net::wait_for(fd.get(), POLLIN, deadline, fmt::format("rank {}", peer)));

  std::array<std::uint64_t, kSizes> sizes{};
  iovec part{sizes.data(), sizeof sizes};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t received = ::recvmsg(fd.get(), &message, MSG_CMSG_CLOEXEC);
  if (received < 0) return errno_error("receiving the shared memory of rank {}", peer);
  std::array<int, kDescriptors> descriptors = {-1, -1};
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    const std::size_t carried = header->cmsg_len - CMSG_LEN(0);
    std::memcpy(descriptors.data(), CMSG_DATA(header), std::min(carried, sizeof descriptors));
  }
  HandedOver result;
  result.inbox = Fd(above_standard(descriptors[0]));
  result.outbox = Fd(above_standard(descriptors[1]));
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return make_error(Code::kSystemError,
                      "the shared memory of rank {} could not be received: this process has no more file "
                      "descriptors, raise the limit of open files (ulimit -n)",
                      peer);
  }
  if (received != static_cast<ssize_t>(sizeof sizes) || !result.inbox || !result.outbox ||
      (message.msg_flags & MSG_TRUNC) != 0) {
    return make_error(Code::kRemoteError, "rank {} handed over {} bytes without both descriptors", peer,
                      received);
  }
  result.inbox_bytes = sizes[0];
  result.outbox_bytes = sizes[1];
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) == 0)
    result.pid = credentials.pid;
  return result;
}

}  // namespace rocenante
