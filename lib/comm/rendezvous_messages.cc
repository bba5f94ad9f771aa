// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/rendezvous_messages.h"

#include <algorithm>
#include <array>

#include "include/rocenante/rocenante.h"
#include "lib/net/handshake.h"
#include "lib/net/wire.h"
#include "lib/protocol/layout.h"

namespace rocenante {
namespace {

constexpr std::size_t kLongestName = 256;
constexpr std::size_t kListedRanks = 16;

// Takes one "NAME=VALUE" line off the front.
std::pair<std::string_view, std::string_view> take_setting(std::string_view* text) {
  const std::size_t end = text->find('\n');
  const std::string_view line = text->substr(0, end);
  *text = end == std::string_view::npos ? std::string_view() : text->substr(end + 1);
  const std::size_t equals = line.find('=');
  return {line.substr(0, equals),
          equals == std::string_view::npos ? std::string_view() : line.substr(equals + 1)};
}

}  // namespace

std::string JoinMessage::who() const {
  return fmt::format("rank {} ({}:{})", rank, host, pid);
}

std::string encode_join(const JoinMessage& message) {
  net::WireWriter writer;
  writer.string(message.version).integer(message.rank).integer(message.nranks);
  writer.string(message.agreed_settings).string(message.host).integer(message.pid);
  net::append_address(message.control, &writer);
  writer.integer(message.patience_ns);
  return writer.take();
}

std::optional<JoinMessage> decode_join(std::string_view body) {
  net::WireReader reader(body);
  JoinMessage message;
  message.version = reader.string(kLongestName);
  message.rank = reader.integer<std::uint32_t>();
  message.nranks = reader.integer<std::uint32_t>();
  message.agreed_settings = reader.string(kLongestJoin);
  message.host = reader.string(kLongestName);
  message.pid = reader.integer<std::uint32_t>();
  message.control = net::read_address(&reader);
  message.patience_ns = reader.integer<std::uint64_t>();
  if (!reader.complete()) return std::nullopt;
  return message;
}

std::string encode_welcome(const Welcome& welcome) {
  net::WireWriter writer;
  net::append_address(welcome.control, &writer);
  writer.raw(std::span<const std::byte>(welcome.nonce));
  return writer.take();
}

std::optional<Welcome> decode_welcome(std::string_view body) {
  net::WireReader reader(body);
  Welcome welcome;
  welcome.control = net::read_address(&reader);
  const net::ByteSpan nonce = net::bytes_of(reader.raw(kSessionNonceBytes));
  if (!reader.complete() || welcome.control.port() == 0) return std::nullopt;
  std::copy(nonce.begin(), nonce.end(), welcome.nonce.begin());
  return welcome;
}

std::string encode_status(const Status& status, std::size_t longest) {
  net::WireWriter writer;
  writer.integer(static_cast<std::uint32_t>(status.code()));
  writer.string(std::string_view(status.text()).substr(0, longest));
  return writer.take();
}

std::optional<Status> decode_status(std::string_view body) {
  net::WireReader reader(body);
  const auto code = reader.integer<std::uint32_t>();
  const std::string_view text = reader.string(body.size());
  if (!reader.complete()) return std::nullopt;
  const bool is_known = code >= static_cast<std::uint32_t>(Code::kUnhandledCudaError) &&
                        code <= static_cast<std::uint32_t>(Code::kTimeout);
  return Status(is_known ? static_cast<Code>(code) : Code::kInternalError, std::string(text));
}

std::string build_version() {
  return fmt::format("{}.{}.{} rendezvous {} handshake {} protocol {}", RCN_MAJOR, RCN_MINOR, RCN_PATCH,
                     kRendezvousVersion, net::kHandshakeVersion, protocol::kProtocolVersion);
}

std::string rank_list(std::span<const std::uint32_t> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t listed = std::min(ranks.size(), kListedRanks);
  for (std::size_t i = 0; i < listed; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  }
  if (listed < ranks.size()) text += fmt::format(" and {} more", ranks.size() - listed);
  return text;
}

std::optional<SettingDifference> first_difference(std::string_view first, std::string_view second) {
  while (!first.empty() || !second.empty()) {
    const auto [first_name, first_value] = take_setting(&first);
    const auto [second_name, second_value] = take_setting(&second);
    if (first_name != second_name) {
      return SettingDifference{std::string(first_name.empty() ? second_name : first_name),
                               std::string(first_name.empty() ? "(not known there)" : first_value),
                               std::string(first_name.empty() ? second_value : "(not known there)")};
    }
    if (first_value != second_value) {
      return SettingDifference{std::string(first_name), std::string(first_value),
                               std::string(second_value)};
    }
  }
  return std::nullopt;
}

}  // namespace rocenante
