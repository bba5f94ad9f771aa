// SPDX-License-Identifier: Apache-2.0
#include "transports/verbs/blob.h"

#include <infiniband/verbs.h>

#include "lib/fabric/fabric.h"
#include "lib/net/wire.h"

namespace rocenante {
namespace {

constexpr std::uint16_t kVersion = 2;
constexpr std::uint32_t kPacketNumbers = 1u << 24;

bool decode_peer(net::WireReader* in, std::size_t adapters, std::uint32_t received,
                 VerbsBlob::PeerPart* peer) {
  peer->recv_index = in->integer<std::uint32_t>();
  const auto rails = in->integer<std::uint8_t>();
  if (rails > fabric::kMostRails || (rails != 0 && peer->recv_index >= received)) return false;
  for (std::uint32_t i = 0; i < rails; ++i) {
    VerbsBlob::RailPart rail;
    rail.adapter = in->integer<std::uint8_t>();
    rail.queue_pair = in->integer<std::uint32_t>();
    rail.mtu = in->integer<std::uint8_t>();
    if (rail.adapter >= adapters || rail.queue_pair >= kPacketNumbers) return false;
    if (rail.mtu < IBV_MTU_256 || rail.mtu > IBV_MTU_4096) return false;
    peer->rails.push_back(rail);
  }
  return true;
}

}  // namespace

std::string encode_blob(const VerbsBlob& blob) {
  net::WireWriter out;
  out.integer(kVersion).integer(blob.first_packet).integer(blob.received).integer(blob.inbox_bytes);
  out.integer(static_cast<std::uint8_t>(blob.in_device ? 1 : 0));
  out.integer(static_cast<std::uint8_t>(blob.adapters.size()));
  for (const VerbsBlob::AdapterPart& adapter : blob.adapters) {
    out.integer(adapter.rkey).integer(adapter.inbox);
    if (blob.in_device) out.integer(adapter.device_rkey).integer(adapter.device_inbox);
  }
  for (const VerbsBlob::PeerPart& peer : blob.peers) {
    out.integer(peer.recv_index).integer(static_cast<std::uint8_t>(peer.rails.size()));
    for (const VerbsBlob::RailPart& rail : peer.rails)
      out.integer(rail.adapter).integer(rail.queue_pair).integer(rail.mtu);
  }
  return out.take();
}

bool decode_blob(std::string_view bytes, std::uint32_t ranks, VerbsBlob* blob) {
  net::WireReader in(bytes);
  if (in.integer<std::uint16_t>() != kVersion) return false;
  blob->first_packet = in.integer<std::uint32_t>();
  blob->received = in.integer<std::uint32_t>();
  blob->inbox_bytes = in.integer<std::uint64_t>();
  if (blob->first_packet >= kPacketNumbers || blob->received > ranks) return false;
  const auto in_device = in.integer<std::uint8_t>();
  if (in_device > 1) return false;
  blob->in_device = in_device == 1;
  blob->adapters.resize(in.integer<std::uint8_t>());
  for (VerbsBlob::AdapterPart& adapter : blob->adapters) {
    adapter.rkey = in.integer<std::uint32_t>();
    adapter.inbox = in.integer<std::uint64_t>();
    if (!blob->in_device) continue;
    adapter.device_rkey = in.integer<std::uint32_t>();
    adapter.device_inbox = in.integer<std::uint64_t>();
  }
  blob->peers.resize(ranks);
  for (VerbsBlob::PeerPart& peer : blob->peers) {
    if (!decode_peer(&in, blob->adapters.size(), blob->received, &peer)) return false;
  }
  return in.complete();
}

}  // namespace rocenante
