// SPDX-License-Identifier: Apache-2.0
//
// Stream sockets: addresses, connecting and accepting with deadlines, framed messages. Every descriptor is
// close-on-exec, non-blocking and dropped by children of fork(). Nothing here raises SIGPIPE.
//
// Error codes: RemoteError when the other side has closed or reset the connection, Timeout when the
// deadline passed, SystemError otherwise.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lib/base/status.h"
#include "lib/net/deadline.h"
#include "lib/net/fork.h"
#include "lib/net/wire.h"

namespace rocenante::net {

// An IPv4 or IPv6 address with port and, for IPv6, scope. A value.
class SocketAddress {
 public:
  SocketAddress() = default;  // family AF_UNSPEC
  // AF_UNSPEC for families other than AF_INET and AF_INET6.
  static SocketAddress from(const sockaddr* address);
  static SocketAddress ipv4(const in_addr& host, std::uint16_t port);
  static SocketAddress ipv6(const in6_addr& host, std::uint16_t port, std::uint32_t scope);

  int family() const { return storage_.any.sa_family; }
  std::uint16_t port() const;
  std::uint32_t scope() const { return family() == AF_INET6 ? storage_.v6.sin6_scope_id : 0; }
  const in_addr& host_v4() const { return storage_.v4.sin_addr; }
  const in6_addr& host_v6() const { return storage_.v6.sin6_addr; }
  SocketAddress with_port(std::uint16_t port) const;
  // The same family and port, every interface.
  SocketAddress with_any_host() const;
  bool is_loopback() const;
  bool is_link_local() const;
  bool is_any_host() const;
  // "10.0.0.1:4242", "[fe80::1%eth0]:4242"; "(no address)" for AF_UNSPEC.
  std::string text() const;
  bool operator==(const SocketAddress& other) const;

  const sockaddr* raw() const { return &storage_.any; }
  socklen_t raw_bytes() const;

 private:
  union Storage {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
  };
  Storage storage_{.v6 = {}};
};

struct ParsedAddress {
  SocketAddress address;
  bool is_numeric = false;  // written as an address, not as a host name
};
// "HOST:PORT" or "[V6]:PORT"; host names are resolved, which may block as long as the system's resolver
// does. `family` is AF_UNSPEC, AF_INET or AF_INET6 and picks among the addresses of a name.
// InvalidArgument for bad syntax, SystemError when the name cannot be resolved.
Result<ParsedAddress> parse_address(std::string_view text, int family = AF_UNSPEC);

// Fixed size: family u8 (0, 4 or 6), zero u8, port u16, scope u32, host (16 bytes).
inline constexpr std::size_t kAddressWireBytes = 24;
void append_address(const SocketAddress& address, WireWriter* writer);
// AF_UNSPEC when the bytes are no address.
SocketAddress read_address(WireReader* reader);

Result<SocketFd> listen_at(const SocketAddress& address);
// The address a listener or connection is bound to, or connected to.
Result<SocketAddress> local_address(int fd);
Result<SocketAddress> peer_address(int fd);

// `error`, when given, receives the errno of a failed attempt (0 for a timeout).
Result<SocketFd> connect_to(const SocketAddress& address, Deadline deadline, int* error = nullptr);
// Does not wait; empty when nobody is there. `error` as above.
Result<SocketFd> accept_from(int listener, int* error = nullptr);

// TCP_NODELAY, keep-alive, and TCP_USER_TIMEOUT: how long sent data may stay unacknowledged before the
// connection fails with ETIMEDOUT. Best effort: a no-op on sockets that are not TCP.
void set_stream_options(int fd, std::uint64_t user_timeout_ms);

// Waits for any of `events` (poll(2)); `what` names the other side in errors.
Status wait_for(int fd, short events, Deadline deadline, std::string_view what);
Status send_all(int fd, std::string_view bytes, Deadline deadline, std::string_view what);
Status receive_all(int fd, std::span<std::byte> bytes, Deadline deadline, std::string_view what);

// One step without waiting: bytes moved, 0 when none can be now, or an error; receiving reports a closed
// connection as RemoteError. `error`, when given, receives the errno of a failure (0 for an orderly close).
Result<std::size_t> send_some(int fd, std::string_view bytes, std::string_view what);
Result<std::size_t> receive_some(int fd, std::span<std::byte> bytes, std::string_view what,
                                 int* error = nullptr);

// Raises the soft limit of open files, where the hard one allows, so that `more` fit beside what a process
// usually has. Only large communicators need it.
void make_room_for_descriptors(std::size_t more);

// Is this error number evidence that the network is at fault rather than the process at the other end?
bool is_network_error(int error);

// A framed message: type u16, zero u16, length u32, body; little-endian.
struct Frame {
  std::uint16_t type = 0;
  std::string body;
};
inline constexpr std::size_t kFrameHeaderBytes = 8;
std::string encode_frame(std::uint16_t type, std::string_view body);

// Collects the frames of one connection; never holds more than one frame of the limit and one read.
class FrameReader {
 public:
  explicit FrameReader(std::size_t longest_body) : longest_body_(longest_body) {}
  void set_longest_body(std::size_t bytes) { longest_body_ = bytes; }

  // Reads once, without waiting; false when nothing was there. `error` as in receive_some.
  Result<bool> fill(int fd, std::string_view what, int* error = nullptr);
  // The next whole frame, if there is one. InternalError when the bytes are no frame or exceed the limit.
  Result<std::optional<Frame>> next(std::string_view what);

 private:
  std::size_t longest_body_;
  std::string buffer_;
  std::size_t consumed_ = 0;
};

// The next frame, waiting for it.
Result<Frame> receive_frame(int fd, FrameReader* reader, Deadline deadline, std::string_view what);

}  // namespace rocenante::net
