// SPDX-License-Identifier: Apache-2.0
//
// The parser of data connections, fed in every way a stream may arrive.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "transports/tcp/frame.h"

namespace {

using rocenante::Code;
using rocenante::Status;
using rocenante::protocol::SignalLine;
using rocenante::tcp::decode_header;
using rocenante::tcp::encode_header;
using rocenante::tcp::FrameHeader;
using rocenante::tcp::FrameStream;
using rocenante::tcp::Inlet;
using rocenante::tcp::kHeaderBytes;

constexpr std::uint64_t kSlotBytes = 50'000;
constexpr std::size_t kGuardBytes = 64;
constexpr unsigned char kGuard = 0xa5;

// An inbox for one peer, with guards around its slots.
struct Inbox {
  Inbox() {
    for (std::size_t parity = 0; parity < 2; ++parity) {
      slots[parity].assign(kSlotBytes + 2 * kGuardBytes, kGuard);
      inlet.slot[parity] = slots[parity].data() + kGuardBytes;
      inlet.line[parity] = &lines[parity];
    }
    inlet.slot_bytes = kSlotBytes;
  }
  bool is_intact() const {
    return std::all_of(slots.begin(), slots.end(), [](const std::vector<unsigned char>& slot) {
      return std::all_of(slot.begin(), slot.begin() + kGuardBytes, [](auto b) { return b == kGuard; }) &&
             std::all_of(slot.end() - kGuardBytes, slot.end(), [](auto b) { return b == kGuard; });
    });
  }
  std::array<std::vector<unsigned char>, 2> slots;
  std::array<SignalLine, 2> lines{};
  Inlet inlet;
};

std::string payload_of(std::uint64_t epoch, std::size_t bytes) {
  std::mt19937_64 random(epoch);
  std::string payload(bytes, '\0');
  for (char& byte : payload) byte = static_cast<char>(random());
  return payload;
}

std::string frame(std::uint64_t epoch, std::uint64_t tag, std::string_view payload) {
  std::array<std::byte, kHeaderBytes> header;
  encode_header({payload.size(), epoch, tag}, header);
  std::string bytes(reinterpret_cast<const char*>(header.data()), header.size());
  return bytes.append(payload);
}

bool contains(std::string_view whole, std::string_view part) {
  return whole.find(part) != std::string_view::npos;
}

// As a socket does, but `piece` bytes at most at a time.
Status feed(FrameStream& stream, std::string_view bytes, std::size_t piece, std::uint64_t own_epoch) {
  while (!bytes.empty()) {
    const std::span<std::byte> room = stream.room();
    REQUIRE(!room.empty());
    const std::size_t count = std::min({bytes.size(), piece, room.size()});
    std::memcpy(room.data(), bytes.data(), count);
    bytes.remove_prefix(count);
    if (Status status = stream.received(count, own_epoch); !status.ok()) return status;
  }
  return {};
}

std::string slot_text(const Inbox& inbox, std::uint64_t epoch, std::size_t bytes) {
  return {reinterpret_cast<const char*>(inbox.inlet.slot[epoch % 2]), bytes};
}

std::string refusal(std::string_view bytes, std::uint64_t own_epoch = 0) {
  Inbox inbox;
  FrameStream stream(3, inbox.inlet);
  const Status status = feed(stream, bytes, 7, own_epoch);
  CHECK(inbox.is_intact());
  CHECK(stream.completed() == 0);
  CHECK(inbox.lines[0].epoch + inbox.lines[1].epoch == 0);
  if (status.ok()) return "";
  CHECK(status.code() == Code::kRemoteError);
  return status.text();
}

}  // namespace

TEST_CASE("a header is what it was, and 32 bytes of anything else are none") {
  std::array<std::byte, kHeaderBytes> bytes;
  encode_header({0x0102030405060708, 0x1112131415161718, 0x2122232425262728}, bytes);
  // On the wire, whatever the machine: magic, then little-endian words.
  CHECK(std::memcmp(bytes.data(), "rcnput01\x08\x07\x06\x05\x04\x03\x02\x01\x18", 17) == 0);
  const auto header = decode_header(bytes);
  REQUIRE(header.has_value());
  CHECK(header->bytes == 0x0102030405060708);
  CHECK(header->epoch == 0x1112131415161718);
  CHECK(header->tag == 0x2122232425262728);
  for (std::size_t i = 0; i < 8; ++i) {
    auto broken = bytes;
    broken[i] ^= std::byte{1};
    CHECK_FALSE(decode_header(broken).has_value());
  }
}

