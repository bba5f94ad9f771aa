// SPDX-License-Identifier: Apache-2.0
//
// The frame parser of data connections. The first byte says how the rest is cut and how far the rank itself
// is; whatever comes, the parser writes where it may and its epochs only count.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "transports/tcp/frame.h"

using rocenante::protocol::SignalLine;
using rocenante::tcp::FrameStream;
using rocenante::tcp::Inlet;

namespace {

constexpr std::uint64_t kSlotBytes = 20000;

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  // Of exactly the slots' size, so that AddressSanitizer stands guard.
  const auto even = std::make_unique<unsigned char[]>(kSlotBytes);
  const auto odd = std::make_unique<unsigned char[]>(kSlotBytes);
  std::array<SignalLine, 2> lines{};
  Inlet inlet{{even.get(), odd.get()}, {lines.data(), lines.data() + 1}, kSlotBytes};
  FrameStream stream(1, inlet);

  const std::size_t piece = std::size_t{1} << (data[0] & 15);
  std::uint64_t own_epoch = data[0] >> 6;
  ++data;
  --size;
  while (size != 0) {
    const std::span<std::byte> room = stream.room();
    require(!room.empty());
    const std::size_t count = std::min({size, piece, room.size()});
    std::memcpy(room.data(), data, count);
    data += count;
    size -= count;
    const std::uint64_t before = stream.completed();
    const bool ok = stream.received(count, own_epoch).ok();
    const std::uint64_t after = stream.completed();
    require(after >= before && after <= own_epoch + 1);
    require(after == 0 || lines[after % 2].epoch == after);
    if (!ok) return 0;
    own_epoch += after > before && (data[-1] & 1) != 0;
  }
  return 0;
}
