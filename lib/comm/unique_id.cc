// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/unique_id.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "lib/base/handle.h"
#include "lib/comm/rendezvous.h"
#include "lib/net/interfaces.h"
#include "lib/net/wire.h"

namespace rocenante {
namespace {

constexpr std::string_view kMagic = "RCNUID\r\n";
constexpr std::uint8_t kVersion = 1;
constexpr unsigned kFlagListening = 1;
constexpr unsigned kFlagLocalOnly = 2;
// version u8, flags u8, zero u16, address, secret, number u64; the checksum fills the rest
constexpr std::size_t kCheckedBytes = 4 + net::kAddressWireBytes + net::kKeyBytes + 8;
constexpr std::size_t kChecksumBytes = kUniqueIdPayloadBytes - kCheckedBytes;
static_assert(kChecksumBytes >= 16, "BLAKE2b gives no shorter hash");
constexpr std::size_t kLongestSecretFile = 64 * 1024;

std::array<std::byte, kChecksumBytes> checksum_of(std::span<const std::byte> checked) {
  std::array<std::byte, kChecksumBytes> checksum;
  net::plain_hash(checksum, {net::bytes_of("rocenante.id"), checked});
  return checksum;
}

Status damaged(std::string_view reason) {
  return make_error(
      Code::kInvalidArgument,
      "id is damaged or was not made by rcnGetUniqueId or rcnGetUniqueIdAt of this version: {}", reason);
}

Result<std::string> read_secret_file(const std::string& path) {
  const auto name = config_row(Key::kSecretFile).name;
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    const int error = errno;
    return make_error(Code::kInvalidUsage, "{}='{}' cannot be read: {}", name, path,
                      system_error(error, "open").text());
  }
  std::string text(kLongestSecretFile + 1, '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const ssize_t count = ::read(fd.get(), text.data() + length, text.size() - length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      return make_error(Code::kInvalidUsage, "{}='{}' cannot be read: {}", name, path,
                        system_error(error, "read").text());
    }
    if (count == 0) break;
    length += static_cast<std::size_t>(count);
  }
  text.resize(length);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  if (text.empty() || length > kLongestSecretFile) {
    return make_error(Code::kInvalidUsage, "{}='{}' must hold a secret of 1 to {} bytes", name, path,
                      kLongestSecretFile);
  }
  return text;
}

// Empty when none is configured.
Result<std::string> configured_secret(const Config& config) {
  const std::string& secret = config.text(Key::kSecret);
  const std::string& file = config.text(Key::kSecretFile);
  if (!secret.empty() && !file.empty()) {
    return make_error(Code::kInvalidUsage, "{} and {} are both set; set one of them",
                      config_row(Key::kSecret).name, config_row(Key::kSecretFile).name);
  }
  if (!file.empty()) return read_secret_file(file);
  return secret;
}

net::SecretKey child_secret(const net::SecretKey& parent, std::uint64_t number) {
  net::WireWriter writer;
  writer.integer(number);
  return net::derive_key(parent, {net::bytes_of("rocenante.child"), net::bytes_of(writer.bytes())});
}

// `secret_of` has the id's number.
template <class SecretOf>
Result<UniqueId> start_fresh(const Config& config, SecretOf secret_of) {
  net::Interface interface;
  RCN_ASSIGN(interface, net::configured_interface(config));
  net::SocketFd listener;
  RCN_ASSIGN(listener, net::listen_at(interface.address));
  UniqueIdContents contents;
  RCN_ASSIGN(contents.rendezvous, net::local_address(listener.get()));
  net::random_bytes(std::as_writable_bytes(std::span(&contents.number, 1)));
  contents.secret = secret_of(contents.number);
  contents.is_listening = true;
  RCN_TRY(start_rendezvous(std::move(listener), contents, config.nanoseconds(Key::kInitTimeoutS)));
  return encode_unique_id(contents);
}

// The text of the address goes in as it was written: every rank has the same, whatever it resolves to.
void derive_from(std::string_view secret, std::string_view address, UniqueIdContents* contents) {
  net::WireWriter writer;
  writer.string(secret).string(address);
  const net::ByteSpan input = net::bytes_of(writer.bytes());
  net::plain_hash(contents->secret.bytes, {net::bytes_of("rocenante.address.key"), input});
  std::array<std::byte, 16> number;
  net::plain_hash(number, {net::bytes_of("rocenante.address.num"), input});
  std::memcpy(&contents->number, number.data(), sizeof(contents->number));
}

}  // namespace

void encode_unique_id_payload(const UniqueIdContents& contents,
                              std::span<std::byte, kUniqueIdPayloadBytes> payload) {
  net::WireWriter writer;
  const unsigned flags =
      (contents.is_listening ? kFlagListening : 0) | (contents.is_local_only ? kFlagLocalOnly : 0);
  writer.integer(kVersion).integer(static_cast<std::uint8_t>(flags)).integer(std::uint16_t{0});
  net::append_address(contents.rendezvous, &writer);
  writer.raw(std::span<const std::byte>(contents.secret.bytes)).integer(contents.number);
  const net::ByteSpan checked = net::bytes_of(writer.bytes());
  const auto checksum = checksum_of(checked);
  std::copy(checked.begin(), checked.end(), payload.begin());
  std::copy(checksum.begin(), checksum.end(), payload.begin() + kCheckedBytes);
}

