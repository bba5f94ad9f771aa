// SPDX-License-Identifier: Apache-2.0
#include "lib/device/cuda_driver.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fcntl.h>

#include <atomic>
#include <mutex>

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

// Functions that this library calls itself, by the names under which the driver exports them: cuda.h makes
// some of the plain ones macros.
// clang-format off
#define ROCENANTE_DRIVER_FUNCTIONS(X)                 \
  X(get_error_name, cuGetErrorName)                   \
  X(get_device, cuDeviceGet)                          \
  X(get_attribute, cuDeviceGetAttribute)              \
  X(retain_primary, cuDevicePrimaryCtxRetain)         \
  X(get_current, cuCtxGetCurrent)                     \
  X(push, cuCtxPushCurrent)                           \
  X(pop, cuCtxPopCurrent)                             \
  X(get_context_device, cuCtxGetDevice)               \
  X(get_stream_context, cuStreamGetCtx)               \
  X(get_handle_for_range, cuMemGetHandleForAddressRange)
// clang-format on
#define ROCENANTE_NAME_OF(function) #function

struct Driver {
#define ROCENANTE_X(member, function) decltype(&function) member = nullptr;
  ROCENANTE_DRIVER_FUNCTIONS(ROCENANTE_X)
#undef ROCENANTE_X
};

// Those that the runtime calls for us and the first drivers of a major version have not.
constexpr const char* kOfRuntime[] = {"cuLibraryLoadData",
                                      "cuLibraryGetKernel",
                                      "cuKernelGetAttribute",
                                      "cuStreamGetCaptureInfo_v3",
                                      "cuStreamUpdateCaptureDependencies_v2",
                                      "cuGraphAddDependencies_v2"};

Result<Driver> load_driver() {
  RCN_ASSIGN(void* const library, driver_library());
  Driver driver;
  const char* missing = nullptr;
#define ROCENANTE_X(member, function)                                                           \
  driver.member =                                                                               \
      reinterpret_cast<decltype(driver.member)>(::dlsym(library, ROCENANTE_NAME_OF(function))); \
  if (driver.member == nullptr && missing == nullptr) missing = ROCENANTE_NAME_OF(function);
  ROCENANTE_DRIVER_FUNCTIONS(ROCENANTE_X)
#undef ROCENANTE_X
  for (const char* const name : kOfRuntime) {
    if (missing == nullptr && ::dlsym(library, name) == nullptr) missing = name;
  }
  if (missing == nullptr) return driver;
  int version = 0;
  (void)cudaDriverGetVersion(&version);
  return make_error(Code::kUnhandledCudaError,
                    "the NVIDIA driver, which has CUDA {}.{}, lacks {}: install a later one",
                    version / 1000, version % 1000 / 10, missing);
}

// Looked up once: a process keeps the driver that it has found.
const Result<Driver>& driver() {
  static const auto& made = *new Result<Driver>(load_driver());
  return made;
}

// Of attributes that the runtime does not name, from the driver; 0 where the driver does not know it.
int driver_attribute(CUdevice_attribute attribute, int ordinal) {
  if (!driver().ok()) return 0;
  const Driver& functions = driver().value();
  CUdevice device = 0;
  int value = 0;
  if (functions.get_device(&device, ordinal) != CUDA_SUCCESS) return 0;
  return functions.get_attribute(&value, attribute, device) == CUDA_SUCCESS ? value : 0;
}

// Only where driver() is fine: nobody has a device else.
class DriverStack final : public ContextStack {
 public:
  int current(void** context) override {
    return driver().value().get_current(reinterpret_cast<CUcontext*>(context));
  }
  int device(int* device) override { return driver().value().get_context_device(device); }
  int push(void* context) override { return driver().value().push(static_cast<CUcontext>(context)); }
  int pop() override {
    CUcontext popped = nullptr;
    return driver().value().pop(&popped);
  }
};

// Contexts that are held, by ordinal. Written once each, and read without a lock by every call.
constexpr int kMostDevices = 128;
struct Held {
  std::atomic<void*> context{nullptr};
  int device = 0;  // before the context
};
Held held[kMostDevices];
std::mutex held_mutex;

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
  RCN_TRY(driver().status());
  int count = 0;
  RCN_TRY(cuda_status(cudaGetDeviceCount(&count), "the NVIDIA driver offers no CUDA device"));
  if (count == 0) return Status(Code::kUnhandledCudaError, "the NVIDIA driver offers no CUDA device");
  return count;
}

Result<DeviceContext> primary_context(int ordinal) {
  if (ordinal < 0 || ordinal >= kMostDevices) {
    return make_error(Code::kInvalidArgument, "CUDA device {}: must be 0 to {}", ordinal, kMostDevices - 1);
  }
  Held& mine = held[ordinal];
  void* context = mine.context.load(std::memory_order_acquire);
  if (context != nullptr) return DeviceContext{context, mine.device};
  RCN_TRY(driver().status());
  const Driver& functions = driver().value();
  const std::lock_guard lock(held_mutex);
  context = mine.context.load(std::memory_order_relaxed);
  if (context != nullptr) return DeviceContext{context, mine.device};
  RCN_TRY(
      driver_status(functions.get_device(&mine.device, ordinal), fmt::format("cuDeviceGet({})", ordinal)));
  CUcontext primary = nullptr;
  RCN_TRY(driver_status(functions.retain_primary(&primary, mine.device),
                        fmt::format("cuDevicePrimaryCtxRetain of device {}", ordinal)));
  mine.context.store(primary, std::memory_order_release);
  return DeviceContext{primary, mine.device};
}

ContextStack& context_stack() {
  static auto& stack = *new DriverStack;
  return stack;
}

Status driver_status(int error, std::string_view what) {
  if (error == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  if (driver().ok()) (void)driver().value().get_error_name(static_cast<CUresult>(error), &name);
  return make_error(Code::kUnhandledCudaError, "{}: {} ({})", what, name != nullptr ? name : "driver error",
                    error);
}

// cudaStreamGetDevice would do, but drivers before 12.8 have not what it calls. Every call comes here: no
// text is made unless something is wrong.
Result<int> device_of_stream(const void* stream, const DeviceContext& usual) {
  CUcontext context = nullptr;
  auto* const handle = static_cast<CUstream>(const_cast<void*>(stream));
  const int error = driver().value().get_stream_context(handle, &context);
  if (error != 0) return driver_status(error, fmt::format("cuStreamGetCtx of stream {}", stream));
  if (context == usual.context) return usual.device;
  const ContextScope scope(context_stack(), {context, -1});  // of no device: this very context
  RCN_TRY(driver_status(scope.error(), "cuCtxPushCurrent"));
  int device = 0;
  RCN_TRY(driver_status(context_stack().device(&device), "cuCtxGetDevice"));
  return device;
}

// The plain mapping, one and the same for payloads and signals: where a GPU offers several ways to its
// memory, writes are ordered within each of them only.
Result<Fd> dma_buf_of(const void* address, std::uint64_t bytes) {
  RCN_TRY(driver().status());
  int fd = -1;
  const int error = driver().value().get_handle_for_range(&fd, reinterpret_cast<CUdeviceptr>(address),
                                                          bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  RCN_TRY(driver_status(
      error, fmt::format("cuMemGetHandleForAddressRange of {} bytes at {} as a dma-buf", bytes, address)));
  Fd made(above_standard(fd));
  if (made.get() < 0 || ::fcntl(made.get(), F_SETFD, FD_CLOEXEC) != 0)
    return errno_error("the descriptor of a dma-buf");
  return made;
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
