// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/topology.h"

#include <algorithm>
#include <bit>

namespace rocenante {
namespace {

// First transport that serves the pair, or empty.
std::string_view transport_for(const TransportCatalog& catalog, std::string_view setting,
                               std::span<const HostIdentity> ranks, std::uint32_t a, std::uint32_t b,
                               const UnusableWays& unusable) {
  for (const char* const name : catalog.names()) {
    if (setting != "auto" && setting != name) continue;
    if (unusable.contains({std::min(a, b), std::max(a, b), name})) continue;
    if (catalog.reachable(name, ranks[a], ranks[b])) return name;
  }
  return {};
}

// What is wrong with the RDMA settings of one end of a pair that may come to need them.
Status check_ports(std::string_view setting, std::span<const HostIdentity> ranks, std::uint32_t a,
                   std::uint32_t b) {
  const bool same_host = !ranks[a].boot_id.empty() && ranks[a].boot_id == ranks[b].boot_id;
  if (setting != "verbs" && (setting != "auto" || same_host)) return {};
  for (const std::uint32_t rank : {a, b}) {
    if (!ranks[rank].ports_error.empty()) {
      return make_error(Code::kInvalidUsage, "rank {} ({}): {}", rank, ranks[rank].host_name,
                        ranks[rank].ports_error);
    }
  }
  return {};
}

std::string ports_text(const HostIdentity& identity) {
  std::string text;
  for (const fabric::Port& port : identity.ports) {
    text += fmt::format("{}{} in {}", text.empty() ? "" : ", ", fabric::port_name(port),
                        fabric::subnet_text(port));
  }
  if (!text.empty()) return text;
  return fmt::format("none{}{}", identity.no_ports.empty() ? "" : ": ", identity.no_ports);
}

Status no_transport(std::string_view setting, std::span<const HostIdentity> ranks, std::uint32_t a,
                    std::uint32_t b) {
  std::string ports;
  if (setting == "auto" || setting == "verbs") {
    ports = fmt::format(". RDMA ports of rank {}: {}; of rank {}: {}", a, ports_text(ranks[a]), b,
                        ports_text(ranks[b]));
  }
  return make_error(
      Code::kInvalidUsage,
      "ROCENANTE_TRANSPORT={} cannot connect rank {} ({}, process {}) and rank {} ({}, process {}): "
      "loopback joins ranks of one process, shm processes of one host, verbs ranks with RDMA ports in "
      "one subnet, tcp any two{}",
      setting, a, ranks[a].host_name, ranks[a].pid, b, ranks[b].host_name, ranks[b].pid, ports);
}

}  // namespace

Result<std::vector<std::string>> choose_transports(const TransportCatalog& catalog,
                                                   std::string_view setting, std::uint32_t rank,
                                                   std::span<const HostIdentity> ranks,
                                                   const UnusableWays& unusable) {
  std::vector<std::string> names(ranks.size());
  for (std::uint32_t a = 0; a < ranks.size(); ++a) {
    for (std::uint32_t b = a + 1; b < ranks.size(); ++b) {
      RCN_TRY(check_ports(setting, ranks, a, b));
      const std::string_view name = transport_for(catalog, setting, ranks, a, b, unusable);
      if (name.empty()) return no_transport(setting, ranks, a, b);
      if (a == rank) names[b] = name;
      if (b == rank) names[a] = name;
    }
  }
  names[rank] = "self";
  return names;
}

bool has_other_way(const TransportCatalog& catalog, std::string_view setting,
                   std::span<const HostIdentity> ranks, std::uint32_t a, std::uint32_t b, const char* name,
                   UnusableWays unusable) {
  unusable.emplace(std::min(a, b), std::max(a, b), name);
  return !transport_for(catalog, setting, ranks, a, b, unusable).empty();
}

std::uint32_t most_rails(std::string_view setting, std::span<const HostIdentity> ranks) {
  if (setting != "verbs" && ranks_on_host(0, ranks) == ranks.size()) return 1;
  std::size_t most = 1;
  for (const HostIdentity& identity : ranks) most = std::max(most, identity.ports.size());
  return static_cast<std::uint32_t>(std::min<std::size_t>(most, fabric::kMostRails));
}

bool software_rails(std::span<const HostIdentity> ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [](const HostIdentity& rank) {
    return !rank.ports.empty() && std::all_of(rank.ports.begin(), rank.ports.end(),
                                              [](const fabric::Port& port) { return port.software; });
  });
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
