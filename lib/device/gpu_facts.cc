// SPDX-License-Identifier: Apache-2.0
#include "lib/device/gpu_facts.h"

#include <algorithm>
#include <bit>

namespace rocenante {
namespace {

// A GB10 has 48 multiprocessors and may give us 8.
constexpr std::uint32_t kMultiprocessorsPerGroup = 6;
constexpr std::uint32_t kMostGroups = 8;

// Why the receive region is not in the GPU's own memory.
std::string why_not_device_memory(const GpuFacts& gpu) {
  if (gpu.integrated) return "an integrated GPU's own memory is out of reach for NICs";
  if (!gpu.dma_buf_supported) return "DMA_BUF_SUPPORTED is 0";
  if (gpu.rdma_writes_ordering == 0) return "GPU_DIRECT_RDMA_WRITES_ORDERING is 0";
  return "receiving into device memory is not implemented";
}

}  // namespace

Result<HostAccess> choose_host_access(const GpuFacts& gpu) {
  if (gpu.can_map_host_memory && gpu.host_register_supported) return HostAccess::kRegistered;
  if (gpu.pageable_memory_access && gpu.uses_host_page_tables) return HostAccess::kPageable;
  return make_error(Code::kSystemError,
                    "CUDA device {} ({}) cannot reach host memory that others map: CAN_MAP_HOST_MEMORY is "
                    "{:d}, HOST_REGISTER_SUPPORTED {:d}, PAGEABLE_MEMORY_ACCESS {:d}",
                    gpu.ordinal, gpu.name, gpu.can_map_host_memory, gpu.host_register_supported,
                    gpu.pageable_memory_access);
}

// Every kernel of ours fits a multiprocessor twice (ROCENANTE_KERNEL), so one group for each is resident
// with room to spare. As long as it is one for two of them, half of the GPU is left even to kernels that
// need a multiprocessor for themselves.
GroupLimits group_limits_on(const GpuFacts& gpu) {
  return {std::bit_floor(std::clamp(gpu.multiprocessors / kMultiprocessorsPerGroup, 1U, kMostGroups)),
          std::max(gpu.multiprocessors / 2, 1U), std::max(gpu.multiprocessors, 1U)};
}

std::string describe_choice(const GpuFacts& gpu, HostAccess access) {
  return fmt::format(
      "CUDA device {}: {}, compute capability {}.{}, {} multiprocessors, {}; regions in {} host memory "
      "({}); "
      "GPU_DIRECT_RDMA_SUPPORTED {:d}, HOST_NATIVE_ATOMIC_SUPPORTED {:d}{}",
      gpu.ordinal, gpu.name, gpu.major, gpu.minor, gpu.multiprocessors,
      gpu.integrated ? "integrated" : "discrete",
      access == HostAccess::kRegistered ? "registered" : "pageable", why_not_device_memory(gpu),
      gpu.gpu_direct_rdma_supported, gpu.host_native_atomics,
      gpu.kernel_timeout ? "; KERNEL_EXEC_TIMEOUT is 1: with a display attached the driver ends kernels "
                           "that wait for seconds"
                         : "");
}

}  // namespace rocenante
