// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "lib/fabric/fabric.h"
#include "lib/net/interfaces.h"

namespace rocenante::fabric {
namespace {

constexpr std::uint32_t kMappedAt = 12;  // where an IPv4 address stands in a GID

InterfaceAddress address_of(const net::Interface& one) {
  InterfaceAddress result{one.name, {}, *one.prefix_length};
  if (one.address.family() == AF_INET6) {
    std::memcpy(result.address.data(), &one.address.host_v6(), sizeof(in6_addr));
    return result;
  }
  result.address[10] = result.address[11] = 0xff;
  std::memcpy(result.address.data() + kMappedAt, &one.address.host_v4(), sizeof(in_addr));
  result.prefix_length += 8 * kMappedAt;
  return result;
}

}  // namespace

Result<std::vector<InterfaceAddress>> interface_addresses() {
  RCN_ASSIGN(const std::vector<net::Interface> interfaces, net::list_interfaces());
  std::vector<InterfaceAddress> result;
  for (const net::Interface& one : interfaces) {
    if (one.prefix_length) result.push_back(address_of(one));
  }
  return result;
}

}  // namespace rocenante::fabric
