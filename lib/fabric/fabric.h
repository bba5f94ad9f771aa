// SPDX-License-Identifier: Apache-2.0
//
// The network adapters of this host: which of their ports can carry data, under which address, and which
// ports of two hosts meet on a cable or a switch. All of it is read from sysfs and the interfaces'
// addresses; nothing here opens a device.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/config.h"
#include "lib/base/status.h"

namespace rocenante::fabric {

// A GID, which is an IPv6 address; IPv4 addresses are mapped into it.
using Gid = std::array<std::uint8_t, 16>;

inline constexpr std::uint32_t kMostRails = 8;

// One port of one adapter that can be used, with the address chosen for it.
struct Port {
  std::string device;           // "rocep1s0f0"
  std::uint32_t port = 1;       // counted from 1
  std::uint32_t gid_index = 0;  // differs between ports and hosts
  Gid gid{};
  std::uint32_t prefix_length = 0;  // of the subnet, in bits of the GID: 120 for an IPv4 /24
  std::string netdev;               // "enp1s0f0np0"
  std::uint32_t mtu = 0;            // largest RDMA payload of a packet that the interface's MTU allows
  std::string rate;                 // "200 Gb/sec (2X NDR)"
  std::int32_t numa_node = -1;      // -1: unknown or only one
  std::string processors;           // near ones, as in "0-9,20"; empty if unknown
  bool software = false;            // no adapter, but the kernel, on the host's processors (soft RoCE)

  bool operator==(const Port&) const = default;
};

// An address of a network interface.
struct InterfaceAddress {
  std::string netdev;
  Gid address{};
  std::uint32_t prefix_length = 0;  // as in Port
};

// What to look for; the settings ROCENANTE_IB_*.
struct Wanted {
  std::string hca{};            // NCCL_IB_HCA; see choose in hca_list.h
  std::int32_t gid_index = -1;  // this GID of every port; -1 finds one for each
  bool ipv6 = false;            // the family of the address found
  static Wanted from(const Config& config);
};

// A port that is left aside, and why.
struct Skipped {
  std::string name;  // "rocep1s0f1:1"
  std::string reason;
};

struct Fabric {
  std::vector<Port> ports;  // by device name and port
  std::vector<Skipped> skipped;
};

// The usable ports of the host whose sysfs is mounted at `sysfs` ("/sys"). A host without adapters has
// none, which is no error. InvalidArgument when the settings name a device or port that is not there or
// cannot be used, naming it and why.
Result<Fabric> discover(const std::string& sysfs, std::span<const InterfaceAddress> addresses,
                        const Wanted& wanted);

// The addresses of the interfaces this process sees (getifaddrs). SystemError.
Result<std::vector<InterfaceAddress>> interface_addresses();

// A pair of ports that reach each other, seen from one end.
struct Rail {
  Port local;
  Port remote;
};

// The rails between two ranks: ports in the same subnet, in pairs, ordered by the subnet's address and
// within it by the ports' own, so that rails_between(a, b) and rails_between(b, a) are the same pairs in
// the same order. At most kMostRails.
std::vector<Rail> rails_between(std::span<const Port> local, std::span<const Port> remote);

// Whether there is at least one such rail.
bool have_rail(std::span<const Port> local, std::span<const Port> remote);

// "192.168.100.1", "2001:db8::1".
std::string address_text(const Gid& gid);
// "192.168.100.0/24".
std::string subnet_text(const Port& port);
// "rocep1s0f0:1".
std::string port_name(const Port& port);
bool is_ipv4(const Gid& gid);

}  // namespace rocenante::fabric
