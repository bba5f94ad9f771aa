// SPDX-License-Identifier: Apache-2.0
//
// Where everything lies in a communicator's memory. The only place that knows: host, device, transports and
// the interleaving model all ask here.
//
// A lane has two shareable regions:
//   inbox   the only remotely writable memory: one wake line, then signal[parity][source][rail], then
//           recv[parity][i], a slot for each source whose send slots cannot be mapped here
//   outbox  send[parity]: read by the NIC locally and mapped read-only by peers on the same host
//
// Before each slot stands the tag of the call it belongs to, in the last word of a page, so that a carrier
// can move tag and payload in one piece and slots stay page-aligned.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define RCN_HD __host__ __device__
#else
#define RCN_HD
#endif

namespace rocenante::protocol {

// What ranks of one communicator must agree on although no setting says it: the layout, the rounds, and
// when `auto` takes which. Higher after every change.
inline constexpr std::uint32_t kProtocolVersion = 3;

inline constexpr std::uint64_t kParities = 2;
inline constexpr std::uint64_t kLineBytes = 128;
inline constexpr std::uint64_t kInlineBytes = 112;
inline constexpr std::uint64_t kPageBytes = 4096;

// One source's signal for one parity. `epoch` is stored last, with release; what stands before it, and
// `tag`, is then visible to whoever acquires it. The payload is right-aligned, so that up to 32 bytes of
// it, the epoch and the tag share the second 64-byte cache line.
struct alignas(kLineBytes) SignalLine {
  unsigned char payload[kInlineBytes];
  std::uint64_t epoch;
  std::uint64_t tag;  // fingerprint of the call, where the transport carries it
};
static_assert(sizeof(SignalLine) == kLineBytes);

// What a sleeping rank is woken through: written by CPUs only.
struct alignas(kLineBytes) WakeLine {
  std::uint32_t sleeping;
  std::uint32_t sequence;
};
static_assert(sizeof(WakeLine) == kLineBytes);

// Offset of an inline payload of `bytes` in its line. 16-byte aligned.
RCN_HD constexpr std::uint64_t inline_offset(std::uint64_t bytes) {
  return kInlineBytes - ((bytes + 15) & ~std::uint64_t{15});
}

RCN_HD constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// The tag that stands before a slot.
inline constexpr std::uint64_t kSlotTagBytes = sizeof(std::uint64_t);
RCN_HD inline std::uint64_t* slot_tag(unsigned char* slot) {
  return reinterpret_cast<std::uint64_t*>(slot - kSlotTagBytes);
}

// A slot may hold a slice for each member, in their order, each with a tag before it: this far apart, so
// that all lie alike in their cache lines. What a slice needs beyond its payload is at most kSliceRoom.
inline constexpr std::uint64_t kSliceRoom = 128;
RCN_HD constexpr std::uint64_t slice_stride(std::uint64_t slice_bytes) {
  return round_up(slice_bytes + kSlotTagBytes, kLineBytes / 2);
}

// The bytes of a slice where `bytes` are shared among the members: a multiple of 16, so the last ones may
// be short or empty.
RCN_HD constexpr std::uint64_t slice_of(std::uint64_t bytes, std::uint32_t ranks) {
  return round_up((bytes + ranks - 1) / ranks, 16);
}

struct Geometry {
  std::uint32_t ranks = 1;
  std::uint32_t rails = 1;
  std::uint32_t received = 0;  // sources with receive slots
  std::uint64_t slot_bytes = 0;

  RCN_HD constexpr std::uint64_t slot_stride() const {
    return kPageBytes + round_up(slot_bytes, kPageBytes);
  }

  RCN_HD static constexpr std::uint64_t wake_offset() { return 0; }
  RCN_HD constexpr std::uint64_t signal_offset(std::uint64_t parity, std::uint32_t source,
                                               std::uint32_t rail) const {
    return kPageBytes + ((parity * ranks + source) * rails + rail) * kLineBytes;
  }
  RCN_HD constexpr std::uint64_t signals_end() const {
    return kPageBytes + round_up(kParities * ranks * rails * kLineBytes, kPageBytes);
  }
  // `index` counts the sources with receive slots below this one.
  RCN_HD constexpr std::uint64_t recv_offset(std::uint64_t parity, std::uint32_t index) const {
    return signals_end() + (parity * received + index) * slot_stride() + kPageBytes;
  }
  RCN_HD constexpr std::uint64_t inbox_bytes() const {
    return signals_end() + kParities * received * slot_stride();
  }

  // A send slot also holds `slot_bytes` in slices.
  RCN_HD constexpr std::uint64_t send_stride() const {
    return kPageBytes + round_up(slot_bytes + ranks * kSliceRoom, kPageBytes);
  }
  RCN_HD constexpr std::uint64_t send_offset(std::uint64_t parity) const {
    return parity * send_stride() + kPageBytes;
  }
  RCN_HD constexpr std::uint64_t outbox_bytes() const { return kParities * send_stride(); }
};

}  // namespace rocenante::protocol
