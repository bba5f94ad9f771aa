// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/frame.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace rocenante::tcp {
namespace {

constexpr std::uint64_t kMagic = 0x3130'7475'706e'6372;  // "rcnput01" in memory
// A message of 16 KiB comes by one read; the copy out of the cache costs less than a second read would.
constexpr std::size_t kStashBytes = 16 * 1024 + kHeaderBytes;

std::uint64_t little_endian(std::uint64_t value) {
  if constexpr (std::endian::native == std::endian::big) return __builtin_bswap64(value);
  return value;
}

}  // namespace

void encode_header(const FrameHeader& header, std::span<std::byte, kHeaderBytes> bytes) {
  const std::uint64_t words[] = {little_endian(kMagic), little_endian(header.bytes),
                                 little_endian(header.epoch), little_endian(header.tag)};
  static_assert(sizeof words == kHeaderBytes);
  std::memcpy(bytes.data(), words, sizeof words);
}

std::optional<FrameHeader> decode_header(std::span<const std::byte, kHeaderBytes> bytes) {
  std::uint64_t words[kHeaderBytes / sizeof(std::uint64_t)];
  std::memcpy(words, bytes.data(), sizeof words);
  if (little_endian(words[0]) != kMagic) return std::nullopt;
  return FrameHeader{little_endian(words[1]), little_endian(words[2]), little_endian(words[3])};
}

FrameStream::FrameStream(std::uint32_t peer, const Inlet& inlet)
    : peer_(peer), inlet_(inlet), stash_(std::make_unique<std::byte[]>(kStashBytes)) {}

std::span<std::byte> FrameStream::room() {
  if (!in_frame_) return {stash_.get() + stashed_, kStashBytes - stashed_};
  auto* const slot = reinterpret_cast<std::byte*>(inlet_.slot[header_.epoch % protocol::kParities]);
  return {slot + filled_, header_.bytes - filled_};
}

Status FrameStream::received(std::size_t bytes, std::uint64_t own_epoch) {
  if (in_frame_) {
    filled_ += bytes;
    if (filled_ == header_.bytes) finish_frame();
    return {};
  }
  stashed_ += bytes;
  std::size_t taken = 0;
  while (stashed_ - taken >= kHeaderBytes) {
    const std::byte* const front = stash_.get() + taken;
    const auto header = decode_header(std::span<const std::byte, kHeaderBytes>(front, kHeaderBytes));
    if (!header) {
      return make_error(Code::kRemoteError, "tcp: rank {} sent bytes that are no frame", peer_);
    }
    header_ = *header;
    RCN_TRY(take_header(own_epoch));
    taken += kHeaderBytes;
    const std::size_t here = std::min<std::uint64_t>(header_.bytes, stashed_ - taken);
    if (here != 0) {
      std::memcpy(inlet_.slot[header_.epoch % protocol::kParities], stash_.get() + taken, here);
    }
    taken += here;
    filled_ = here;
    if (filled_ == header_.bytes) {
      finish_frame();
    } else {
      in_frame_ = true;  // and the stash is used up
      break;
    }
  }
  stashed_ -= taken;
  if (taken != 0 && stashed_ != 0) std::memmove(stash_.get(), stash_.get() + taken, stashed_);
  return {};
}

// Nothing the peer says decides where bytes go but what is checked here.
Status FrameStream::take_header(std::uint64_t own_epoch) {
  if (header_.epoch != completed_ + 1 || header_.epoch > own_epoch + 1) {
    return make_error(Code::kRemoteError,
                      "tcp: rank {} sent a frame of epoch {}, expected {} and at most {}", peer_,
                      header_.epoch, completed_ + 1, own_epoch + 1);
  }
  if (header_.bytes > inlet_.slot_bytes) {
    return make_error(Code::kRemoteError,
                      "tcp: rank {} sent a frame of {} bytes in epoch {}: a slot holds {}", peer_,
                      header_.bytes, header_.epoch, inlet_.slot_bytes);
  }
  return {};
}

void FrameStream::finish_frame() {
  protocol::SignalLine* const line = inlet_.line[header_.epoch % protocol::kParities];
  __atomic_store_n(&line->tag, header_.tag, __ATOMIC_RELAXED);
  // Release: whoever sees the signal sees payload and tag.
  __atomic_store_n(&line->epoch, header_.epoch, __ATOMIC_RELEASE);
  completed_ = header_.epoch;
  in_frame_ = false;
}

std::uint64_t FrameStream::received_of(std::uint64_t epoch) const {
  if (completed_ >= epoch) return std::numeric_limits<std::uint64_t>::max();
  return in_frame_ && header_.epoch == epoch ? filled_ : 0;
}

}  // namespace rocenante::tcp
