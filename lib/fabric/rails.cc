// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "lib/fabric/fabric.h"
#include "lib/fabric/subnet.h"

namespace rocenante::fabric {
namespace {

using Subnet = std::pair<Gid, std::uint32_t>;
using BySubnet = std::map<Subnet, std::vector<const Port*>>;

BySubnet group(std::span<const Port> ports) {
  BySubnet result;
  for (const Port& port : ports) {
    result[{network_of(port.gid, port.prefix_length), port.prefix_length}].push_back(&port);
  }
  for (auto& [subnet, members] : result) {
    std::sort(members.begin(), members.end(), [](const Port* a, const Port* b) {
      return std::tie(a->gid, a->device, a->port) < std::tie(b->gid, b->device, b->port);
    });
  }
  return result;
}

}  // namespace

std::vector<Rail> rails_between(std::span<const Port> local, std::span<const Port> remote) {
  std::vector<Rail> rails;
  const BySubnet there = group(remote);
  for (const auto& [subnet, ours] : group(local)) {
    const auto found = there.find(subnet);
    if (found == there.end()) continue;
    const std::size_t pairs = std::min(ours.size(), found->second.size());
    for (std::size_t i = 0; i < pairs && rails.size() < kMostRails; ++i) {
      rails.push_back({*ours[i], *found->second[i]});
    }
  }
  return rails;
}

bool have_rail(std::span<const Port> local, std::span<const Port> remote) {
  return std::any_of(local.begin(), local.end(), [&](const Port& a) {
    const Gid network = network_of(a.gid, a.prefix_length);
    return std::any_of(remote.begin(), remote.end(), [&](const Port& b) {
      return a.prefix_length == b.prefix_length && network == network_of(b.gid, b.prefix_length);
    });
  });
}

}  // namespace rocenante::fabric
