// SPDX-License-Identifier: Apache-2.0
//
// The 128 bytes that name a communicator to be: where its ranks meet, and the secret that admits them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "lib/base/config.h"
#include "lib/base/status.h"
#include "lib/net/crypto.h"
#include "lib/net/socket.h"

namespace rocenante {

inline constexpr std::size_t kUniqueIdBytes = 128;
// Everything of ours stands in the tail, so that it also fits behind another library's id, whose own bytes
// come first and whose tail is zero.
inline constexpr std::size_t kUniqueIdPayloadOffset = 40;
inline constexpr std::size_t kUniqueIdPayloadBytes = kUniqueIdBytes - kUniqueIdPayloadOffset;

// As in the C API: plain bytes.
struct UniqueId {
  std::array<std::byte, kUniqueIdBytes> bytes{};
};
static_assert(sizeof(UniqueId) == kUniqueIdBytes);

struct UniqueIdContents {
  net::SocketAddress rendezvous;
  net::SecretKey secret;
  std::uint64_t number = 0;
  // The rendezvous was listening when the id was made; otherwise it may start after the first ranks.
  bool is_listening = false;
  // There is no secret, only an address: all connections of its communicators must stay on loopback.
  bool is_local_only = false;
};

UniqueId encode_unique_id(const UniqueIdContents& contents);
// InvalidArgument when the id was damaged, not made by this library, or made by another version of it.
Result<UniqueIdContents> decode_unique_id(const UniqueId& id);

// The same for the tail alone.
void encode_unique_id_payload(const UniqueIdContents& contents,
                              std::span<std::byte, kUniqueIdPayloadBytes> payload);
Result<UniqueIdContents> decode_unique_id_payload(
    std::span<const std::byte, kUniqueIdPayloadBytes> payload);

// Makes a fresh id with a random secret and starts its rendezvous in this process, on the interface that
// the configuration chooses. InvalidArgument when no interface matches, SystemError.
Result<UniqueId> create_unique_id(const Config& config);

// The same for a communicator made out of another, whose key all its ranks share: they are told of the id
// by an offer, which admits nobody who lacks that key, so that no secret goes over the parent's
// connections.
inline constexpr std::size_t kChildOfferBytes = net::kAddressWireBytes + 8;
using ChildOffer = std::array<std::byte, kChildOfferBytes>;
Result<UniqueId> create_child_id(const Config& config, const net::SecretKey& parent);
// InvalidArgument when the id is none.
Result<ChildOffer> offer_of(const UniqueId& id);
UniqueId accept_offer(const ChildOffer& offer, const net::SecretKey& parent);

// The id of "HOST:PORT" and the configured secret; the same on every rank that has both. `serve` also
// starts the rendezvous there: exactly one process does. Where `address` is a host name and there is a
// secret, the rendezvous listens on every interface, because a name often resolves to another address on
// its own host. InvalidArgument: bad address, port 0. InvalidUsage: ROCENANTE_SECRET and
// ROCENANTE_SECRET_FILE both set, an unreadable or empty file, or no secret and an address that is not
// loopback. SystemError: the name cannot be resolved or the address not be listened on.
Result<UniqueId> unique_id_at(std::string_view address, bool serve, const Config& config);

}  // namespace rocenante
