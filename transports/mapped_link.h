// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "lib/protocol/round.h"

namespace rocenante {

// The link to a peer whose inbox and outbox are mapped here. `geometry` is the same on both sides (agreed
// settings).
inline protocol::PeerLink mapped_link(const protocol::Geometry& geometry, std::uint32_t rank,
                                      std::uint32_t peer, unsigned char* own_inbox,
                                      unsigned char* peer_inbox, const unsigned char* peer_outbox) {
  protocol::PeerLink link{};
  for (std::uint64_t parity = 0; parity < protocol::kParities; ++parity) {
    link.outbound[parity] =
        reinterpret_cast<protocol::SignalLine*>(peer_inbox + geometry.signal_offset(parity, rank, 0));
    link.inbound[parity] =
        reinterpret_cast<const protocol::SignalLine*>(own_inbox + geometry.signal_offset(parity, peer, 0));
    link.source[parity] = peer_outbox + geometry.send_offset(parity);
  }
  link.wake = reinterpret_cast<protocol::WakeLine*>(peer_inbox + protocol::Geometry::wake_offset());
  return link;
}

}  // namespace rocenante
