// SPDX-License-Identifier: Apache-2.0
#include <ifaddrs.h>
#include <netinet/in.h>

#include <bit>
#include <cstring>
#include <memory>

#include "lib/fabric/fabric.h"

namespace rocenante::fabric {
namespace {

struct FreeAddresses {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};

constexpr std::uint32_t kMappedAt = 12;  // where an IPv4 address stands in a GID

Gid mapped(const in_addr& host) {
  Gid gid{};
  gid[10] = gid[11] = 0xff;
  std::memcpy(gid.data() + kMappedAt, &host, sizeof host);
  return gid;
}

template <class Bytes>
std::uint32_t ones_in(const Bytes& mask) {
  std::array<std::uint8_t, sizeof mask> bytes{};
  std::memcpy(bytes.data(), &mask, sizeof mask);
  std::uint32_t count = 0;
  for (const std::uint8_t byte : bytes) count += static_cast<std::uint32_t>(std::popcount(byte));
  return count;
}

template <class Address>
Address as(const sockaddr* raw) {
  Address address{};
  std::memcpy(&address, raw, sizeof address);
  return address;
}

}  // namespace

Result<std::vector<InterfaceAddress>> interface_addresses() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return errno_error("getifaddrs");
  const std::unique_ptr<ifaddrs, FreeAddresses> list(raw);
  std::vector<InterfaceAddress> result;
  for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_netmask == nullptr) continue;
    if (entry->ifa_addr->sa_family == AF_INET) {
      const std::uint32_t ones = ones_in(as<sockaddr_in>(entry->ifa_netmask).sin_addr);
      result.push_back(
          {entry->ifa_name, mapped(as<sockaddr_in>(entry->ifa_addr).sin_addr), 8 * kMappedAt + ones});
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      InterfaceAddress address{
          entry->ifa_name, {}, ones_in(as<sockaddr_in6>(entry->ifa_netmask).sin6_addr)};
      const auto host = as<sockaddr_in6>(entry->ifa_addr).sin6_addr;
      std::memcpy(address.address.data(), &host, sizeof host);
      result.push_back(std::move(address));
    }
  }
  return result;
}

}  // namespace rocenante::fabric
