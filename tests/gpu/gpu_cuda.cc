// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <stdexcept>

#include "lib/device/cuda_device.h"
#include "tests/gpu/gpu.h"

namespace rocenante::test {
namespace {

void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
}

cudaStream_t handle_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

class CudaGraph final : public GpuGraph {
 public:
  explicit CudaGraph(cudaGraph_t graph) : graph_(graph) {
    check(cudaGraphInstantiate(&instance_, graph_, 0), "cudaGraphInstantiate");
  }
  ~CudaGraph() override {
    (void)cudaGraphExecDestroy(instance_);
    (void)cudaGraphDestroy(graph_);
  }
  cudaGraphExec_t instance() const { return instance_; }

 private:
  const cudaGraph_t graph_;
  cudaGraphExec_t instance_ = nullptr;
};

class CudaGpu final : public Gpu {
 public:
  explicit CudaGpu(bool reaches_all) : reaches_all_(reaches_all) {}

  std::string name() const override { return "cuda"; }
  int runs(int on_gpu) const override { return on_gpu; }
  bool reaches_all_memory() const override { return reaches_all_; }
  void attach() override { check(cudaSetDevice(0), "cudaSetDevice"); }

  std::shared_ptr<void> make_stream() override {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return {stream, [](void* made) { (void)cudaStreamDestroy(handle_of(made)); }};
  }
  std::shared_ptr<std::uint8_t> buffer(std::size_t bytes) override {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    check(cudaMemset(memory, 0, bytes), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return {static_cast<std::uint8_t*>(memory), [](std::uint8_t* made) { (void)cudaFree(made); }};
  }
  std::shared_ptr<std::uint8_t> staging(std::size_t bytes) override {
    void* memory = nullptr;
    check(cudaMallocHost(&memory, bytes), "cudaMallocHost");
    return {static_cast<std::uint8_t*>(memory), [](std::uint8_t* made) { (void)cudaFreeHost(made); }};
  }

  void copy(void* to, const void* from, std::size_t bytes, void* stream) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle_of(stream)), "cudaMemcpyAsync");
  }
  void follow(void* later, void* earlier) override {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    const std::shared_ptr<void> owner(
        event, [](void* made) { (void)cudaEventDestroy(static_cast<cudaEvent_t>(made)); });
    check(cudaEventRecord(event, handle_of(earlier)), "cudaEventRecord");
    check(cudaStreamWaitEvent(handle_of(later), event), "cudaStreamWaitEvent");
  }
  void synchronise(void* stream) override {
    check(cudaStreamSynchronize(handle_of(stream)), "cudaStreamSynchronize");
  }

  void begin_capture(void* stream) override {
    check(cudaStreamBeginCapture(handle_of(stream), cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
  }
  std::shared_ptr<GpuGraph> end_capture(void* stream) override {
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(handle_of(stream), &graph), "cudaStreamEndCapture");
    auto made = std::make_shared<CudaGraph>(graph);
    // Now and not at the first run, when kernels may be waiting.
    check(cudaGraphUpload(made->instance(), handle_of(stream)), "cudaGraphUpload");
    synchronise(stream);
    return made;
  }
  void replay(const std::shared_ptr<GpuGraph>& graph, void* stream) override {
    check(cudaGraphLaunch(static_cast<CudaGraph&>(*graph).instance(), handle_of(stream)),
          "cudaGraphLaunch");
  }

 private:
  const bool reaches_all_;
};

}  // namespace

Gpu* find_gpu(std::string* why_not) {
  // Streams that share a queue of the hardware wait for each other, and so would ranks.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  if (const Status usable = cuda_available(); !usable.ok()) {
    *why_not = usable.text();
    return nullptr;
  }
  int pageable = 0;
  check(cudaDeviceGetAttribute(&pageable, cudaDevAttrPageableMemoryAccess, 0), "cudaDeviceGetAttribute");
  static CudaGpu gpu(pageable != 0);
  return &gpu;
}

}  // namespace rocenante::test
