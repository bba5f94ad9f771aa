// SPDX-License-Identifier: Apache-2.0
//
// What travels on a data connection: for each round one frame, a header and the payload. Epochs count, so
// frames need no numbers of their own.
//
//   magic u64, payload bytes u64, epoch u64, tag u64; little-endian
//
// Nothing here touches a socket: bytes come in through room() and received(), so that the parser can be
// fed anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "lib/base/status.h"
#include "lib/protocol/layout.h"

namespace rocenante::tcp {

inline constexpr std::size_t kHeaderBytes = 32;

struct FrameHeader {
  std::uint64_t bytes = 0;  // of the payload
  std::uint64_t epoch = 0;
  std::uint64_t tag = 0;
};
void encode_header(const FrameHeader& header, std::span<std::byte, kHeaderBytes> bytes);
// Empty when the bytes do not begin a frame.
std::optional<FrameHeader> decode_header(std::span<const std::byte, kHeaderBytes> bytes);

// Where one peer's frames go in our inbox: by parity.
struct Inlet {
  unsigned char* slot[protocol::kParities] = {};
  protocol::SignalLine* line[protocol::kParities] = {};
  std::uint64_t slot_bytes = 0;
};

// Takes one peer's frames apart: payloads into their slots, then their signals.
class FrameStream {
 public:
  FrameStream(std::uint32_t peer, const Inlet& inlet);

  // Where the next bytes of the connection go; never empty. Large payloads go straight into their slot.
  std::span<std::byte> room();

  // `bytes` have been written to the front of room(). `own_epoch` is the newest epoch that this rank has
  // posted: a peer is at most one ahead of it, which is what keeps slots from being overwritten while they
  // are read. RemoteError naming the peer when the bytes are no frame, or one that may not come now.
  Status received(std::size_t bytes, std::uint64_t own_epoch);

  // Epoch of the last frame that is there to its end.
  std::uint64_t completed() const { return completed_; }
  // How much of the payload of `epoch` has come; all there can be once it is complete.
  std::uint64_t received_of(std::uint64_t epoch) const;
  // Bytes of an unfinished frame are here.
  bool is_inside_frame() const { return in_frame_ || stashed_ != 0; }

 private:
  Status take_header(std::uint64_t own_epoch);
  void finish_frame();

  const std::uint32_t peer_;
  const Inlet inlet_;
  // Small frames come through here whole, header and payload by one read.
  std::unique_ptr<std::byte[]> stash_;
  std::size_t stashed_ = 0;  // bytes at the front of stash_
  bool in_frame_ = false;
  FrameHeader header_;        // of the frame in progress
  std::uint64_t filled_ = 0;  // bytes of its payload in the slot
  std::uint64_t completed_ = 0;
};

}  // namespace rocenante::tcp
