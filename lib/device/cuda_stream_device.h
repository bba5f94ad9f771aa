// SPDX-License-Identifier: Apache-2.0
//
// A CUDA device behind the seam. Thin on purpose: whatever can be decided or counted without a GPU is in
// gpu_facts, address_map and deferred_release, where tests reach it.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "lib/device/address_map.h"
#include "lib/device/cuda_memory.h"
#include "lib/device/gpu_facts.h"
#include "lib/device/stream_device.h"

namespace rocenante {

class CudaDevice final : public StreamDevice {
 public:
  // Makes the primary context of the device current for the call and loads the kernels: with lazy loading
  // the first launch would load them, and hang beside a kernel that waits.
  static Result<std::unique_ptr<CudaDevice>> create(int ordinal);

  const GpuFacts& facts() const { return gpu_; }

  const char* name() const override { return "cuda"; }
  Result<std::shared_ptr<Region>> allocate_region(std::uint64_t bytes, PeerAccess access) override;
  Result<std::shared_ptr<void>> allocate_for_user(std::uint64_t bytes) override;
  Result<std::shared_ptr<DeviceInbox>> allocate_receive(std::uint64_t bytes) override;
  Status check_stream(const void* stream) const override;

  Result<DeviceMemory> allocate_shared(std::uint64_t bytes) override;
  Result<DeviceMemory> allocate_local(std::uint64_t bytes) override;
  Result<unsigned char*> device_address(const void* host) const override;
  Result<std::shared_ptr<void>> make_reachable(const PeerMemory& memory) override;
  Status fill(const DeviceMemory& to, const void* from, std::uint64_t bytes) override;
  Status check_buffer(const char* argument, const void* buffer, std::uint64_t bytes) const override;

  Result<StreamCapture> capture_of(void* stream) override;
  Result<std::unique_ptr<StreamEvent>> make_event() override;
  Status wait(void* stream, StreamEvent& event) override;
  Status record(void* stream, StreamEvent& event) override;
  Result<bool> has_passed(StreamEvent& event) override;
  Result<GraphNode*> launch(void* stream, const CallLaunch& call) override;
  Status join(GraphNode* earlier, void* stream) override;
  Result<GraphNode*> record_in_graph(void* stream, StreamEvent& event, GraphNode* last,
                                     GraphNode* record) override;
  Status keep(void* stream, std::shared_ptr<void> reference) override;

 private:
  CudaDevice(GpuFacts gpu, HostAccess access)
      : StreamDevice(group_limits_on(gpu)), gpu_(std::move(gpu)), access_(access) {}

  // Registers memory that `keeper` keeps, notes the device's address of it, and lends it.
  Result<std::shared_ptr<void>> enrol(const Mapping& memory, PeerAccess access,
                                      std::shared_ptr<void> keeper, UsedBy used_by);
  Result<DeviceMemory> allocate_on_host(std::uint64_t bytes, UsedBy used_by);
  Result<DeviceMemory> allocate_on_device(std::uint64_t bytes, UsedBy used_by);
  Status check_byte(const char* argument, const unsigned char* byte) const;

  const GpuFacts gpu_;
  const HostAccess access_;
  AddressMap addresses_;
};

}  // namespace rocenante
