// SPDX-License-Identifier: Apache-2.0
#include "lib/net/socket.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <limits>

#include "lib/net/wire.h"

namespace rocenante::net {
namespace {

// The kernel cuts it to net.core.somaxconn.
constexpr int kBacklog = 4096;
constexpr std::size_t kReadBytes = 8 * 1024;  // on the stack, and applications have threads of 64 KiB

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK;
}

bool closed_by_peer(int error) {
  return error == ECONNRESET || error == EPIPE;
}

Status stream_error(int error, std::string_view what) {
  if (closed_by_peer(error)) {
    return make_error(Code::kRemoteError, "{} closed the connection (errno {})", what, error);
  }
  return system_error(error, fmt::format("connection to {}", what));
}

Status finish_connect(int fd, const SocketAddress& address, Deadline deadline, int* error) {
  Status ready = wait_for(fd, POLLOUT, deadline, address.text());
  if (!ready.ok()) {
    *error = 0;
    return ready;
  }
  int result = 0;
  socklen_t bytes = sizeof(result);
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &bytes) != 0) result = errno;
  *error = result;
  return result == 0 ? Status() : system_error(result, fmt::format("connect to {}", address.text()));
}

Result<SocketAddress> bound_address(int fd, int (*query)(int, sockaddr*, socklen_t*), const char* name) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof(storage);
  if (query(fd, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return errno_error("{}", name);
  return SocketAddress::from(reinterpret_cast<const sockaddr*>(&storage));
}

}  // namespace

