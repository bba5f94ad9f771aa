// SPDX-License-Identifier: Apache-2.0
#include "lib/device/gpu_facts.h"

#include <algorithm>
#include <bit>

namespace rocenante {
namespace {

// A GB10 has 48 multiprocessors and may give us 8.
constexpr std::uint32_t kMultiprocessorsPerGroup = 6;
constexpr std::uint32_t kMostGroups = 8;

// From this value of GPU_DIRECT_RDMA_WRITES_ORDERING on the GPU that owns memory sees a NIC's writes to it
// in order without being told to flush: it alone looks at them.
constexpr int kOrderedForOwner = 100;

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

Status choose_receive_memory(const GpuFacts& gpu) {
  if (gpu.integrated)
    return Status(Code::kInvalidUsage, "an integrated GPU's own memory is out of reach for NICs");
  if (!gpu.dma_buf_supported) return Status(Code::kInvalidUsage, "DMA_BUF_SUPPORTED is 0");
  if (gpu.rdma_writes_ordering < kOrderedForOwner) {
    return make_error(Code::kInvalidUsage,
                      "GPU_DIRECT_RDMA_WRITES_ORDERING is {}, and must be {} (owner) or more",
                      gpu.rdma_writes_ordering, kOrderedForOwner);
  }
  return {};
}

// Every kernel of ours fits a multiprocessor twice (ROCENANTE_KERNEL), so one group for each is resident
// with room to spare. As long as it is one for two of them, half of the GPU is left even to kernels that
// need a multiprocessor for themselves.
GroupLimits group_limits_on(const GpuFacts& gpu) {
  return {std::bit_floor(std::clamp(gpu.multiprocessors / kMultiprocessorsPerGroup, 1U, kMostGroups)),
          std::max(gpu.multiprocessors / 2, 1U), std::max(gpu.multiprocessors, 1U)};
}

std::string describe_choice(const GpuFacts& gpu, HostAccess access) {
  const Status receive = choose_receive_memory(gpu);
  return fmt::format(
      "CUDA device {}: {}, compute capability {}.{}, {} multiprocessors, {}; regions in {} host memory, "
      "and "
      "verbs {}; "
      "GPU_DIRECT_RDMA_SUPPORTED {:d}, HOST_NATIVE_ATOMIC_SUPPORTED {:d}{}",
      gpu.ordinal, gpu.name, gpu.major, gpu.minor, gpu.multiprocessors,
      gpu.integrated ? "integrated" : "discrete",
      access == HostAccess::kRegistered ? "registered" : "pageable",
      receive.ok() ? fmt::format("may write to the GPU's own (DMA_BUF_SUPPORTED is 1, "
                                 "GPU_DIRECT_RDMA_WRITES_ORDERING {}) where the adapters can, too",
                                 gpu.rdma_writes_ordering)
                   : "writes there, too (" + receive.text() + ")",
      gpu.gpu_direct_rdma_supported, gpu.host_native_atomics,
      gpu.kernel_timeout ? "; KERNEL_EXEC_TIMEOUT is 1: with a display attached the driver ends kernels "
                           "that wait for seconds"
                         : "");
}

}  // namespace rocenante
