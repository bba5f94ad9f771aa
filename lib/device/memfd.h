// SPDX-License-Identifier: Apache-2.0
//
// Sealed anonymous files: memory that another process maps by descriptor, with no name that a crash could
// leave behind.
#pragma once

#include <cstdint>

#include "lib/base/handle.h"
#include "lib/base/status.h"
#include "lib/device/device.h"

namespace rocenante {

struct MemfdMapping {
  Fd fd;
  OwnedMapping mapping;
};

// The least whole number of this system's pages that holds so many bytes.
std::uint64_t whole_pages(std::uint64_t bytes);

// Creates, maps for reading and writing, and seals: SHRINK, GROW and SEAL always, FUTURE_WRITE for
// kReadOnly.
Result<MemfdMapping> create_memfd(std::uint64_t bytes, PeerAccess access);

// Maps a descriptor that a peer handed over, after checking that its seals and size are what create_memfd
// makes: without them the peer could shrink the file and turn our next access into SIGBUS.
Result<OwnedMapping> map_peer_memfd(int fd, std::uint64_t bytes, PeerAccess access);

}  // namespace rocenante
