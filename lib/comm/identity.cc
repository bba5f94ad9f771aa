// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/identity.h"

#include <algorithm>
#include <cstring>

#include "lib/net/wire.h"

namespace rocenante {
namespace {

constexpr std::size_t kLongestText = 65536;
constexpr std::uint32_t kMostPorts = 256;

// What the other end needs of a port; what is near it is its own affair.
void encode_port(const fabric::Port& port, net::WireWriter* out) {
  out->string(port.device).integer(port.port).integer(port.gid_index);
  out->raw(std::as_bytes(std::span(port.gid))).integer(port.prefix_length);
  out->string(port.netdev).integer(port.mtu).integer(static_cast<std::uint8_t>(port.software));
}

fabric::Port decode_port(net::WireReader* in) {
  fabric::Port port;
  port.device = in->string(kLongestText);
  port.port = in->integer<std::uint32_t>();
  port.gid_index = in->integer<std::uint32_t>();
  const std::string_view gid = in->raw(port.gid.size());
  std::copy(gid.begin(), gid.end(), port.gid.begin());
  port.prefix_length = in->integer<std::uint32_t>();
  port.netdev = in->string(kLongestText);
  port.mtu = in->integer<std::uint32_t>();
  port.software = in->integer<std::uint8_t>() != 0;
  return port;
}

}  // namespace

std::string encode_identity(const HostIdentity& identity) {
  net::WireWriter out;
  out.string(identity.host_name).string(identity.boot_id);
  out.integer(identity.process_nonce).integer(static_cast<std::uint64_t>(identity.pid));
  out.string(identity.processors).string(identity.no_ports).string(identity.ports_error);
  const auto ports = static_cast<std::uint32_t>(std::min<std::size_t>(identity.ports.size(), kMostPorts));
  out.integer(ports);
  for (std::uint32_t i = 0; i < ports; ++i) encode_port(identity.ports[i], &out);
  return out.take();
}

bool decode_identity(std::string_view bytes, HostIdentity* identity) {
  net::WireReader in(bytes);
  identity->host_name = in.string(kLongestText);
  identity->boot_id = in.string(kLongestText);
  identity->process_nonce = in.integer<std::uint64_t>();
  identity->pid = static_cast<std::int64_t>(in.integer<std::uint64_t>());
  identity->processors = in.string(kLongestText);
  identity->no_ports = in.string(kLongestText);
  identity->ports_error = in.string(kLongestText);
  const auto ports = in.integer<std::uint32_t>();
  if (ports > kMostPorts) return false;
  for (std::uint32_t i = 0; i < ports; ++i) identity->ports.push_back(decode_port(&in));
  return in.complete();
}

}  // namespace rocenante
