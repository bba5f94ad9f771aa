// SPDX-License-Identifier: Apache-2.0
#include "lib/net/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <tuple>

namespace rocenante::net {
namespace {

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};

struct Pattern {
  bool excludes = false;
  bool is_exact = false;
  std::vector<std::string_view> names;

  // As in NCCL, a pattern without names admits everything, also when it excludes.
  bool admits(std::string_view interface) const {
    if (names.empty()) return true;
    const bool listed = std::any_of(names.begin(), names.end(), [&](std::string_view name) {
      return is_exact ? interface == name : interface.starts_with(name);
    });
    return listed != excludes;
  }
};

Pattern parse_pattern(std::string_view text) {
  Pattern pattern;
  if (text.starts_with('^')) {
    pattern.excludes = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('=')) {
    pattern.is_exact = true;
    text.remove_prefix(1);
  }
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const std::string_view name = item.substr(0, item.find(':'));
    if (!name.empty()) pattern.names.push_back(name);
  }
  return pattern;
}

bool is_bridge_of_containers(std::string_view name) {
  return name.starts_with("docker") || name.starts_with("virbr");
}

// Lower is better; the order of the list decides between equals, and an interface's first position counts
// for all its addresses.
using Preference = std::tuple<int, std::size_t, bool, bool>;

Preference preference(std::span<const Interface> all, const Interface& one, bool has_pattern) {
  const int kind = has_pattern ? 0 : one.is_loopback ? 2 : is_bridge_of_containers(one.name) ? 1 : 0;
  const auto first =
      std::find_if(all.begin(), all.end(), [&](const Interface& other) { return other.name == one.name; });
  return {kind, static_cast<std::size_t>(first - all.begin()), one.address.family() == AF_INET6,
          one.address.is_link_local()};
}

// The ones of a subnet mask; none where there is no mask.
std::optional<std::uint32_t> prefix_length(const sockaddr* mask) {
  const SocketAddress address = SocketAddress::from(mask);
  std::array<std::uint8_t, sizeof(in6_addr)> bytes{};
  if (address.family() == AF_INET) {
    std::memcpy(bytes.data(), &address.host_v4(), sizeof(in_addr));
  } else if (address.family() == AF_INET6) {
    std::memcpy(bytes.data(), &address.host_v6(), sizeof(in6_addr));
  } else {
    return std::nullopt;
  }
  std::uint32_t ones = 0;
  for (const std::uint8_t byte : bytes) ones += static_cast<std::uint32_t>(std::popcount(byte));
  return ones;
}

std::string listing(std::span<const Interface> interfaces) {
  std::string text;
  for (const Interface& one : interfaces) {
    const std::string address = one.address.text();
    text += fmt::format("{}{} ({}{})", text.empty() ? "" : ", ", one.name,
                        address.substr(0, address.rfind(':')), one.is_up ? "" : ", down");
  }
  return text.empty() ? "none" : text;
}

}  // namespace

int family_number(std::string_view family) {
  if (family == "AF_INET") return AF_INET;
  return family == "AF_INET6" ? AF_INET6 : AF_UNSPEC;
}

Result<std::vector<Interface>> list_interfaces() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return errno_error("getifaddrs");
  const std::unique_ptr<ifaddrs, FreeInterfaces> list(raw);
  std::vector<Interface> result;
  for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
    const SocketAddress address = SocketAddress::from(entry->ifa_addr);
    if (address.family() == AF_UNSPEC) continue;
    result.push_back({entry->ifa_name, address.with_port(0), (entry->ifa_flags & IFF_UP) != 0,
                      (entry->ifa_flags & IFF_LOOPBACK) != 0, prefix_length(entry->ifa_netmask)});
  }
  return result;
}

Result<Interface> choose_interface(std::span<const Interface> interfaces, std::string_view pattern,
                                   std::string_view family) {
  const Pattern parsed = parse_pattern(pattern);
  const int wanted = family_number(family);
  const Interface* best = nullptr;
  for (const Interface& one : interfaces) {
    if (!one.is_up || (wanted != AF_UNSPEC && one.address.family() != wanted)) continue;
    if (!parsed.admits(one.name)) continue;
    const bool named = !pattern.empty();
    if (best == nullptr || preference(interfaces, one, named) < preference(interfaces, *best, named)) {
      best = &one;
    }
  }
  if (best != nullptr) return *best;
  return make_error(Code::kInvalidArgument,
                    "no interface that is up matches NCCL_SOCKET_IFNAME / ROCENANTE_SOCKET_IFNAME '{}' and "
                    "address family '{}'; there are: {}",
                    pattern, family, listing(interfaces));
}

Result<Interface> configured_interface(const Config& config) {
  std::vector<Interface> interfaces;
  RCN_ASSIGN(interfaces, list_interfaces());
  return choose_interface(interfaces, config.text(Key::kSocketIfname), config.text(Key::kSocketFamily));
}

SocketAddress as_seen_from_here(const SocketAddress& address, const Config& config) {
  if (address.family() != AF_INET6 || !address.is_link_local()) return address;
  const Result<std::vector<Interface>> interfaces = list_interfaces();
  if (!interfaces.ok()) return address;
  const auto own = choose_interface(interfaces.value(), config.text(Key::kSocketIfname), "AF_INET6");
  if (!own.ok() || own.value().address.scope() == 0) return address;
  return SocketAddress::ipv6(address.host_v6(), address.port(), own.value().address.scope());
}

}  // namespace rocenante::net