Result<SocketFd> listen_at(const SocketAddress& address) {
  SocketFd fd = open_socket(
      [&] { return ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  if (!fd) return errno_error("socket for {}", address.text());
  // A restarted job may listen again while connections of the last one are in TIME_WAIT.
  const int one = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (::bind(fd.get(), address.raw(), address.raw_bytes()) != 0) {
    return errno_error("listen at {}: bind", address.text());
  }
  if (::listen(fd.get(), kBacklog) != 0) return errno_error("listen at {}", address.text());
  return fd;
}

Result<SocketAddress> local_address(int fd) {
  return bound_address(fd, ::getsockname, "getsockname");
}

Result<SocketAddress> peer_address(int fd) {
  return bound_address(fd, ::getpeername, "getpeername");
}

Result<SocketFd> connect_to(const SocketAddress& address, Deadline deadline, int* error) {
  int ignored = 0;
  if (error == nullptr) error = &ignored;
  SocketFd fd = open_socket(
      [&] { return ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  *error = errno;
  if (!fd) return system_error(*error, fmt::format("socket for {}", address.text()));
  if (::connect(fd.get(), address.raw(), address.raw_bytes()) == 0) return fd;
  *error = errno;
  // An interrupted connect goes on in the background, exactly like a pending one.
  if (*error != EINPROGRESS && *error != EINTR) {
    return system_error(*error, fmt::format("connect to {}", address.text()));
  }
  RCN_TRY(finish_connect(fd.get(), address, deadline, error));
  return fd;
}

Result<SocketFd> accept_from(int listener, int* error) {
  SocketFd fd =
      open_socket([&] { return ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
  const int reason = fd ? 0 : errno;
  if (error != nullptr) *error = reason;
  // ECONNABORTED: the client left before it was accepted.
  if (fd || would_block(reason) || reason == ECONNABORTED || reason == EINTR) return fd;
  return system_error(reason, "accept");
}

void set_stream_options(int fd, std::uint64_t user_timeout_ms) {
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
  const std::uint64_t most = static_cast<std::uint64_t>(std::numeric_limits<int>::max());
  const auto timeout = static_cast<unsigned>(std::min(user_timeout_ms, most));
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
}

Status wait_for(int fd, short events, Deadline deadline, std::string_view what) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int count = ::poll(&entry, 1, deadline.poll_ms());
    if (count > 0) return {};
    if (count < 0 && errno != EINTR) return errno_error("poll on the connection to {}", what);
    if (deadline.passed()) return make_error(Code::kTimeout, "no answer from {} in time", what);
  }
}

Result<std::size_t> send_some(int fd, std::string_view bytes, std::string_view what) {
  for (;;) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (would_block(errno)) return std::size_t{0};
    if (errno != EINTR) return stream_error(errno, what);
  }
}

Result<std::size_t> receive_some(int fd, std::span<std::byte> bytes, std::string_view what, int* error) {
  for (;;) {
    const ssize_t received = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    const int reason = received < 0 ? errno : 0;
    if (error != nullptr) *error = reason;
    if (received > 0) return static_cast<std::size_t>(received);
    if (received == 0) return make_error(Code::kRemoteError, "{} closed the connection", what);
    if (would_block(reason)) return std::size_t{0};
    if (reason != EINTR) return stream_error(reason, what);
  }
}

Status send_all(int fd, std::string_view bytes, Deadline deadline, std::string_view what) {
  while (!bytes.empty()) {
    std::size_t sent = 0;
    RCN_ASSIGN(sent, send_some(fd, bytes, what));
    bytes.remove_prefix(sent);
    if (sent == 0) RCN_TRY(wait_for(fd, POLLOUT, deadline, what));
  }
  return {};
}

Status receive_all(int fd, std::span<std::byte> bytes, Deadline deadline, std::string_view what) {
  while (!bytes.empty()) {
    std::size_t received = 0;
    RCN_ASSIGN(received, receive_some(fd, bytes, what));
    bytes = bytes.subspan(received);
    if (received == 0) RCN_TRY(wait_for(fd, POLLIN, deadline, what));
  }
  return {};
}

void make_room_for_descriptors(std::size_t more) {
  constexpr rlim_t kUsual = 256;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kUsual + more) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, kUsual + more);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

bool is_network_error(int error) {
  return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN ||
         error == EHOSTDOWN || error == ENETRESET;
}

std::string encode_frame(std::uint16_t type, std::string_view body) {
  WireWriter writer;
  writer.integer(type).integer(std::uint16_t{0}).integer(static_cast<std::uint32_t>(body.size()));
  return writer.raw(body).take();
}

Result<bool> FrameReader::fill(int fd, std::string_view what, int* error) {
  std::array<std::byte, kReadBytes> chunk;
  const Result<std::size_t> received = receive_some(fd, chunk, what, error);
  if (!received.ok()) return received.status();
  // Taken frames leave before new bytes come, so the buffer stays within one frame and one read.
  buffer_.erase(0, consumed_);
  consumed_ = 0;
  buffer_.append(reinterpret_cast<const char*>(chunk.data()), received.value());
  return received.value() != 0;
}

Result<std::optional<Frame>> FrameReader::next(std::string_view what) {
  const std::string_view pending = std::string_view(buffer_).substr(consumed_);
  if (pending.size() < kFrameHeaderBytes) return std::optional<Frame>();
  WireReader reader(pending.substr(0, kFrameHeaderBytes));
  const auto type = reader.integer<std::uint16_t>();
  const auto zero = reader.integer<std::uint16_t>();
  const auto length = reader.integer<std::uint32_t>();
  if (zero != 0 || length > longest_body_) {
    return make_error(Code::kInternalError,
                      "malformed message from {}: type {}, length {} of at most {} bytes", what, type,
                      length, longest_body_);
  }
  if (pending.size() - kFrameHeaderBytes < length) return std::optional<Frame>();
  consumed_ += kFrameHeaderBytes + length;
  return std::optional(Frame{type, std::string(pending.substr(kFrameHeaderBytes, length))});
}

Result<Frame> receive_frame(int fd, FrameReader* reader, Deadline deadline, std::string_view what) {
  for (;;) {
    std::optional<Frame> frame;
    RCN_ASSIGN(frame, reader->next(what));
    if (frame) return std::move(*frame);
    bool filled = false;
    RCN_ASSIGN(filled, reader->fill(fd, what));
    if (!filled) RCN_TRY(wait_for(fd, POLLIN, deadline, what));
  }
}

}  // namespace rocenante::net
