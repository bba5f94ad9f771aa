// SPDX-License-Identifier: Apache-2.0
//
// The part of the device seam that only devices with streams have. Streams are opaque: cudaStream_t on
// CUDA. What is asked of a device here never synchronises and, but for the allocations and what makes an
// event, never allocates; all of it may be called while kernels of this process wait for peers.
//
// What a device hands out (regions, memory, events, reach) may be let go of on any thread and at any time,
// also where no call of the device is allowed: a device that cannot free there puts it aside.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "lib/base/status.h"
#include "lib/device/device.h"
#include "lib/device/group_budget.h"
#include "reduce_kernels/call_launch.h"

namespace rocenante {

// A point in the work of streams. Freed only when no stream and no graph needs it.
class StreamEvent {
 public:
  virtual ~StreamEvent() = default;
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

 protected:
  StreamEvent() = default;
};

// A node of a graph that is being captured; valid as long as the capture.
class GraphNode;

// Whether a stream is being captured into a graph, and into which: ids are unique in the process and not
// used again, unlike handles.
struct StreamCapture {
  bool active = false;
  std::uint64_t id = 0;
};

// Memory of a device: `host` is null where the host may not touch it.
struct DeviceMemory {
  std::shared_ptr<void> owner;
  unsigned char* device = nullptr;
  unsigned char* host = nullptr;
  std::uint64_t bytes = 0;
};

// Where a region of a peer is mapped in this process.
struct PeerMemory {
  unsigned char* host = nullptr;
  std::uint64_t bytes = 0;
  PeerAccess access = PeerAccess::kReadOnly;
  std::shared_ptr<void> mapping;  // keeps it mapped
};

class StreamDevice : public Device {
 public:
  DriveMode drive_mode() const final { return DriveMode::kStream; }

  // Zeroed memory that host and device both read and write, cached on the host, in no NIC's or peer's
  // reach.
  virtual Result<DeviceMemory> allocate_shared(std::uint64_t bytes) = 0;
  // Zeroed memory of the device alone.
  virtual Result<DeviceMemory> allocate_local(std::uint64_t bytes) = 0;
  // The device's address of host memory: that of a region of this device, or of a peer's mapping that was
  // made reachable. InvalidArgument for memory that it cannot reach.
  virtual Result<unsigned char*> device_address(const void* host) const = 0;
  // Lets the device access a peer's memory until the result is let go of; the device lets go of the mapping
  // after that.
  virtual Result<std::shared_ptr<void>> make_reachable(const PeerMemory& memory) = 0;
  // Copies into memory of allocate_local(), at set-up.
  virtual Status fill(const DeviceMemory& to, const void* from, std::uint64_t bytes) = 0;

  // Success if calls may read and write [buffer, buffer + bytes) on the device; the error names argument
  // and memory.
  virtual Status check_buffer(const char* argument, const void* buffer, std::uint64_t bytes) const = 0;

  virtual Result<StreamCapture> capture_of(void* stream) = 0;
  virtual Result<std::unique_ptr<StreamEvent>> make_event() = 0;
  // All work enqueued on `stream` from now on comes after the last record of `event`; none yet means no
  // wait. In a capture this is an external node: what counts is the last record when the graph is launched.
  virtual Status wait(void* stream, StreamEvent& event) = 0;
  // Outside of captures.
  virtual Status record(void* stream, StreamEvent& event) = 0;
  // Whether the work before the last record has ended; true if there was none. Waits for nothing and is
  // allowed whatever is being captured.
  virtual Result<bool> has_passed(StreamEvent& event) = 0;
  // Enqueues a call. Returns at once, whether or not any peer has enqueued its own. In a capture the node
  // that it has become, else null.
  virtual Result<GraphNode*> launch(void* stream, const CallLaunch& call) = 0;

  // Inside the capture of `stream`: what comes next on it depends on `earlier` of the same capture, too. An
  // ordinary edge, as a user's fork and join.
  virtual Status join(GraphNode* earlier, void* stream) = 0;
  // Inside the capture of `stream`: a run of the graph records `event` when it has come past `last`, an
  // external node. One node serves all calls of a capture: `record` is null at the first and then what this
  // returned. It is on no stream's way, so that no call waits for it.
  virtual Result<GraphNode*> record_in_graph(void* stream, StreamEvent& event, GraphNode* last,
                                             GraphNode* record) = 0;
  // The graph that `stream` is being captured into holds `reference` until its last instance is gone; it
  // is then let go of on any thread, where no call of this device is allowed.
  virtual Status keep(void* stream, std::shared_ptr<void> reference) = 0;

  // Of the groups of launches that wait; outlives the device where a graph has a share of it.
  GroupBudget& group_budget() const { return *groups_; }

 protected:
  explicit StreamDevice(const GroupLimits& limits) : groups_(std::make_shared<GroupBudget>(limits)) {}

 private:
  const std::shared_ptr<GroupBudget> groups_;
};

}  // namespace rocenante
