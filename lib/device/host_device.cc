// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include "lib/device/device.h"
#include "lib/device/memfd.h"

namespace rocenante {
namespace {

class HostRegion final : public Region {
 public:
  explicit HostRegion(MemfdMapping memory) : memory_(std::move(memory)) {
    address_ = static_cast<unsigned char*>(memory_.mapping.get().address);
    bytes_ = memory_.mapping.get().bytes;
    fd_ = memory_.fd.get();
  }

 private:
  MemfdMapping memory_;
};

class HostDevice final : public Device {
 public:
  const char* name() const override { return "host"; }
  DriveMode drive_mode() const override { return DriveMode::kCaller; }

  Result<std::shared_ptr<Region>> allocate_region(std::uint64_t bytes, PeerAccess access) override {
    RCN_ASSIGN(MemfdMapping memory, create_memfd(whole_pages(bytes), access));
    return std::shared_ptr<Region>(std::make_shared<HostRegion>(std::move(memory)));
  }

  Status check_stream(const void* stream) const override {
    if (stream == nullptr) return {};
    return make_error(Code::kInvalidArgument, "stream is {}: calls on host memory take a null stream",
                      stream);
  }
};

}  // namespace

Result<std::shared_ptr<void>> Device::allocate_for_user(std::uint64_t bytes) {
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return errno_error("mmap of {} bytes for a user's buffers", bytes);
  return std::shared_ptr<void>(address, [bytes](void* memory) { ::munmap(memory, bytes); });
}

Result<std::shared_ptr<DeviceInbox>> Device::allocate_receive(std::uint64_t) {
  return make_error(Code::kInvalidUsage, "calls are on the device {}, which has no memory of its own",
                    name());
}

Device& host_device() {
  static auto* const device = new HostDevice;
  return *device;
}

}  // namespace rocenante
