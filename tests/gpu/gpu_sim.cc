// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <stdexcept>
#include <vector>

#include "tests/gpu/gpu.h"
#include "tests/support/sim_device.h"

namespace rocenante::test {
namespace {

void check(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.text());
}

class SimGpuGraph final : public GpuGraph {
 public:
  explicit SimGpuGraph(std::shared_ptr<SimGraph> graph) : graph_(std::move(graph)) {}
  const std::shared_ptr<SimGraph>& get() const { return graph_; }

 private:
  const std::shared_ptr<SimGraph> graph_;
};

class SimGpu final : public Gpu {
 public:
  std::string name() const override { return "sim"; }
  int runs(int on_gpu) const override { return on_gpu / 50 + 1; }
  bool reaches_all_memory() const override { return false; }
  void attach() override { SimDevice::make_current(device_); }

  std::shared_ptr<void> make_stream() override {
    return {device_->make_stream(), [device = device_](void* stream) { device->destroy_stream(stream); }};
  }
  std::shared_ptr<std::uint8_t> buffer(std::size_t bytes) override { return device_->buffer(bytes); }
  std::shared_ptr<std::uint8_t> staging(std::size_t bytes) override {
    const auto memory = std::make_shared<std::vector<std::uint8_t>>(bytes);
    return {memory, memory->data()};
  }

  void copy(void* to, const void* from, std::size_t bytes, void* stream) override {
    check(device_->run(stream, [to, from, bytes] { std::memcpy(to, from, bytes); }));
  }
  void follow(void* later, void* earlier) override {
    const Result<SimMark> mark = device_->mark(earlier);
    check(mark.status());
    check(device_->follow(later, mark.value()));
  }
  // Not an error if a call has failed: a GPU does not tell either.
  void synchronise(void* stream) override { (void)device_->synchronise(stream); }

  void begin_capture(void* stream) override { check(device_->begin_capture(stream)); }
  std::shared_ptr<GpuGraph> end_capture(void* stream) override {
    Result<std::shared_ptr<SimGraph>> graph = device_->end_capture(stream);
    check(graph.status());
    return std::make_shared<SimGpuGraph>(graph.take());
  }
  void replay(const std::shared_ptr<GpuGraph>& graph, void* stream) override {
    check(device_->replay(static_cast<SimGpuGraph&>(*graph).get(), stream));
  }

 private:
  const std::shared_ptr<SimDevice> device_ = std::make_shared<SimDevice>();
};

}  // namespace

Gpu* find_gpu(std::string*) {
  static SimGpu gpu;
  return &gpu;
}

}  // namespace rocenante::test
