// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>

#include "lib/fabric/fabric.h"
#include "lib/fabric/subnet.h"

namespace rocenante::fabric {

bool is_ipv4(const Gid& gid) {
  for (std::size_t i = 0; i < 10; ++i) {
    if (gid[i] != 0) return false;
  }
  return gid[10] == 0xff && gid[11] == 0xff;
}

std::string address_text(const Gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (is_ipv4(gid)) {
    ::inet_ntop(AF_INET, gid.data() + 12, text.data(), text.size());
  } else {
    ::inet_ntop(AF_INET6, gid.data(), text.data(), text.size());
  }
  return text.data();
}

std::string subnet_text(const Port& port) {
  const std::uint32_t length = is_ipv4(port.gid) ? port.prefix_length - 96 : port.prefix_length;
  return fmt::format("{}/{}", address_text(network_of(port.gid, port.prefix_length)), length);
}

std::string port_name(const Port& port) {
  return fmt::format("{}:{}", port.device, port.port);
}

}  // namespace rocenante::fabric
