// SPDX-License-Identifier: Apache-2.0
//
// What ranks say to each other on the control star, after the handshake with purpose "control".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rocenante {

inline constexpr std::string_view kControlPurpose = "control";

enum class ControlMessage : std::uint16_t {
  // Initialisation.
  kReady = 1,     // 0 -> rank: all are connected
  kBlob = 2,      // rank -> 0: BlobPart
  kGathered = 3,  // 0 -> rank: BlobPart, one for every rank
  kFailure = 4,   // 0 -> rank: a status; the initialisation is over
  // Afterwards.
  kHeartbeat = 5,  // rank -> 0: nothing; 0 -> rank: a bit for every rank heard since the last one
  kAbort = 6,      // either: AbortNotice
  kLeft = 7,       // either: a rank said goodbye: its own number from a rank, anyone's from 0
  kGone = 8,       // 0 -> rank: GoneNotice
};

// Bodies longer than this are malformed once events have begun.
inline constexpr std::size_t kLongestNotice = 4096;
// The fields in front of a blob.
inline constexpr std::size_t kBlobHeaderBytes = 8;

// One rank's blob of the round-th all_gather.
struct BlobPart {
  std::uint32_t round = 0;
  std::uint32_t rank = 0;
  std::string_view bytes;
};
std::string encode_blob(const BlobPart& part);
// Views `body`.
std::optional<BlobPart> decode_blob(std::string_view body);

struct AbortNotice {
  std::uint32_t from = 0;
  std::uint64_t word = 0;
  std::string text;
};
std::string encode_abort(const AbortNotice& notice);
std::optional<AbortNotice> decode_abort(std::string_view body);

struct GoneNotice {
  std::uint32_t rank = 0;
  std::string how;
};
std::string encode_gone(const GoneNotice& notice);
std::optional<GoneNotice> decode_gone(std::string_view body);

std::string encode_left(std::uint32_t rank);
std::optional<std::uint32_t> decode_left(std::string_view body);

std::string encode_heard(const std::vector<bool>& heard);
std::optional<std::vector<bool>> decode_heard(std::string_view body, std::uint32_t nranks);

// A whole frame.
std::string control_frame(ControlMessage type, std::string_view body);

}  // namespace rocenante
