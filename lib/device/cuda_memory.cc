// SPDX-License-Identifier: Apache-2.0
#include "lib/device/cuda_memory.h"

#include <sys/mman.h>

#include <utility>

#include "lib/base/log.h"
#include "lib/device/cuda_call.h"

namespace rocenante {
namespace {

// Never destroyed: references may end while static objects go.
DeferredRelease& releases() {
  static auto* const instance = new DeferredRelease;
  return *instance;
}

thread_local bool is_graph_destructor = false;

// A release has nobody to report to. At the end of the process CUDA has gone first.
void note_release(cudaError_t error, const char* call) {
  if (error == cudaSuccess || error == cudaErrorCudartUnloading) return;
  log_warn(-1, "{}", cuda_error(error, call).text());
}

void end_of_use(UsedBy used_by) {
  if (used_by == UsedBy::kLaunches) releases().let_go();
  if (!is_graph_destructor) releases().collect();
}

struct StreamTraits {
  using Value = cudaStream_t;
  static Value empty() { return nullptr; }
  static void release(Value stream) { note_release(cudaStreamDestroy(stream), "cudaStreamDestroy"); }
};

// Runs `work` on a stream of its own and waits for that stream. The current device is the caller's.
template <class Work>
Status on_own_stream(Work&& work) {
  cudaStream_t made = nullptr;
  RCN_TRY(
      cuda_status(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
  const Owned<StreamTraits> stream(made);
  RCN_TRY(work(stream.get()));
  return cuda_status(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
}

}  // namespace

HostBlock::~HostBlock() {
  if (!registered_) return;
  const SetUpScope scope(ordinal_);
  note_release(cudaHostUnregister(memory_.address), "cudaHostUnregister");
}

Result<unsigned char*> HostBlock::register_memory(const GpuFacts& gpu, HostAccess how) {
  if (how == HostAccess::kPageable) return static_cast<unsigned char*>(memory_.address);
  unsigned flags = cudaHostRegisterPortable | cudaHostRegisterMapped;
  if (access_ == PeerAccess::kReadOnly && !gpu.uses_host_page_tables) flags |= cudaHostRegisterReadOnly;
  const cudaError_t error = cudaHostRegister(memory_.address, memory_.bytes, flags);
  // A region of another device of this process: registered for all of them, and neither unregistered nor
  // unmapped while anything is held. To keep it would hold it for ever.
  const bool is_known = error == cudaErrorHostMemoryAlreadyRegistered;
  if (is_known) {
    (void)cudaGetLastError();
    keeper_.reset();
  }
  RCN_TRY(cuda_status(is_known ? cudaSuccess : error,
                      "cudaHostRegister of {} bytes at {} with flags {:#x} "
                      "(HOST_REGISTER_READ_ONLY_SUPPORTED is {:d})",
                      memory_.bytes, memory_.address, flags, gpu.host_register_read_only_supported));
  registered_ = !is_known;
  void* device = nullptr;
  RCN_TRY(cuda_status(cudaHostGetDevicePointer(&device, memory_.address, 0),
                      "cudaHostGetDevicePointer of {}", memory_.address));
  return static_cast<unsigned char*>(device);
}

DeviceBlock::~DeviceBlock() {
  if (address_ == nullptr) return;
  const SetUpScope scope(ordinal_);
  note_release(cudaFree(address_), "cudaFree");
}

Status DeviceBlock::allocate(std::uint64_t bytes) {
  void* memory = nullptr;
  RCN_TRY(cuda_status(cudaMalloc(&memory, bytes), "cudaMalloc of {} bytes", bytes));
  address_ = static_cast<unsigned char*>(memory);
  return on_own_stream([&](cudaStream_t stream) {
    return cuda_status(cudaMemsetAsync(memory, 0, bytes, stream), "cudaMemsetAsync of {} bytes", bytes);
  });
}

EventBlock::~EventBlock() {
  if (event_ == nullptr) return;
  const SetUpScope scope(ordinal_);
  note_release(cudaEventDestroy(event_), "cudaEventDestroy");
}

Status EventBlock::create() {
  return cuda_status(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}

std::shared_ptr<void> lend(std::unique_ptr<Deferred> resource, UsedBy used_by,
                           std::function<void()> at_end) {
  if (used_by == UsedBy::kLaunches) releases().hold();
  return {resource.release(), [used_by, at_end = std::move(at_end)](Deferred* ended) {
            if (at_end) at_end();
            releases().give(std::unique_ptr<Deferred>(ended));
            end_of_use(used_by);
          }};
}

std::shared_ptr<void> hold_others() {
  releases().hold();
  return {&releases(), [](DeferredRelease*) { end_of_use(UsedBy::kLaunches); }};
}

void collect_released() {
  releases().collect();
}

GraphDestructor::GraphDestructor() {
  is_graph_destructor = true;
}
GraphDestructor::~GraphDestructor() {
  is_graph_destructor = false;
}

Result<OwnedMapping> map_pages(std::uint64_t bytes) {
  void* const address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (address == MAP_FAILED) return errno_error("mmap of {} bytes", bytes);
  OwnedMapping mapping(Mapping{address, bytes});
  if (::madvise(address, bytes, MADV_DONTFORK) != 0) return errno_error("madvise(MADV_DONTFORK)");
  return mapping;
}

Status copy_to_device(void* to, const void* from, std::uint64_t bytes) {
  return on_own_stream([&](cudaStream_t stream) {
    return cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream),
                       "cudaMemcpyAsync of {} bytes to the device", bytes);
  });
}

}  // namespace rocenante
