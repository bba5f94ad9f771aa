// SPDX-License-Identifier: Apache-2.0
//
// What ranks and the root say to each other after the handshake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.h"
#include "lib/comm/rendezvous.h"

namespace rocenante {

inline constexpr std::string_view kJoinPurpose = "join";
inline constexpr std::uint16_t kRendezvousVersion = 2;
inline constexpr std::size_t kLongestJoin = 64 * 1024;
inline constexpr std::size_t kSessionNonceBytes = 32;

enum class RootMessage : std::uint16_t {
  kJoin = 1,     // rank -> root: JoinMessage
  kWelcome = 2,  // root -> rank: Welcome
  kFailure = 3,  // either: a Status; from a rank: why it cannot connect
  kDone = 4,     // rank -> root: connected
};

struct JoinMessage {
  std::string version;  // of protocol and build; equal on all ranks
  std::uint32_t rank = 0;
  std::uint32_t nranks = 0;
  std::string agreed_settings;
  std::string host;
  std::uint32_t pid = 0;
  net::SocketAddress control;
  std::uint64_t patience_ns = ~std::uint64_t{0};  // how long it will wait for the others

  // "rank 3 (host:pid)"
  std::string who() const;
};
std::string encode_join(const JoinMessage& message);
std::optional<JoinMessage> decode_join(std::string_view body);

struct Welcome {
  net::SocketAddress control;
  std::array<std::byte, kSessionNonceBytes> nonce{};
};
std::string encode_welcome(const Welcome& welcome);
std::optional<Welcome> decode_welcome(std::string_view body);

// For RootMessage::kFailure and its like on the control star. Texts beyond `longest` bytes are cut.
std::string encode_status(const Status& status, std::size_t longest = 8192);
// Never success: unknown codes become InternalError.
std::optional<Status> decode_status(std::string_view body);

// What this library is, as compared between ranks.
std::string build_version();

// "rank 2", "ranks 2, 5, 7"; long lists are shortened.
std::string rank_list(std::span<const std::uint32_t> ranks);

// The first difference of two texts of agreed settings: its name and both values.
struct SettingDifference {
  std::string name;
  std::string first;
  std::string second;
};
std::optional<SettingDifference> first_difference(std::string_view first, std::string_view second);

}  // namespace rocenante
