// SPDX-License-Identifier: Apache-2.0
#include "lib/device/cuda_driver.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "lib/device/cuda_call.h"
#include "lib/device/cuda_device.h"

namespace rocenante {
namespace {

// Never unloaded: the CUDA runtime keeps it as well.
Result<void*> driver_library() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* const why = ::dlerror();
  return make_error(Code::kSystemError, "no NVIDIA driver: {}", why != nullptr ? why : "libcuda.so.1");
}

// Of attributes that the runtime does not name, from the driver; 0 where the driver does not know it.
int driver_attribute(CUdevice_attribute attribute, int ordinal) {
  const Result<void*> library = driver_library();
  if (!library.ok()) return 0;
  auto* const get_device =
      reinterpret_cast<decltype(&cuDeviceGet)>(::dlsym(library.value(), "cuDeviceGet"));
  auto* const get_attribute =
      reinterpret_cast<decltype(&cuDeviceGetAttribute)>(::dlsym(library.value(), "cuDeviceGetAttribute"));
  CUdevice device = 0;
  int value = 0;
  if (get_device == nullptr || get_attribute == nullptr) return 0;
  if (get_device(&device, ordinal) != CUDA_SUCCESS) return 0;
  return get_attribute(&value, attribute, device) == CUDA_SUCCESS ? value : 0;
}

Status check_driver_version() {
  int driver = 0, runtime = 0;
  RCN_TRY(cuda_status(cudaDriverGetVersion(&driver), "cudaDriverGetVersion"));
  RCN_TRY(cuda_status(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion"));
  // Within one major version a driver runs what was built with a later minor one.
  // What is no driver has version 0, and says more when it is asked for devices.
  if (driver == 0 || driver / 1000 >= runtime / 1000) return {};
  return make_error(Code::kUnhandledCudaError,
                    "the NVIDIA driver is too old: it has CUDA {}.{}, and this library was built with CUDA "
                    "{}.{}, which needs a driver of CUDA {}.0 or later",
                    driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10, runtime / 1000);
}

// Reads attributes and keeps the first error.
class Attributes {
 public:
  explicit Attributes(int ordinal) : ordinal_(ordinal) {}
  int operator()(cudaDeviceAttr attribute) {
    int value = 0;
    if (error_ == cudaSuccess) error_ = cudaDeviceGetAttribute(&value, attribute, ordinal_);
    return value;
  }
  Status status() const { return cuda_status(error_, "cudaDeviceGetAttribute of device {}", ordinal_); }

 private:
  const int ordinal_;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace

Result<int> gpu_count() {
  if (Result<void*> library = driver_library(); !library.ok()) return library.status();
  RCN_TRY(check_driver_version());
  int count = 0;
  RCN_TRY(cuda_status(cudaGetDeviceCount(&count), "the NVIDIA driver offers no CUDA device"));
  if (count == 0) return Status(Code::kUnhandledCudaError, "the NVIDIA driver offers no CUDA device");
  return count;
}

Status cuda_available() {
  return gpu_count().status();
}

Result<GpuFacts> gpu_facts(int ordinal) {
  GpuFacts gpu;
  gpu.ordinal = ordinal;
  cudaDeviceProp properties{};
  RCN_TRY(
      cuda_status(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties({})", ordinal));
  gpu.name = properties.name;
  Attributes attribute(ordinal);
  gpu.major = attribute(cudaDevAttrComputeCapabilityMajor);
  gpu.minor = attribute(cudaDevAttrComputeCapabilityMinor);
  gpu.multiprocessors = static_cast<std::uint32_t>(attribute(cudaDevAttrMultiProcessorCount));
  gpu.integrated = attribute(cudaDevAttrIntegrated) != 0;
  gpu.can_map_host_memory = attribute(cudaDevAttrCanMapHostMemory) != 0;
  gpu.host_register_supported = attribute(cudaDevAttrHostRegisterSupported) != 0;
  gpu.host_register_read_only_supported = attribute(cudaDevAttrHostRegisterReadOnlySupported) != 0;
  gpu.pageable_memory_access = attribute(cudaDevAttrPageableMemoryAccess) != 0;
  gpu.uses_host_page_tables = attribute(cudaDevAttrPageableMemoryAccessUsesHostPageTables) != 0;
  gpu.host_native_atomics = attribute(cudaDevAttrHostNativeAtomicSupported) != 0;
  gpu.kernel_timeout = attribute(cudaDevAttrKernelExecTimeout) != 0;
  gpu.gpu_direct_rdma_supported = attribute(cudaDevAttrGPUDirectRDMASupported) != 0;
  gpu.rdma_writes_ordering = attribute(cudaDevAttrGPUDirectRDMAWritesOrdering);
  RCN_TRY(attribute.status());
  gpu.dma_buf_supported = driver_attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, ordinal) != 0;
  return gpu;
}

}  // namespace rocenante