Result<UniqueIdContents> decode_unique_id_payload(
    std::span<const std::byte, kUniqueIdPayloadBytes> payload) {
  const auto checked = payload.first<kCheckedBytes>();
  const auto checksum = checksum_of(checked);
  if (!std::equal(checksum.begin(), checksum.end(), payload.begin() + kCheckedBytes)) {
    return damaged("its checksum is wrong");
  }
  net::WireReader reader(std::string_view(reinterpret_cast<const char*>(checked.data()), checked.size()));
  const auto version = reader.integer<std::uint8_t>();
  const auto flags = reader.integer<std::uint8_t>();
  reader.integer<std::uint16_t>();
  if (version != kVersion) return damaged(fmt::format("its version is {}, not {}", version, kVersion));
  UniqueIdContents contents;
  contents.is_listening = (flags & kFlagListening) != 0;
  contents.is_local_only = (flags & kFlagLocalOnly) != 0;
  contents.rendezvous = net::read_address(&reader);
  const net::ByteSpan secret = net::bytes_of(reader.raw(net::kKeyBytes));
  std::copy(secret.begin(), secret.end(), contents.secret.bytes.begin());
  contents.number = reader.integer<std::uint64_t>();
  if (contents.rendezvous.port() == 0) return damaged("it holds no address");
  return contents;
}

UniqueId encode_unique_id(const UniqueIdContents& contents) {
  UniqueId id;
  const net::ByteSpan magic = net::bytes_of(kMagic);
  std::copy(magic.begin(), magic.end(), id.bytes.begin());
  encode_unique_id_payload(contents, std::span(id.bytes).subspan<kUniqueIdPayloadOffset>());
  return id;
}

Result<UniqueIdContents> decode_unique_id(const UniqueId& id) {
  const net::ByteSpan magic = net::bytes_of(kMagic);
  const std::span bytes(id.bytes);
  const auto front = bytes.first<kUniqueIdPayloadOffset>();
  const bool has_magic = std::equal(magic.begin(), magic.end(), front.begin());
  const bool rest_is_zero = std::all_of(front.begin() + kMagic.size(), front.end(),
                                        [](std::byte byte) { return byte == std::byte{0}; });
  if (!has_magic || !rest_is_zero) return damaged("it does not begin as one");
  return decode_unique_id_payload(bytes.subspan<kUniqueIdPayloadOffset>());
}

Result<UniqueId> create_unique_id(const Config& config) {
  return start_fresh(config, [](std::uint64_t) { return net::random_key(); });
}

Result<UniqueId> create_child_id(const Config& config, const net::SecretKey& parent) {
  return start_fresh(config, [&](std::uint64_t number) { return child_secret(parent, number); });
}

Result<ChildOffer> offer_of(const UniqueId& id) {
  UniqueIdContents contents;
  RCN_ASSIGN(contents, decode_unique_id(id));
  net::WireWriter writer;
  net::append_address(contents.rendezvous, &writer);
  writer.integer(contents.number);
  const net::ByteSpan bytes = net::bytes_of(writer.bytes());
  ChildOffer offer;
  std::copy(bytes.begin(), bytes.end(), offer.begin());
  return offer;
}

UniqueId accept_offer(const ChildOffer& offer, const net::SecretKey& parent) {
  net::WireReader reader(std::string_view(reinterpret_cast<const char*>(offer.data()), offer.size()));
  UniqueIdContents contents;
  contents.rendezvous = net::read_address(&reader);
  contents.number = reader.integer<std::uint64_t>();
  contents.secret = child_secret(parent, contents.number);
  contents.is_listening = true;
  return encode_unique_id(contents);
}

Result<UniqueId> unique_id_at(std::string_view address, bool serve, const Config& config) {
  net::ParsedAddress parsed;
  RCN_ASSIGN(parsed, net::parse_address(address, net::family_number(config.text(Key::kSocketFamily))));
  if (parsed.address.port() == 0) {
    return make_error(Code::kInvalidArgument, "address '{}': the port must be from 1 to 65535", address);
  }
  std::string secret;
  RCN_ASSIGN(secret, configured_secret(config));
  if (secret.empty() && !parsed.address.is_loopback()) {
    return make_error(
        Code::kInvalidUsage,
        "address '{}' is not loopback and there is no secret to tell ranks from strangers: set "
        "{} or {} to the same on all ranks",
        address, config_row(Key::kSecret).name, config_row(Key::kSecretFile).name);
  }
  UniqueIdContents contents;
  contents.rendezvous = parsed.address;
  contents.is_local_only = secret.empty();
  derive_from(secret, address, &contents);
  if (serve) {
    const bool everywhere = !parsed.is_numeric && !secret.empty();
    stop_finished_rendezvous(parsed.address);
    net::SocketFd listener;
    RCN_ASSIGN(listener, net::listen_at(everywhere ? parsed.address.with_any_host() : parsed.address));
    RCN_TRY(start_rendezvous(std::move(listener), contents, config.nanoseconds(Key::kInitTimeoutS)));
  }
  return encode_unique_id(contents);
}

}  // namespace rocenante
