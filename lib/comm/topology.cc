// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/topology.h"

#include <algorithm>
#include <bit>

namespace rocenante {
namespace {

// First transport that serves the pair, or empty.
std::string_view transport_for(const TransportCatalog& catalog, std::string_view setting,
                               const HostIdentity& a, const HostIdentity& b) {
  for (const char* const name : catalog.names()) {
    if ((setting == "auto" || setting == name) && catalog.reachable(name, a, b)) return name;
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> choose_transports(const TransportCatalog& catalog,
                                                   std::string_view setting, std::uint32_t rank,
                                                   std::span<const HostIdentity> ranks) {
  std::vector<std::string> names(ranks.size());
  for (std::uint32_t a = 0; a < ranks.size(); ++a) {
    for (std::uint32_t b = a + 1; b < ranks.size(); ++b) {
      const std::string_view name = transport_for(catalog, setting, ranks[a], ranks[b]);
      if (name.empty()) {
        return make_error(
            Code::kInvalidUsage,
            "ROCENANTE_TRANSPORT={} cannot connect rank {} ({}, process {}) and rank {} ({}, process {}): "
            "loopback joins ranks of one process, shm processes of one host, tcp any two",
            setting, a, ranks[a].host_name, ranks[a].pid, b, ranks[b].host_name, ranks[b].pid);
      }
      if (a == rank) names[b] = name;
      if (b == rank) names[a] = name;
    }
  }
  names[rank] = "self";
  return names;
}

std::uint32_t ranks_on_host(std::uint32_t rank, std::span<const HostIdentity> ranks) {
  return static_cast<std::uint32_t>(
      std::count_if(ranks.begin(), ranks.end(),
                    [&](const HostIdentity& other) { return other.boot_id == ranks[rank].boot_id; }));
}

std::uint32_t processors_on_host(std::uint32_t rank, std::span<const HostIdentity> ranks) {
  std::string all;
  for (const HostIdentity& other : ranks) {
    if (other.boot_id != ranks[rank].boot_id) continue;
    all.resize(std::max(all.size(), other.processors.size()));
    for (std::size_t i = 0; i < other.processors.size(); ++i)
      all[i] = static_cast<char>(all[i] | other.processors[i]);
  }
  int count = 0;
  for (const char byte : all) count += std::popcount(static_cast<unsigned char>(byte));
  return static_cast<std::uint32_t>(std::max(1, count));
}

}  // namespace rocenante
