// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lib/fabric/fabric.h"

namespace rocenante::fabric {

// The address with all bits after the first `prefix_length` zero.
inline Gid network_of(const Gid& address, std::uint32_t prefix_length) {
  Gid network{};
  for (std::uint32_t bit = 0; bit < prefix_length && bit < 128; ++bit) {
    const auto mask = static_cast<std::uint8_t>(0x80 >> (bit % 8));
    network[bit / 8] = static_cast<std::uint8_t>(network[bit / 8] | (address[bit / 8] & mask));
  }
  return network;
}

}  // namespace rocenante::fabric
