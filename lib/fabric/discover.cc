// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lib/fabric/fabric.h"
#include "lib/fabric/hca_list.h"
#include "lib/fabric/sysfs.h"

namespace rocenante::fabric {
namespace {

constexpr std::string_view kRoceV2 = "RoCE v2";
constexpr std::uint32_t kLastIndex = 255;  // the last that verbs can name

bool is_link_local(const Gid& gid) {
  return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

// 169.254.0.0/16: the address that an interface gives itself, which says nothing of the cable it is on.
bool is_self_assigned(const Gid& gid) {
  return is_ipv4(gid) && gid[12] == 169 && gid[13] == 254;
}

// What of an interface's MTU is left for the payload of a packet, as the kernel counts it: 96 bytes of
// headers, then the next size that the protocol has.
std::uint32_t payload_of(std::uint32_t netdev_mtu) {
  for (const std::uint32_t size : {4096u, 2048u, 1024u, 512u, 256u}) {
    if (netdev_mtu >= size + 96) return size;
  }
  return 0;
}

std::string name_of(const PortFacts& facts) {
  return fmt::format("{}:{}", facts.device, facts.port);
}

std::string listing(const std::vector<GidEntry>& gids) {
  std::string text;
  for (const GidEntry& entry : gids) {
    text += fmt::format("{}{} {} ({})", text.empty() ? "" : ", ", entry.index, address_text(entry.gid),
                        entry.type.empty() ? "type unknown" : entry.type);
  }
  return text.empty() ? "none" : text;
}

// Whether a GID may be chosen.
bool suits(const GidEntry& entry, const Wanted& wanted) {
  return entry.type == kRoceV2 && is_ipv4(entry.gid) != wanted.ipv6 && !is_link_local(entry.gid);
}

// The GID to use, or why there is none.
Result<GidEntry> choose_gid(const PortFacts& facts, const Wanted& wanted) {
  const GidEntry* best = nullptr;
  for (const GidEntry& entry : facts.gids) {
    if (entry.index > kLastIndex) continue;
    if (wanted.gid_index >= 0) {
      if (entry.index != static_cast<std::uint32_t>(wanted.gid_index)) continue;
      if (!is_link_local(entry.gid)) return entry;
      return make_error(
          Code::kInvalidArgument,
          "GID {} (NCCL_IB_GID_INDEX / ROCENANTE_IB_GID_INDEX) is {}, which is link-local and is in no "
          "subnet; it has: {}",
          wanted.gid_index, address_text(entry.gid), listing(facts.gids));
    } else if (suits(entry, wanted) &&
               (best == nullptr || (is_self_assigned(best->gid) && !is_self_assigned(entry.gid)))) {
      best = &entry;
    }
  }
  if (best != nullptr) return *best;
  if (wanted.gid_index >= 0) {
    return make_error(Code::kInvalidArgument,
                      "GID {} (NCCL_IB_GID_INDEX / ROCENANTE_IB_GID_INDEX) is empty; it has: {}",
                      wanted.gid_index, listing(facts.gids));
  }
  return make_error(
      Code::kInvalidArgument,
      "no RoCE v2 GID with an {} address (ROCENANTE_IB_ADDR_FAMILY) that is not link-local: has its "
      "interface one? it has: {}",
      wanted.ipv6 ? "IPv6" : "IPv4", listing(facts.gids));
}

const InterfaceAddress* find_address(std::span<const InterfaceAddress> addresses, const GidEntry& gid) {
  const auto found = std::find_if(addresses.begin(), addresses.end(), [&](const InterfaceAddress& one) {
    return one.address == gid.gid && (gid.netdev.empty() || one.netdev == gid.netdev);
  });
  return found == addresses.end() ? nullptr : &*found;
}

Result<Port> usable(const std::string& sysfs, std::span<const InterfaceAddress> addresses,
                    const PortFacts& facts, const Wanted& wanted) {
  if (!facts.active) {
    return make_error(Code::kInvalidArgument,
                      "the port is not active (state '{}'): is the cable plugged in and the "
                      "interface up?",
                      facts.state);
  }
  if (facts.link_layer != "Ethernet") {
    return make_error(Code::kInvalidArgument, "its link layer is '{}': only RoCE (Ethernet) is supported",
                      facts.link_layer);
  }
  RCN_ASSIGN(const GidEntry gid, choose_gid(facts, wanted));
  const InterfaceAddress* const address = find_address(addresses, gid);
  if (address == nullptr) {
    return make_error(
        Code::kInvalidArgument,
        "its address {} is on no interface that this process sees ({}): its subnet is unknown; a "
        "container needs the host's network",
        address_text(gid.gid), gid.netdev.empty() ? "no interface named" : gid.netdev);
  }
  return Port{facts.device,
              facts.port,
              gid.index,
              gid.gid,
              address->prefix_length,
              address->netdev,
              payload_of(read_netdev_mtu(sysfs, address->netdev)),
              facts.rate,
              facts.numa_node,
              facts.processors,
              facts.software};
}

// Every entry of the list must give at least one port: the user has counted on it.
Status check_required(const HcaList& list, const std::vector<PortFacts>& all, const Fabric& found) {
  for (const HcaList::Entry& entry : list.required()) {
    std::string reasons;
    bool served = false;
    for (const PortFacts& facts : all) {
      if (!list.matches(entry, facts.device, facts.port)) continue;
      const auto skipped = std::find_if(found.skipped.begin(), found.skipped.end(),
                                        [&](const Skipped& one) { return one.name == name_of(facts); });
      served = served || skipped == found.skipped.end();
      if (skipped != found.skipped.end()) {
        reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", skipped->name, skipped->reason);
      }
    }
    if (served) continue;
    std::string names;
    for (const PortFacts& facts : all)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(facts));
    return make_error(Code::kInvalidArgument,
                      "NCCL_IB_HCA / ROCENANTE_IB_HCA lists '{}', which cannot be used: {}", entry.text,
                      reasons.empty() ? fmt::format("there is no such port; this host has {}",
                                                    names.empty() ? "none" : names)
                                      : reasons);
  }
  return {};
}

}  // namespace

Wanted Wanted::from(const Config& config) {
  return {config.text(Key::kIbHca), static_cast<std::int32_t>(config.real(Key::kIbGidIndex)),
          config.text(Key::kIbAddrFamily) == "AF_INET6"};
}

Result<Fabric> discover(const std::string& sysfs, std::span<const InterfaceAddress> addresses,
                        const Wanted& wanted) {
  RCN_ASSIGN(const HcaList list, HcaList::parse(wanted.hca));
  const std::vector<PortFacts> all = read_ports(sysfs);
  Fabric fabric;
  for (const PortFacts& facts : all) {
    if (!list.admits(facts.device, facts.port)) {
      fabric.skipped.push_back(
          {name_of(facts), fmt::format("NCCL_IB_HCA / ROCENANTE_IB_HCA '{}' leaves it out", wanted.hca)});
      continue;
    }
    Result<Port> port = usable(sysfs, addresses, facts, wanted);
    if (port.ok()) {
      fabric.ports.push_back(port.take());
    } else {
      fabric.skipped.push_back({name_of(facts), port.status().text()});
    }
  }
  RCN_TRY(check_required(list, all, fabric));
  return fabric;
}

}  // namespace rocenante::fabric
