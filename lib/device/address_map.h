// SPDX-License-Identifier: Apache-2.0
//
// Which ranges of host memory a device reaches, and under which addresses.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "lib/base/status.h"

namespace rocenante {

class AddressMap {
 public:
  // A range may be added several times; it is forgotten with the last removal.
  void add(const void* host, std::uint64_t bytes, unsigned char* device) {
    const std::lock_guard lock(mutex_);
    Range& range = ranges_[reinterpret_cast<std::uintptr_t>(host)];
    range.bytes = bytes;
    range.device = device;
    ++range.uses;
  }
  void remove(const void* host) {
    const std::lock_guard lock(mutex_);
    const auto at = ranges_.find(reinterpret_cast<std::uintptr_t>(host));
    if (at != ranges_.end() && --at->second.uses == 0) ranges_.erase(at);
  }
  // The device's address of a byte of host memory; InvalidArgument if no range has it.
  Result<unsigned char*> translate(const void* host) const {
    const auto address = reinterpret_cast<std::uintptr_t>(host);
    const std::lock_guard lock(mutex_);
    auto at = ranges_.upper_bound(address);
    if (at != ranges_.begin() && address - (--at)->first < at->second.bytes) {
      return at->second.device + (address - at->first);
    }
    return make_error(Code::kInvalidArgument,
                      "host memory at {} is not within the device's reach: it is no region of the device "
                      "and has not been made reachable",
                      host);
  }

 private:
  struct Range {
    std::uint64_t bytes = 0;
    unsigned char* device = nullptr;
    std::uint64_t uses = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Range> ranges_;  // by address
};

}  // namespace rocenante
