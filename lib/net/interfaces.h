// SPDX-License-Identifier: Apache-2.0
//
// Which network interface the control and data connections use.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/config.h"
#include "lib/base/status.h"
#include "lib/net/socket.h"

namespace rocenante::net {

// One address of one interface; an interface with several addresses appears several times.
struct Interface {
  std::string name;
  SocketAddress address;  // port 0
  bool is_up = false;
  bool is_loopback = false;
  std::optional<std::uint32_t> prefix_length{};  // of the address's subnet, in bits
};

// Those the system has, in its order. SystemError.
Result<std::vector<Interface>> list_interfaces();

// Picks by NCCL's rules. `pattern` is the value of NCCL_SOCKET_IFNAME: a comma-separated list of name
// prefixes; a leading '=' makes them whole names, a leading '^' means all but these ('^=' both); ":port"
// after a name is allowed and ignored. The first interface of the list that is up and matches is taken.
// Empty: the first that is up; docker and virbr bridges only when there is nothing else, loopback last.
// `family` is "any", "AF_INET" or "AF_INET6". Of one interface's addresses IPv4 is preferred, then those
// that are not link-local. InvalidArgument when nothing matches, listing what there is.
Result<Interface> choose_interface(std::span<const Interface> interfaces, std::string_view pattern,
                                   std::string_view family);

// AF_UNSPEC, AF_INET or AF_INET6 of a checked setting.
int family_number(std::string_view family);

// The interface that this configuration chooses among the system's.
Result<Interface> configured_interface(const Config& config);

// The scope of a link-local address means something on its own host only; the result has that of the
// interface that this configuration chooses here.
SocketAddress as_seen_from_here(const SocketAddress& address, const Config& config);

}  // namespace rocenante::net
