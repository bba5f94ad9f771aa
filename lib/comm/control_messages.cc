// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/control_messages.h"

#include "lib/comm/control.h"
#include "lib/net/socket.h"
#include "lib/net/wire.h"

namespace rocenante {

std::string encode_blob(const BlobPart& part) {
  net::WireWriter writer;
  writer.integer(part.round).integer(part.rank).raw(part.bytes);
  return writer.take();
}

std::optional<BlobPart> decode_blob(std::string_view body) {
  net::WireReader reader(body);
  BlobPart part;
  part.round = reader.integer<std::uint32_t>();
  part.rank = reader.integer<std::uint32_t>();
  part.bytes = reader.rest();
  if (!reader.complete()) return std::nullopt;
  return part;
}

std::string encode_abort(const AbortNotice& notice) {
  net::WireWriter writer;
  writer.integer(notice.from).integer(notice.word);
  writer.string(std::string_view(notice.text).substr(0, kLongestControlText));
  return writer.take();
}

std::optional<AbortNotice> decode_abort(std::string_view body) {
  net::WireReader reader(body);
  AbortNotice notice;
  notice.from = reader.integer<std::uint32_t>();
  notice.word = reader.integer<std::uint64_t>();
  notice.text = reader.string(kLongestControlText);
  if (!reader.complete()) return std::nullopt;
  return notice;
}

std::string encode_gone(const GoneNotice& notice) {
  net::WireWriter writer;
  writer.integer(notice.rank).string(std::string_view(notice.how).substr(0, kLongestControlText));
  return writer.take();
}

std::optional<GoneNotice> decode_gone(std::string_view body) {
  net::WireReader reader(body);
  GoneNotice notice;
  notice.rank = reader.integer<std::uint32_t>();
  notice.how = reader.string(kLongestControlText);
  if (!reader.complete()) return std::nullopt;
  return notice;
}

std::string encode_left(std::uint32_t rank) {
  net::WireWriter writer;
  writer.integer(rank);
  return writer.take();
}

std::optional<std::uint32_t> decode_left(std::string_view body) {
  net::WireReader reader(body);
  const auto rank = reader.integer<std::uint32_t>();
  if (!reader.complete()) return std::nullopt;
  return rank;
}

std::string encode_heard(const std::vector<bool>& heard) {
  std::string bits((heard.size() + 7) / 8, '\0');
  for (std::size_t i = 0; i < heard.size(); ++i) {
    if (heard[i]) bits[i / 8] = static_cast<char>(static_cast<unsigned char>(bits[i / 8]) | 1U << (i % 8));
  }
  return bits;
}

std::optional<std::vector<bool>> decode_heard(std::string_view body, std::uint32_t nranks) {
  if (body.size() != (std::size_t{nranks} + 7) / 8) return std::nullopt;
  std::vector<bool> heard(nranks);
  for (std::size_t i = 0; i < nranks; ++i) {
    heard[i] = (static_cast<unsigned char>(body[i / 8]) >> (i % 8) & 1) != 0;
  }
  return heard;
}

std::string control_frame(ControlMessage type, std::string_view body) {
  return net::encode_frame(static_cast<std::uint16_t>(type), body);
}

}  // namespace rocenante
