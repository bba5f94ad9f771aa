// SPDX-License-Identifier: Apache-2.0
//
// What a rank tells its peers so that they can connect their queue pairs to its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rocenante {

struct VerbsBlob {
  // An inbox in host memory, and where `in_device`, the one in the device's own.
  struct AdapterPart {
    std::uint32_t rkey = 0;
    std::uint64_t inbox = 0;
    std::uint32_t device_rkey = 0;
    std::uint64_t device_inbox = 0;
  };
  struct RailPart {
    std::uint8_t adapter = 0;  // its number above
    std::uint32_t queue_pair = 0;
    std::uint8_t mtu = 0;  // ibv_mtu
  };
  struct PeerPart {
    std::uint32_t recv_index = 0;  // of that peer's receive slots here
    std::vector<RailPart> rails;
  };
  std::uint32_t first_packet = 0;
  std::uint32_t received = 0;  // receive slots of each parity
  std::uint64_t inbox_bytes = 0;
  // Payloads and signals go to the inbox in device memory, and a notice of each signal to the other.
  bool in_device = false;
  std::vector<AdapterPart> adapters;
  std::vector<PeerPart> peers;  // by rank
};

std::string encode_blob(const VerbsBlob& blob);

// False unless the bytes are a blob for `ranks` ranks in which every number is possible.
bool decode_blob(std::string_view bytes, std::uint32_t ranks, VerbsBlob* blob);

}  // namespace rocenante
