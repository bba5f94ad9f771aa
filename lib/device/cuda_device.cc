// SPDX-License-Identifier: Apache-2.0
#include "lib/device/cuda_device.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "lib/base/log.h"
#include "lib/device/cuda_call.h"
#include "lib/device/cuda_driver.h"
#include "lib/device/cuda_stream_device.h"
#include "lib/device/keep_loaded.h"
#include "lib/device/memfd.h"
#include "lib/device/registry.h"
#include "reduce_kernels/cuda/launch.h"

namespace rocenante {
namespace {

class CudaRegion final : public Region {
 public:
  CudaRegion(std::shared_ptr<void> owner, const MemfdMapping& memory) : owner_(std::move(owner)) {
    address_ = static_cast<unsigned char*>(memory.mapping.get().address);
    bytes_ = memory.mapping.get().bytes;
    fd_ = memory.fd.get();
  }

 private:
  std::shared_ptr<void> owner_;
};

// Neither is ever destroyed: launches and graphs may outlive every static object.
struct Devices {
  std::mutex mutex;
  std::map<int, std::unique_ptr<CudaDevice>> by_ordinal;
};
Devices& devices() {
  static auto* const instance = new Devices;
  return *instance;
}

}  // namespace

Result<std::shared_ptr<Device>> cuda_device(int number) {
  RCN_TRY(cuda_available());
  int ordinal = number;
  if (number == kCurrentDevice) RCN_TRY(cuda_status(cudaGetDevice(&ordinal), "cudaGetDevice"));
  const std::lock_guard lock(devices().mutex);
  std::unique_ptr<CudaDevice>& device = devices().by_ordinal[ordinal];
  if (device == nullptr) {
    RCN_ASSIGN(device, CudaDevice::create(ordinal));
  }
  return std::shared_ptr<Device>(device.get(), [](Device*) {});
}

std::string describe_cuda() {
  const Result<int> count = gpu_count();
  if (!count.ok()) return count.status().text();
  std::string text;
  for (int ordinal = 0; ordinal < count.value(); ++ordinal) {
    const Result<GpuFacts> gpu = gpu_facts(ordinal);
    const Result<HostAccess> access =
        gpu.ok() ? choose_host_access(gpu.value()) : Result<HostAccess>(gpu.status());
    if (ordinal != 0) text += "\n               ";
    text += access.ok() ? describe_choice(gpu.value(), access.value()) : access.status().text();
  }
  return text;
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::create(int ordinal) {
  RCN_ASSIGN(GpuFacts gpu, gpu_facts(ordinal));
  RCN_ASSIGN(const HostAccess access, choose_host_access(gpu));
  // Graphs call back into this library when they go, and nobody knows whose they are by then.
  if (!keep_loaded()) {
    const char* const why = ::dlerror();
    return make_error(Code::kSystemError, "this library cannot be kept loaded: {}",
                      why != nullptr ? why : "the loader does not know it");
  }
  const SetUpScope scope(ordinal);
  RCN_TRY(scope.status());
  RCN_TRY(reduce::load_kernels());
  log_info(-1, "{}", describe_choice(gpu, access));
  return std::unique_ptr<CudaDevice>(new CudaDevice(std::move(gpu), access));
}

Result<std::shared_ptr<void>> CudaDevice::enrol(const Mapping& memory, PeerAccess access,
                                                std::shared_ptr<void> keeper, UsedBy used_by) {
  collect_released();
  const SetUpScope scope(gpu_.ordinal);
  RCN_TRY(scope.status());
  auto block = std::make_unique<HostBlock>(gpu_.ordinal, memory, access, std::move(keeper));
  const Result<unsigned char*> device = block->register_memory(gpu_, access_);
  if (!device.ok()) {
    (void)lend(std::move(block), UsedBy::kUser);  // what is half done waits for its release, too
    return device.status();
  }
  addresses_.add(memory.address, memory.bytes, device.value());
  return lend(std::move(block), used_by, [this, host = memory.address] { addresses_.remove(host); });
}

Result<std::shared_ptr<Region>> CudaDevice::allocate_region(std::uint64_t bytes, PeerAccess access) {
  RCN_ASSIGN(MemfdMapping made, create_memfd(whole_pages(bytes), access));
  const auto memory = std::make_shared<MemfdMapping>(std::move(made));
  // Its own mapping may be written whatever peers may do.
  RCN_ASSIGN(std::shared_ptr<void> owner,
             enrol(memory->mapping.get(), PeerAccess::kReadWrite, memory, UsedBy::kLaunches));
  return std::shared_ptr<Region>(std::make_shared<CudaRegion>(std::move(owner), *memory));
}

Result<DeviceMemory> CudaDevice::allocate_shared(std::uint64_t bytes) {
  return allocate_on_host(bytes, UsedBy::kLaunches);
}

Result<DeviceMemory> CudaDevice::allocate_local(std::uint64_t bytes) {
  return allocate_on_device(bytes, UsedBy::kLaunches);
}

Result<DeviceMemory> CudaDevice::allocate_on_host(std::uint64_t bytes, UsedBy used_by) {
  RCN_ASSIGN(OwnedMapping made, map_pages(whole_pages(bytes)));
  const auto pages = std::make_shared<OwnedMapping>(std::move(made));
  DeviceMemory memory;
  memory.host = static_cast<unsigned char*>(pages->get().address);
  memory.bytes = pages->get().bytes;
  RCN_ASSIGN(memory.owner, enrol(pages->get(), PeerAccess::kReadWrite, pages, used_by));
  RCN_ASSIGN(memory.device, device_address(memory.host));
  return memory;
}

Result<DeviceMemory> CudaDevice::allocate_on_device(std::uint64_t bytes, UsedBy used_by) {
  collect_released();
  const SetUpScope scope(gpu_.ordinal);
  RCN_TRY(scope.status());
  auto block = std::make_unique<DeviceBlock>(gpu_.ordinal);
  DeviceBlock& made = *block;
  DeviceMemory memory;
  memory.owner = lend(std::move(block), used_by);
  RCN_TRY(made.allocate(bytes));
  memory.device = made.address();
  memory.bytes = bytes;
  return memory;
}

Result<std::shared_ptr<void>> CudaDevice::allocate_for_user(std::uint64_t bytes) {
  RCN_ASSIGN(const DeviceMemory memory, user_memory_on_host(gpu_)
                                            ? allocate_on_host(bytes, UsedBy::kUser)
                                            : allocate_on_device(bytes, UsedBy::kUser));
  return std::shared_ptr<void>(memory.owner, memory.device);
}

// Pages of their own, zeroed before a NIC can write to them: neither exporting nor registering them lets it
// reach anything else.
Result<std::shared_ptr<DeviceInbox>> CudaDevice::allocate_receive(std::uint64_t bytes) {
  RCN_TRY(choose_receive_memory(gpu_));
  const std::uint64_t page = whole_pages(1);
  RCN_ASSIGN(DeviceMemory memory, allocate_on_device(whole_pages(bytes) + page, UsedBy::kLaunches));
  auto inbox = std::make_shared<DeviceInbox>();
  inbox->owner = std::move(memory.owner);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.device);
  inbox->device = memory.device + ((begin + page - 1) / page * page - begin);
  inbox->bytes = whole_pages(bytes);
  const SetUpScope scope(gpu_.ordinal);
  RCN_TRY(scope.status());
  RCN_ASSIGN(inbox->dma_buf, dma_buf_of(inbox->device, inbox->bytes));
  return inbox;
}

Result<unsigned char*> CudaDevice::device_address(const void* host) const {
  return addresses_.translate(host);
}

Result<std::shared_ptr<void>> CudaDevice::make_reachable(const PeerMemory& memory) {
  // A rank of this process: its region stays registered as long as anything is held.
  if (addresses_.translate(memory.host).ok()) return hold_others();
  return enrol(Mapping{memory.host, memory.bytes}, memory.access, memory.mapping, UsedBy::kLaunches);
}

Status CudaDevice::fill(const DeviceMemory& to, const void* from, std::uint64_t bytes) {
  if (bytes > to.bytes) {
    return make_error(Code::kInternalError, "{} bytes do not fit device memory of {}", bytes, to.bytes);
  }
  const SetUpScope scope(gpu_.ordinal);
  RCN_TRY(scope.status());
  return copy_to_device(to.device, from, bytes);
}

Status CudaDevice::check_buffer(const char* argument, const void* buffer, std::uint64_t bytes) const {
  const DeviceScope scope(gpu_.ordinal);
  RCN_TRY(scope.status());
  const auto* const first = static_cast<const unsigned char*>(buffer);
  RCN_TRY(check_byte(argument, first));
  return bytes > 1 ? check_byte(argument, first + bytes - 1) : Status();
}

Status CudaDevice::check_byte(const char* argument, const unsigned char* byte) const {
  const auto* const address = static_cast<const void*>(byte);
  cudaPointerAttributes known{};
  RCN_TRY(cuda_status(cudaPointerGetAttributes(&known, byte), "cudaPointerGetAttributes of {} ({})",
                      argument, address));
  switch (known.type) {
    case cudaMemoryTypeManaged:
      return {};
    case cudaMemoryTypeDevice:
      if (known.device == gpu_.ordinal) return {};
      return make_error(
          Code::kInvalidArgument,
          "{} at {} is memory of CUDA device {}: expected memory of device {}, the communicator's",
          argument, address, known.device, gpu_.ordinal);
    case cudaMemoryTypeHost:
      if (known.devicePointer == byte) return {};
      return make_error(Code::kInvalidArgument,
                        "{} at {} is host memory that the device sees at {}: pass that address", argument,
                        address, known.devicePointer);
    default:
      if (gpu_.pageable_memory_access) return {};
      return make_error(Code::kInvalidArgument,
                        "{} at {} is host memory that CUDA device {} cannot reach: expected memory from "
                        "cudaMalloc, cudaMallocManaged, cudaHostAlloc or rcnMemAlloc",
                        argument, address, gpu_.ordinal);
  }
}

}  // namespace rocenante
