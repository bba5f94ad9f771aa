// SPDX-License-Identifier: Apache-2.0
//
// What sysfs says of RDMA devices, as it stands there: no choice is made here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/fabric/fabric.h"

namespace rocenante::fabric {

struct GidEntry {
  std::uint32_t index = 0;
  Gid gid{};
  std::string type;  // "RoCE v2", "IB/RoCE v1"
  std::string netdev;
};

struct PortFacts {
  std::string device;
  std::uint32_t port = 1;
  bool active = false;
  std::string state;       // "4: ACTIVE"
  std::string link_layer;  // "Ethernet"
  std::string rate;
  std::int32_t numa_node = -1;
  std::string processors;
  bool software = false;       // no device behind it
  std::vector<GidEntry> gids;  // those that are not empty, by index
};

// Every port of every device, by device name and port. A tree without devices has none.
std::vector<PortFacts> read_ports(const std::string& sysfs);

// The MTU of a network interface; 0 if it is not there.
std::uint32_t read_netdev_mtu(const std::string& sysfs, const std::string& netdev);

// "fe80:0000:...": whether all eight groups are there.
bool parse_gid(const std::string& text, Gid* gid);

}  // namespace rocenante::fabric
