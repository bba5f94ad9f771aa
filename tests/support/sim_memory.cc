// SPDX-License-Identifier: Apache-2.0
//
// Memory of the simulated device. Its addresses are the host's, but each use is checked: what is not known
// to the device is out of its reach, and memory of the device alone has no host address.
#include <cstring>

#include "lib/device/memfd.h"
#include "tests/support/dma_buf.h"
#include "tests/support/sim_device.h"

namespace rocenante::test {
namespace {

constexpr std::uint64_t kPage = protocol::kPageBytes;

bool is_shared(SimMemory::Kind kind) {
  return kind != SimMemory::Kind::kLocal && kind != SimMemory::Kind::kReceive;
}
bool is_for_buffers(SimMemory::Kind kind) {
  return kind == SimMemory::Kind::kLocal;
}

// Forgets a range when it goes; `owner` goes after that.
struct Known {
  Known(std::shared_ptr<SimMemory> memory, const void* address, std::uint64_t bytes, SimMemory::Kind kind,
        std::shared_ptr<void> owner)
      : memory(std::move(memory)), address(address), owner(std::move(owner)) {
    this->memory->add(address, bytes, kind);
  }
  ~Known() { memory->remove(address); }
  Known(const Known&) = delete;
  Known& operator=(const Known&) = delete;

  const std::shared_ptr<SimMemory> memory;
  const void* const address;
  const std::shared_ptr<void> owner;
};

class SimRegion final : public Region {
 public:
  SimRegion(MemfdMapping memory, const std::shared_ptr<SimMemory>& known) : memory_(std::move(memory)) {
    address_ = static_cast<unsigned char*>(memory_.mapping.get().address);
    bytes_ = memory_.mapping.get().bytes;
    fd_ = memory_.fd.get();
    known_ = std::make_unique<Known>(known, address_, bytes_, SimMemory::Kind::kRegion, nullptr);
  }

 private:
  MemfdMapping memory_;
  std::unique_ptr<Known> known_;
};

}  // namespace

void SimMemory::add(const void* address, std::uint64_t bytes, Kind kind) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] =
      ranges_.try_emplace(reinterpret_cast<std::uintptr_t>(address), Range{bytes, kind, 0});
  ++at->second.uses;
}

void SimMemory::remove(const void* address) {
  const std::lock_guard lock(mutex_);
  const auto at = ranges_.find(reinterpret_cast<std::uintptr_t>(address));
  if (--at->second.uses == 0) ranges_.erase(at);
}

bool SimMemory::holds(const void* address, std::uint64_t bytes, bool (*wanted)(Kind)) const {
  const auto from = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(mutex_);
  auto at = ranges_.upper_bound(from);
  if (at == ranges_.begin()) return false;
  --at;
  const std::uint64_t offset = from - at->first;
  return offset <= at->second.bytes && bytes <= at->second.bytes - offset && wanted(at->second.kind);
}

std::size_t SimMemory::ranges() const {
  const std::lock_guard lock(mutex_);
  return ranges_.size();
}

Result<std::shared_ptr<Region>> SimDevice::allocate_region(std::uint64_t bytes, PeerAccess access) {
  RCN_TRY(begin_allocation("allocate_region"));
  RCN_ASSIGN(MemfdMapping memory, create_memfd(protocol::round_up(bytes, kPage), access));
  return std::shared_ptr<Region>(std::make_shared<SimRegion>(std::move(memory), memory_));
}

Result<DeviceMemory> SimDevice::allocate(std::uint64_t bytes, SimMemory::Kind kind) {
  const std::uint64_t rounded = protocol::round_up(bytes, kPage);
  void* const memory = std::aligned_alloc(kPage, rounded);
  if (memory == nullptr) return make_error(Code::kSystemError, "no {} bytes of simulated memory", bytes);
  std::memset(memory, 0, rounded);
  auto owner =
      std::make_shared<Known>(memory_, memory, bytes, kind, std::shared_ptr<void>(memory, std::free));
  auto* const address = static_cast<unsigned char*>(memory);
  return DeviceMemory{std::move(owner), address, is_shared(kind) ? address : nullptr, bytes};
}

Result<DeviceMemory> SimDevice::allocate_shared(std::uint64_t bytes) {
  RCN_TRY(begin_allocation("allocate_shared"));
  return allocate(bytes, SimMemory::Kind::kShared);
}

Result<std::shared_ptr<DeviceInbox>> SimDevice::allocate_receive(std::uint64_t bytes) {
  RCN_TRY(begin_allocation("allocate_receive"));
  if (!shape_.receives)
    return make_error(Code::kInvalidUsage, "the simulated device lets no NIC write to its memory");
  std::shared_ptr<DeviceInbox> inbox = make_device_inbox(bytes);
  inbox->owner = std::make_shared<Known>(memory_, inbox->device, inbox->bytes, SimMemory::Kind::kReceive,
                                         std::move(inbox->owner));
  return inbox;
}

Result<DeviceMemory> SimDevice::allocate_local(std::uint64_t bytes) {
  RCN_TRY(begin_allocation("allocate_local"));
  return allocate(bytes, SimMemory::Kind::kLocal);
}

std::shared_ptr<unsigned char> SimDevice::buffer(std::uint64_t bytes) {
  const DeviceMemory memory = allocate(bytes, SimMemory::Kind::kLocal).take();
  return {memory.owner, memory.device};
}

Result<unsigned char*> SimDevice::device_address(const void* host) const {
  if (memory_->holds(host, 1, is_shared)) return static_cast<unsigned char*>(const_cast<void*>(host));
  return make_error(Code::kInvalidArgument, "{} is out of the simulated device's reach", host);
}

Result<std::shared_ptr<void>> SimDevice::make_reachable(const PeerMemory& memory) {
  RCN_TRY(begin_allocation("make_reachable"));
  return std::shared_ptr<void>(
      std::make_shared<Known>(memory_, memory.host, memory.bytes, SimMemory::Kind::kPeer, memory.mapping));
}

Status SimDevice::fill(const DeviceMemory& to, const void* from, std::uint64_t bytes) {
  RCN_TRY(begin_allocation("fill"));
  std::memcpy(to.device, from, bytes);
  return {};
}

Status SimDevice::check_buffer(const char* argument, const void* buffer, std::uint64_t bytes) const {
  if (memory_->holds(buffer, bytes, is_for_buffers)) return {};
  return make_error(Code::kInvalidArgument,
                    "{} is {}: {} bytes there are no memory of the simulated device", argument, buffer,
                    bytes);
}

}  // namespace rocenante::test
