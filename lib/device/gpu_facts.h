// SPDX-License-Identifier: Apache-2.0
//
// What a GPU says of itself, and where memory that peers and NICs touch is put because of it. docs/gpu.md
// has the choices by platform and their sources. Knows no CUDA, so that it is tested without.
#pragma once

#include <cstdint>
#include <string>

#include "lib/base/status.h"
#include "lib/device/group_budget.h"

namespace rocenante {

// Attributes by the names that CUDA gives them.
struct GpuFacts {
  std::string name;
  int ordinal = 0;
  int major = 0;
  int minor = 0;
  std::uint32_t multiprocessors = 1;
  bool integrated = false;
  bool can_map_host_memory = false;
  bool host_register_supported = false;
  bool host_register_read_only_supported = false;
  bool pageable_memory_access = false;
  bool uses_host_page_tables = false;
  bool host_native_atomics = false;
  bool kernel_timeout = false;  // a display is attached
  bool dma_buf_supported = false;
  bool gpu_direct_rdma_supported = false;
  int rdma_writes_ordering = 0;  // 0: consumers must flush; 100: own device; 200: all devices
};

// How the device gets at host memory.
enum class HostAccess : std::uint8_t {
  kRegistered,  // pinned and mapped
  kPageable,    // any memory of the process, through the host's page tables
};

// SystemError naming the attributes if the GPU can reach host memory in no way.
Result<HostAccess> choose_host_access(const GpuFacts& gpu);

// Success if what comes over verbs may be received in the GPU's own memory, signals included; else which
// attribute forbids it. Whether the NICs can is theirs to say.
Status choose_receive_memory(const GpuFacts& gpu);

// Whether memory for users that both the device and NICs read is host memory.
inline bool user_memory_on_host(const GpuFacts& gpu) {
  return gpu.integrated;
}

// Groups of launches that are surely resident together beside an engine's own kernels.
GroupLimits group_limits_on(const GpuFacts& gpu);

// One line: the GPU, where regions are, whether verbs may write to its own memory, and if not, why.
std::string describe_choice(const GpuFacts& gpu, HostAccess access);

}  // namespace rocenante
