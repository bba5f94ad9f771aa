// SPDX-License-Identifier: Apache-2.0
//
// Memory and events of a CUDA device as resources whose release is deferred (deferred_release.h), and how
// host memory gets within a device's reach.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "lib/base/handle.h"
#include "lib/base/status.h"
#include "lib/device/deferred_release.h"
#include "lib/device/gpu_facts.h"
#include "lib/device/stream_device.h"

namespace rocenante {

// Host memory that a device reaches. Registered memory is unregistered before `keeper` lets its pages go.
class HostBlock final : public Deferred {
 public:
  HostBlock(int ordinal, const Mapping& memory, PeerAccess access, std::shared_ptr<void> keeper)
      : ordinal_(ordinal), memory_(memory), access_(access), keeper_(std::move(keeper)) {}
  ~HostBlock() override;

  // Brings it within the reach of all devices of the process and returns the address for them. `access` is
  // what the mapping itself allows.
  Result<unsigned char*> register_memory(const GpuFacts& gpu, HostAccess how);

 private:
  const int ordinal_;
  const Mapping memory_;
  const PeerAccess access_;
  std::shared_ptr<void> keeper_;
  bool registered_ = false;
};

class DeviceBlock final : public Deferred {
 public:
  explicit DeviceBlock(int ordinal) : ordinal_(ordinal) {}
  ~DeviceBlock() override;
  // Zeroed. Waits for nothing but that.
  Status allocate(std::uint64_t bytes);
  unsigned char* address() const { return address_; }

 private:
  const int ordinal_;
  unsigned char* address_ = nullptr;
};

class EventBlock final : public Deferred {
 public:
  explicit EventBlock(int ordinal) : ordinal_(ordinal) {}
  ~EventBlock() override;
  Status create();
  cudaEvent_t get() const { return event_; }

 private:
  const int ordinal_;
  cudaEvent_t event_ = nullptr;
};

// Whether launches use a resource: then nothing is released while it is shared. Memory of users is theirs.
enum class UsedBy : std::uint8_t { kLaunches, kUser };

// A shared reference to a resource. With the last copy, after `at_end`, the resource is given to the
// process's list and released if that may be.
std::shared_ptr<void> lend(std::unique_ptr<Deferred> resource, UsedBy used_by = UsedBy::kLaunches,
                           std::function<void()> at_end = {});
// A shared reference to what somebody else owns and launches use.
std::shared_ptr<void> hold_others();
// Releases what may be released; when something is about to be allocated.
void collect_released();

// While one lives, its thread is CUDA's, which destroys the objects of graphs: references that end here
// release nothing.
class GraphDestructor {
 public:
  GraphDestructor();
  ~GraphDestructor();
  GraphDestructor(const GraphDestructor&) = delete;
  GraphDestructor& operator=(const GraphDestructor&) = delete;
};

// Anonymous pages, zero, not inherited by forked children.
Result<OwnedMapping> map_pages(std::uint64_t bytes);

// Copies on a stream of its own and waits for it alone.
Status copy_to_device(void* to, const void* from, std::uint64_t bytes);

}  // namespace rocenante
