// SPDX-License-Identifier: Apache-2.0
//
// The handshake that every connection begins with: both sides prove, by a keyed MAC over role labels,
// protocol version, purpose, both ranks, both claimed addresses and two fresh nonces, that they hold the
// same key. The key never crosses the wire.
//
//   client -> server   hello: magic, version, purpose, rank, address, nonce
//   server -> client   hello of its own, MAC_server(both hellos)      or a rejection
//   client -> server   MAC_client(both hellos)
//
// All sizes are fixed or bounded; not one byte beyond the handshake is read, so whatever follows may be
// sent at once behind it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.h"
#include "lib/net/crypto.h"
#include "lib/net/deadline.h"

namespace rocenante::net {

inline constexpr std::uint16_t kHandshakeVersion = 1;
inline constexpr std::size_t kLongestPurpose = 32;
inline constexpr std::size_t kLongestAddress = 128;
inline constexpr std::uint32_t kNoRank = 0xffffffff;  // of a party that is not a rank

// What one side says about itself. Both sides must name the same purpose.
struct Identity {
  std::string_view purpose;  // at most kLongestPurpose bytes
  std::uint32_t rank = kNoRank;
  std::string address;  // at most kLongestAddress bytes; what it believes its own address to be
};

struct PeerIdentity {
  std::string purpose;
  std::uint32_t rank = kNoRank;
  std::string address;
};

// One side of one handshake, independent of how bytes travel. Not thread-safe.
class Handshake {
 public:
  enum class Role { kClient, kServer };
  enum class Progress { kNeedsInput, kNeedsOutput, kDone };

  // InvalidArgument when purpose or address is too long.
  static Result<Handshake> make(Role role, const SecretKey& key, const Identity& self);

  // Moves what can be moved on the non-blocking stream `fd` now; `what` names the other side in errors.
  // InvalidUsage: the other side holds another key, serves another purpose or speaks another version.
  // RemoteError: it closed the connection. After an error the connection is to be closed; a rejection to
  // be told to the other side has then been sent.
  Result<Progress> advance(int fd, std::string_view what);

  // What the other side said and proved; valid once done.
  const PeerIdentity& peer() const { return peer_; }

 private:
  enum class Stage { kPeerHello, kPeerHelloRest, kPeerMac, kDone };

  Handshake(Role role, const SecretKey& key) : role_(role), key_(key) {}
  Status receive_step(std::string_view what);
  Status check_hello(std::string_view what);
  Status check_purpose(std::string_view what);
  Status check_peer_mac(std::string_view what);
  Status reject(std::uint16_t reason, Status status);
  void want(std::size_t bytes);
  void send_own_mac();
  Mac mac_of(Role role) const;

  Role role_;
  Stage stage_ = Stage::kPeerHello;
  SecretKey key_;
  std::string purpose_;
  std::string own_hello_;
  std::string peer_hello_;
  std::size_t purpose_bytes_ = 0;  // of the peer's hello
  std::string output_;
  std::string input_;
  std::size_t wanted_ = 0;  // size of input_ at which the next step can be taken
  PeerIdentity peer_;
};

// The whole handshake on a non-blocking stream, waiting. Errors as Handshake::advance, and Timeout.
Result<PeerIdentity> handshake_client(int fd, const SecretKey& key, const Identity& self,
                                      Deadline deadline);
Result<PeerIdentity> handshake_server(int fd, const SecretKey& key, const Identity& self,
                                      Deadline deadline);

}  // namespace rocenante::net
