// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>

#include <array>
#include <charconv>
#include <cstring>
#include <memory>

#include "lib/base/config.h"
#include "lib/net/socket.h"

namespace rocenante::net {
namespace {

struct FreeAddrinfo {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using AddrinfoList = std::unique_ptr<addrinfo, FreeAddrinfo>;

// 0 or an EAI_ code.
int resolve(const std::string& host, int family, int flags, AddrinfoList* result) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  result->reset(list);
  return error;
}

Status syntax_error(std::string_view text, std::string_view reason) {
  return make_error(Code::kInvalidArgument, "address '{}': {}; expected HOST:PORT or [IPV6]:PORT", text,
                    reason);
}

}  // namespace

SocketAddress SocketAddress::from(const sockaddr* address) {
  SocketAddress result;
  if (address == nullptr) return result;
  if (address->sa_family == AF_INET) std::memcpy(&result.storage_.v4, address, sizeof(sockaddr_in));
  if (address->sa_family == AF_INET6) std::memcpy(&result.storage_.v6, address, sizeof(sockaddr_in6));
  return result;
}

SocketAddress SocketAddress::ipv4(const in_addr& host, std::uint16_t port) {
  SocketAddress result;
  result.storage_.v4 = {};
  result.storage_.v4.sin_family = AF_INET;
  result.storage_.v4.sin_addr = host;
  return result.with_port(port);
}

SocketAddress SocketAddress::ipv6(const in6_addr& host, std::uint16_t port, std::uint32_t scope) {
  SocketAddress result;
  result.storage_.v6.sin6_family = AF_INET6;
  result.storage_.v6.sin6_addr = host;
  result.storage_.v6.sin6_scope_id = scope;
  return result.with_port(port);
}

std::uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(storage_.v4.sin_port);
  return family() == AF_INET6 ? ntohs(storage_.v6.sin6_port) : std::uint16_t{0};
}

SocketAddress SocketAddress::with_port(std::uint16_t port) const {
  SocketAddress result = *this;
  if (family() == AF_INET) result.storage_.v4.sin_port = htons(port);
  if (family() == AF_INET6) result.storage_.v6.sin6_port = htons(port);
  return result;
}

SocketAddress SocketAddress::with_any_host() const {
  if (family() == AF_INET) return ipv4(in_addr{INADDR_ANY}, port());
  return family() == AF_INET6 ? ipv6(in6addr_any, port(), 0) : *this;
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) return ntohl(storage_.v4.sin_addr.s_addr) >> 24 == 127;
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&storage_.v6.sin6_addr);
}

bool SocketAddress::is_link_local() const {
  if (family() == AF_INET) return ntohl(storage_.v4.sin_addr.s_addr) >> 16 == 0xa9fe;
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&storage_.v6.sin6_addr);
}

bool SocketAddress::is_any_host() const {
  if (family() == AF_INET) return storage_.v4.sin_addr.s_addr == INADDR_ANY;
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&storage_.v6.sin6_addr);
}

std::string SocketAddress::text() const {
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (family() == AF_INET) {
    ::inet_ntop(AF_INET, &storage_.v4.sin_addr, host.data(), host.size());
    return fmt::format("{}:{}", host.data(), port());
  }
  if (family() != AF_INET6) return "(no address)";
  ::inet_ntop(AF_INET6, &storage_.v6.sin6_addr, host.data(), host.size());
  if (scope() == 0) return fmt::format("[{}]:{}", host.data(), port());
  std::array<char, IF_NAMESIZE> name{};
  if (::if_indextoname(scope(), name.data()) == nullptr) {
    return fmt::format("[{}%{}]:{}", host.data(), scope(), port());
  }
  return fmt::format("[{}%{}]:{}", host.data(), name.data(), port());
}

bool SocketAddress::operator==(const SocketAddress& other) const {
  if (family() != other.family() || port() != other.port()) return false;
  if (family() == AF_INET) return host_v4().s_addr == other.host_v4().s_addr;
  return family() != AF_INET6 ||
         (std::memcmp(&host_v6(), &other.host_v6(), sizeof(in6_addr)) == 0 && scope() == other.scope());
}

socklen_t SocketAddress::raw_bytes() const {
  return family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

void append_address(const SocketAddress& address, WireWriter* writer) {
  std::array<std::byte, 16> host{};
  const bool is_v4 = address.family() == AF_INET;
  const bool is_v6 = address.family() == AF_INET6;
  if (is_v4) std::memcpy(host.data(), &address.host_v4(), sizeof(in_addr));
  if (is_v6) std::memcpy(host.data(), &address.host_v6(), sizeof(in6_addr));
  writer->integer(static_cast<std::uint8_t>(is_v4 ? 4 : is_v6 ? 6 : 0)).integer(std::uint8_t{0});
  writer->integer(address.port()).integer(address.scope()).raw(std::span<const std::byte>(host));
}

SocketAddress read_address(WireReader* reader) {
  const auto family = reader->integer<std::uint8_t>();
  reader->integer<std::uint8_t>();
  const auto port = reader->integer<std::uint16_t>();
  const auto scope = reader->integer<std::uint32_t>();
  const std::string_view host = reader->raw(16);
  if (host.size() != 16) return {};
  in_addr v4{};
  in6_addr v6{};
  std::memcpy(&v4, host.data(), sizeof(v4));
  std::memcpy(&v6, host.data(), sizeof(v6));
  if (family == 4) return SocketAddress::ipv4(v4, port);
  return family == 6 ? SocketAddress::ipv6(v6, port, scope) : SocketAddress();
}

Result<ParsedAddress> parse_address(std::string_view text, int family) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return syntax_error(text, "no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  std::uint16_t port = 0;
  const char* const end = digits.data() + digits.size();
  const auto [next, error] = std::from_chars(digits.data(), end, port);
  if (error != std::errc() || next != end) {
    return syntax_error(text, fmt::format("'{}' is not a port from 0 to 65535", digits));
  }
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":[]") != std::string_view::npos) {
    return syntax_error(text, "an IPv6 address must stand in brackets");
  }
  if (host.empty()) return syntax_error(text, "no host");
  if (host.find('\0') != std::string_view::npos) return syntax_error(text, "it contains a NUL byte");

  AddrinfoList list;
  const std::string host_text(host);
  const bool is_numeric = resolve(host_text, family, AI_NUMERICHOST, &list) == 0;
  if (!is_numeric) {
    if (family != AF_UNSPEC && resolve(host_text, AF_UNSPEC, AI_NUMERICHOST, &list) == 0) {
      return syntax_error(text, fmt::format("{} allows {} alone", config_row(Key::kSocketFamily).name,
                                            family == AF_INET ? "AF_INET" : "AF_INET6"));
    }
    if (bracketed) return syntax_error(text, fmt::format("'{}' is not an IPv6 address", host));
    const int reason = resolve(host_text, family, 0, &list);
    if (reason != 0 || !list) {
      return make_error(Code::kSystemError, "address '{}': cannot resolve host '{}': {}", text, host,
                        ::gai_strerror(reason));
    }
  }
  return ParsedAddress{SocketAddress::from(list->ai_addr).with_port(port), is_numeric};
}

}  // namespace rocenante::net
