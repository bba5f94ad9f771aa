// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a communicator meet again without it: when it has failed, or when some of them are to be
// left out. Each rank listens from the start at an address that all learn. Nobody answers there until the
// first of those that come again does; connections made meanwhile wait in the kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/config.h"
#include "lib/base/status.h"
#include "lib/comm/unique_id.h"
#include "lib/net/crypto.h"
#include "lib/net/socket.h"

namespace rocenante {

class Reunion {
 public:
  // Begins to listen; where that fails, this rank can be no first.
  Reunion(const UniqueId& id, std::uint32_t rank, const Config& config);

  // What the others must know; fixed size.
  std::string address_bytes() const;
  static constexpr std::size_t kAddressBytes = net::kAddressWireBytes;

  // Every rank's bytes, and the key that all share. False if one is too short.
  bool complete(const std::vector<std::string>& gathered, const net::SecretKey& key);

  // Where the ranks that are not left out meet, in their order; the same for all of them, without a word
  // between them. The first serves it from now on, in place of what it served before. InvalidUsage: this
  // rank is left out, or the first cannot be reached.
  Result<UniqueId> id_without(const std::vector<bool>& left_out) const;

 private:
  std::uint32_t rank_;
  std::uint64_t init_timeout_ns_;
  bool is_local_only_ = false;
  net::SocketFd listener_;
  std::string why_not_;  // listening
  std::vector<net::SocketAddress> addresses_;
  net::SecretKey key_;
};

}  // namespace rocenante
