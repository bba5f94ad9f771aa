// SPDX-License-Identifier: Apache-2.0
#include "lib/net/handshake.h"

#include <poll.h>

#include "lib/net/socket.h"
#include "lib/net/wire.h"

namespace rocenante::net {
namespace {

constexpr std::size_t kNonceBytes = 32;
constexpr std::size_t kMagicBytes = 8;
// magic, version u16, purpose length u8, address length u8, rank u32, nonce
constexpr std::size_t kFixedHelloBytes = kMagicBytes + 2 + 1 + 1 + 4 + kNonceBytes;
constexpr std::string_view kClientMagic = "RCNhelo1";
constexpr std::string_view kServerMagic = "RCNserv1";
constexpr std::string_view kRejectMagic = "RCNrejct";
// Of one length, so that label and hellos are an unambiguous sequence.
constexpr std::string_view kClientLabel = "rocenante.client";
constexpr std::string_view kServerLabel = "rocenante.server";
static_assert(kClientLabel.size() == kServerLabel.size());

constexpr std::uint16_t kRejectVersion = 1;
constexpr std::uint16_t kRejectPurpose = 2;

std::string make_hello(Handshake::Role role, const Identity& self) {
  std::array<std::byte, kNonceBytes> nonce;
  random_bytes(nonce);
  WireWriter writer;
  writer.raw(role == Handshake::Role::kClient ? kClientMagic : kServerMagic);
  writer.integer(kHandshakeVersion);
  writer.integer(static_cast<std::uint8_t>(self.purpose.size()));
  writer.integer(static_cast<std::uint8_t>(self.address.size()));
  writer.integer(self.rank).raw(std::span<const std::byte>(nonce)).raw(self.purpose).raw(self.address);
  return writer.take();
}

// As long as the fixed part of a hello, so that the client reads either with one rule.
std::string make_rejection(std::uint16_t reason) {
  WireWriter writer;
  writer.raw(kRejectMagic).integer(kHandshakeVersion).integer(reason);
  std::string bytes = writer.take();
  bytes.resize(kFixedHelloBytes, '\0');
  return bytes;
}

Status rejected_by(std::string_view what, std::string_view hello) {
  WireReader reader(hello.substr(kMagicBytes));
  const auto version = reader.integer<std::uint16_t>();
  const auto reason = reader.integer<std::uint16_t>();
  if (reason == kRejectVersion) {
    return make_error(Code::kInvalidUsage, "{} speaks handshake version {}, this process {}", what, version,
                      kHandshakeVersion);
  }
  return make_error(Code::kInvalidUsage, "{} does not serve this purpose (rejection {})", what, reason);
}

Result<PeerIdentity> run(Handshake::Role role, int fd, const SecretKey& key, const Identity& self,
                         Deadline deadline) {
  const Result<SocketAddress> address = peer_address(fd);
  const bool is_ip = address.ok() && address.value().family() != AF_UNSPEC;
  const std::string what = is_ip ? address.value().text() : "the other end of the socket";
  Result<Handshake> handshake = Handshake::make(role, key, self);
  if (!handshake.ok()) return handshake.status();
  for (;;) {
    Handshake::Progress progress{};
    RCN_ASSIGN(progress, handshake.value().advance(fd, what));
    if (progress == Handshake::Progress::kDone) return handshake.value().peer();
    const short events = progress == Handshake::Progress::kNeedsInput ? POLLIN : POLLOUT;
    RCN_TRY(wait_for(fd, events, deadline, what));
  }
}

}  // namespace

Result<Handshake> Handshake::make(Role role, const SecretKey& key, const Identity& self) {
  if (self.purpose.size() > kLongestPurpose || self.address.size() > kLongestAddress) {
    return make_error(Code::kInvalidArgument,
                      "handshake: purpose '{}' or address '{}' is longer than {} or {} bytes", self.purpose,
                      self.address, kLongestPurpose, kLongestAddress);
  }
  Handshake handshake(role, key);
  handshake.purpose_ = self.purpose;
  handshake.own_hello_ = make_hello(role, self);
  if (role == Role::kClient) handshake.output_ = handshake.own_hello_;
  handshake.want(kFixedHelloBytes);
  return handshake;
}

void Handshake::want(std::size_t bytes) {
  input_.clear();
  wanted_ = bytes;
}

Mac Handshake::mac_of(Role role) const {
  const bool we_are_client = role_ == Role::kClient;
  const std::string& client_hello = we_are_client ? own_hello_ : peer_hello_;
  const std::string& server_hello = we_are_client ? peer_hello_ : own_hello_;
  const std::string_view label = role == Role::kClient ? kClientLabel : kServerLabel;
  return keyed_hash(key_, {bytes_of(label), bytes_of(client_hello), bytes_of(server_hello)});
}

void Handshake::send_own_mac() {
  const Mac mac = mac_of(role_);
  output_.append(reinterpret_cast<const char*>(mac.data()), mac.size());
}

Status Handshake::reject(std::uint16_t reason, Status status) {
  if (role_ == Role::kServer) output_ = make_rejection(reason);
  return status;
}

// The fixed part is there: learn how long the rest is.
Status Handshake::check_hello(std::string_view what) {
  const std::string_view magic = std::string_view(input_).substr(0, kMagicBytes);
  if (role_ == Role::kClient && magic == kRejectMagic) return rejected_by(what, input_);
  if (magic != (role_ == Role::kClient ? kServerMagic : kClientMagic)) {
    return make_error(Code::kInvalidUsage, "{} does not speak this library's protocol", what);
  }
  WireReader reader(std::string_view(input_).substr(kMagicBytes));
  const auto version = reader.integer<std::uint16_t>();
  if (version != kHandshakeVersion) {
    return reject(kRejectVersion,
                  make_error(Code::kInvalidUsage, "{} speaks handshake version {}, this process {}", what,
                             version, kHandshakeVersion));
  }
  purpose_bytes_ = reader.integer<std::uint8_t>();
  const std::size_t address_bytes = reader.integer<std::uint8_t>();
  if (purpose_bytes_ > kLongestPurpose || address_bytes > kLongestAddress) {
    return make_error(Code::kInvalidUsage,
                      "{} sent a purpose of {} and an address of {} bytes; at most {} "
                      "and {} are allowed",
                      what, purpose_bytes_, address_bytes, kLongestPurpose, kLongestAddress);
  }
  peer_.rank = reader.integer<std::uint32_t>();
  peer_hello_ = input_;
  want(purpose_bytes_ + address_bytes);
  stage_ = Stage::kPeerHelloRest;
  return {};
}

Status Handshake::check_purpose(std::string_view what) {
  peer_hello_ += input_;
  peer_.purpose = input_.substr(0, purpose_bytes_);
  peer_.address = input_.substr(purpose_bytes_);
  if (peer_.purpose != purpose_) {
    return reject(kRejectPurpose,
                  make_error(Code::kInvalidUsage, "{} expects another purpose than '{}'", what, purpose_));
  }
  if (role_ == Role::kServer) {
    output_ = own_hello_;
    send_own_mac();
  }
  want(kMacBytes);
  stage_ = Stage::kPeerMac;
  return {};
}

Status Handshake::check_peer_mac(std::string_view what) {
  Mac received;
  const ByteSpan bytes = bytes_of(input_);
  std::copy(bytes.begin(), bytes.end(), received.begin());
  const Role other = role_ == Role::kClient ? Role::kServer : Role::kClient;
  if (!equal_in_constant_time(received, mac_of(other))) {
    return make_error(Code::kInvalidUsage, "{} could not prove that it holds the same secret", what);
  }
  if (role_ == Role::kClient) send_own_mac();
  stage_ = Stage::kDone;
  return {};
}

Status Handshake::receive_step(std::string_view what) {
  switch (stage_) {
    case Stage::kPeerHello:
      return check_hello(what);
    case Stage::kPeerHelloRest:
      return check_purpose(what);
    case Stage::kPeerMac:
      return check_peer_mac(what);
    case Stage::kDone:
      break;
  }
  return {};
}

Result<Handshake::Progress> Handshake::advance(int fd, std::string_view what) {
  for (;;) {
    while (!output_.empty()) {
      std::size_t sent = 0;
      RCN_ASSIGN(sent, send_some(fd, output_, what));
      if (sent == 0) return Progress::kNeedsOutput;
      output_.erase(0, sent);
    }
    if (stage_ == Stage::kDone) return Progress::kDone;
    while (input_.size() < wanted_) {
      const std::size_t had = input_.size();
      input_.resize(wanted_);
      const auto room = std::as_writable_bytes(std::span(input_)).subspan(had);
      const Result<std::size_t> received = receive_some(fd, room, what);
      input_.resize(had + (received.ok() ? received.value() : 0));
      if (!received.ok()) return received.status();
      if (received.value() == 0) return Progress::kNeedsInput;
    }
    const Status step = receive_step(what);
    if (!step.ok()) {
      // One attempt: whoever does not read a rejection learns nothing worse from a closed connection.
      if (role_ == Role::kServer && !output_.empty()) (void)send_some(fd, output_, what);
      return step;
    }
  }
}

Result<PeerIdentity> handshake_client(int fd, const SecretKey& key, const Identity& self,
                                      Deadline deadline) {
  return run(Handshake::Role::kClient, fd, key, self, deadline);
}

Result<PeerIdentity> handshake_server(int fd, const SecretKey& key, const Identity& self,
                                      Deadline deadline) {
  return run(Handshake::Role::kServer, fd, key, self, deadline);
}

}  // namespace rocenante::net