TEST_CASE("frames of every size arrive whole, however the stream is cut") {
  const std::size_t piece = GENERATE(1u, 31u, 32u, 33u, 1000u, 16416u, 1000000u);
  const std::size_t largest = piece < 100 ? 3000u : kSlotBytes;
  INFO("pieces of " << piece);
  Inbox inbox;
  FrameStream stream(0, inbox.inlet);
  std::uint64_t epoch = 0;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{8}, std::size_t{112},
                                  std::size_t{113}, std::size_t{16383}, std::size_t{16384},
                                  std::size_t{16385}, std::size_t{0}, std::size_t{kSlotBytes}}) {
    if (bytes > largest) continue;
    ++epoch;
    const std::string payload = payload_of(epoch, bytes);
    REQUIRE(feed(stream, frame(epoch, epoch + 100, payload), piece, epoch).ok());
    REQUIRE(stream.completed() == epoch);
    CHECK_FALSE(stream.is_inside_frame());
    CHECK(inbox.lines[epoch % 2].epoch == epoch);
    CHECK(inbox.lines[epoch % 2].tag == epoch + 100);
    CHECK(slot_text(inbox, epoch, bytes) == payload);
  }
  CHECK(inbox.is_intact());
}

TEST_CASE("a peer one round ahead fills the other parity by the same read") {
  Inbox inbox;
  FrameStream stream(0, inbox.inlet);
  const std::string first = payload_of(1, 40), second = payload_of(2, 50);
  REQUIRE(feed(stream, frame(1, 7, first) + frame(2, 8, second), 1000, 1).ok());
  CHECK(stream.completed() == 2);
  CHECK(slot_text(inbox, 1, 40) == first);
  CHECK(slot_text(inbox, 2, 50) == second);
}

TEST_CASE("the signal is raised by the last byte, not before") {
  Inbox inbox;
  FrameStream stream(0, inbox.inlet);
  const std::string bytes = frame(1, 7, payload_of(1, 20000));
  REQUIRE(feed(stream, std::string_view(bytes).substr(0, bytes.size() - 1), 5000, 1).ok());
  CHECK(inbox.lines[1].epoch == 0);
  CHECK(stream.is_inside_frame());
  CHECK(stream.received_of(1) == 19999);
  CHECK(stream.received_of(2) == 0);
  REQUIRE(feed(stream, std::string_view(bytes).substr(bytes.size() - 1), 1, 1).ok());
  CHECK(inbox.lines[1].epoch == 1);
  CHECK(stream.received_of(1) > kSlotBytes);
}

TEST_CASE("what may not come is refused by name, and nothing is written") {
  CHECK(contains(refusal(std::string(32, 'x')), "rank 3 sent bytes that are no frame"));
  CHECK(contains(refusal(frame(0, 1, "")), "rank 3 sent a frame of epoch 0, expected 1"));
  CHECK(contains(refusal(frame(2, 1, ""), 5), "epoch 2, expected 1 and at most 6"));
  CHECK(contains(refusal(frame(~std::uint64_t{0}, 1, "")), "epoch 18446744073709551615, expected 1"));
  std::array<std::byte, kHeaderBytes> header;
  for (const std::uint64_t bytes : {kSlotBytes + 1, ~std::uint64_t{0}}) {
    encode_header({bytes, 1, 1}, header);
    CHECK(contains(refusal({reinterpret_cast<const char*>(header.data()), header.size()}),
                   "a slot holds 50000"));
  }
}

TEST_CASE("a peer two rounds ahead is refused: its slot may still be read") {
  Inbox inbox;
  FrameStream stream(3, inbox.inlet);
  REQUIRE(feed(stream, frame(1, 7, payload_of(1, 40)), 1000, 0).ok());
  const Status status = feed(stream, frame(2, 8, payload_of(2, 40)), 1000, 0);
  REQUIRE_FALSE(status.ok());
  CHECK(status.text().find("epoch 2, expected 2 and at most 1") != std::string::npos);
  CHECK(stream.completed() == 1);
}

TEST_CASE("a damaged frame behind a good one leaves the good one as it was") {
  Inbox inbox;
  FrameStream stream(3, inbox.inlet);
  const std::string good = payload_of(1, 40);
  REQUIRE_FALSE(feed(stream, frame(1, 7, good) + std::string(40, 'x'), 1000, 1).ok());
  CHECK(stream.completed() == 1);
  CHECK(slot_text(inbox, 1, 40) == good);
  CHECK(inbox.is_intact());
}
