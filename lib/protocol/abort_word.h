// SPDX-License-Identifier: Apache-2.0
//
// The abort word: reason 8 bits, peer 16, epoch 40. Zero means none. Each side (host, device) owns one and
// is its only read-modify-writer; the other side gets a mirror by a plain release store.
#pragma once

#include <cstdint>

#include "lib/protocol/layout.h"

namespace rocenante::protocol {

enum class AbortReason : std::uint8_t {
  kNone = 0,
  kExplicit = 1,   // somebody called abort
  kPeerGone = 2,   // a process ended or left while needed
  kDeadline = 3,   // a living peer did not come in time
  kSuspect = 4,    // no heartbeat and no progress
  kTransport = 5,  // a completion error
  kMismatch = 6,   // ranks called different collectives, counts, types or operators
  kRemote = 7,     // a peer told us its own first cause
  kOverrun = 8,    // a doorbell entry was overwritten: a bug
  kClosed = 9,     // the communicator was destroyed while a graph still holds it
  kDevice = 10,    // a device refused a launch, or has failed itself
};

inline constexpr std::uint32_t kNoPeer = 0xffff;
inline constexpr std::uint64_t kEpochMask = (std::uint64_t{1} << 40) - 1;

struct AbortCause {
  AbortReason reason;
  std::uint32_t peer;
  std::uint64_t epoch;  // low 40 bits
};

RCN_HD constexpr std::uint64_t pack_abort(AbortCause cause) {
  return (static_cast<std::uint64_t>(cause.reason) << 56) |
         (static_cast<std::uint64_t>(cause.peer & 0xffff) << 40) | (cause.epoch & kEpochMask);
}

RCN_HD constexpr AbortCause unpack_abort(std::uint64_t word) {
  return {static_cast<AbortReason>(word >> 56), static_cast<std::uint32_t>((word >> 40) & 0xffff),
          word & kEpochMask};
}

}  // namespace rocenante::protocol
