// SPDX-License-Identifier: Apache-2.0
//
// Which transport reaches which peer: a pure function of what all ranks know of each other, so that all
// decide alike (protocol rule 7).
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "transports/transport.h"

namespace rocenante {

// Pairs of ranks, the lower first, with a transport that should have connected them and could not.
using UnusableWays = std::set<std::tuple<std::uint32_t, std::uint32_t, std::string>>;

// The name of the transport to each peer, in rank order; "self" for the own rank. `setting` is
// ROCENANTE_TRANSPORT. The error names the first pair, over all ranks, that nothing can connect.
Result<std::vector<std::string>> choose_transports(const TransportCatalog& catalog,
                                                   std::string_view setting, std::uint32_t rank,
                                                   std::span<const HostIdentity> ranks,
                                                   const UnusableWays& unusable = {});

// Whether something else would be tried for the pair without the transport `name`.
bool has_other_way(const TransportCatalog& catalog, std::string_view setting,
                   std::span<const HostIdentity> ranks, std::uint32_t a, std::uint32_t b, const char* name,
                   UnusableWays unusable);

// The most rails that any two of the ranks may have, at least 1: the same on all ranks, also on those that
// have none, since it decides where everybody's signals lie.
std::uint32_t most_rails(std::string_view setting, std::span<const HostIdentity> ranks);

// Whether every rank has RDMA ports and all of them are software.
bool software_rails(std::span<const HostIdentity> ranks);

// Ranks on the same host as `rank`, itself included.
std::uint32_t ranks_on_host(std::uint32_t rank, std::span<const HostIdentity> ranks);

// Processors that the ranks on the host of `rank` may run on, together; at least 1.
std::uint32_t processors_on_host(std::uint32_t rank, std::span<const HostIdentity> ranks);

}  // namespace rocenante
