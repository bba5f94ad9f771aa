// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/topology.h"

#include <sched.h>

#include <algorithm>

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
            "loopback joins ranks of one process, shm processes of one host",
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

std::uint32_t usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&set)));
}

}  // namespace rocenante
