// SPDX-License-Identifier: Apache-2.0
//
// Memory that a made-up device exports and a made-up adapter registers: behind a descriptor, as a GPU's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lib/device/device.h"

namespace rocenante::test {

// Zeroed, page-aligned.
std::shared_ptr<DeviceInbox> make_device_inbox(std::uint64_t bytes);

struct DmaBuf {
  unsigned char* memory = nullptr;
  std::uint64_t bytes = 0;
};
// What is behind a descriptor, as long as the memory lives; nothing if it is none of make_device_inbox().
std::optional<DmaBuf> find_dma_buf(int fd);

// What a transport needs to see of a device that gives such memory, or does not.
class DmaBufDevice final : public Device {
 public:
  explicit DmaBufDevice(bool gives = true) : gives_(gives) {}
  const char* name() const override { return "dma-buf"; }
  DriveMode drive_mode() const override { return DriveMode::kStream; }
  Result<std::shared_ptr<Region>> allocate_region(std::uint64_t bytes, PeerAccess access) override {
    return host_device().allocate_region(bytes, access);
  }
  Result<std::shared_ptr<DeviceInbox>> allocate_receive(std::uint64_t bytes) override {
    if (!gives_) return make_error(Code::kInvalidUsage, "this device gives no memory to NICs");
    return make_device_inbox(bytes);
  }
  Status check_stream(const void*) const override { return {}; }

 private:
  const bool gives_;
};

}  // namespace rocenante::test
