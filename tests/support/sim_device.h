// SPDX-License-Identifier: Apache-2.0
//
// A device with streams, made of threads: in-order streams, events, captures and graphs. Its launches run
// the protocol text of the GPU, with groups of threads for CTAs. What CUDA forbids is an error here, or
// ends the program where no test would look at an error.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "lib/device/stream_device.h"
#include "tests/support/sim_graph.h"
#include "tests/support/sim_pool.h"

namespace rocenante::test {

// How a launch runs.
struct SimShape {
  std::uint32_t groups = 2;
  std::uint32_t threads = 2;  // of each group
  // Small, so that small calls take several groups; calls of one communicator take more or fewer.
  std::uint64_t bytes_per_group = 64;
  // Of all communicators together (GroupLimits).
  std::uint32_t roomy_groups = 1024;
  std::uint32_t resident_groups = 1024;
  // Whether NICs may write to its own memory.
  bool receives = true;
};

// Which memory the device knows. Outlives the device, because what it handed out may.
class SimMemory {
 public:
  enum class Kind : std::uint8_t { kRegion, kShared, kLocal, kPeer, kReceive };

  void add(const void* address, std::uint64_t bytes, Kind kind);
  void remove(const void* address);
  // Whether all of [address, address + bytes) is memory of one of the kinds that `wanted` accepts.
  bool holds(const void* address, std::uint64_t bytes, bool (*wanted)(Kind)) const;
  std::size_t ranges() const;

 private:
  struct Range {
    std::uint64_t bytes;
    Kind kind;
    std::uint32_t uses;
  };
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Range> ranges_;
};

// A graph in the making.
struct SimCapture {
  std::uint64_t id = 0;
  std::shared_ptr<SimGraph> graph;
  std::string broken;  // why it cannot become a graph
};

class SimStream;

// A point of a stream, for a user's own forks and joins: of its work, or of the capture it is in.
struct SimMark {
  Ticket ticket;
  std::shared_ptr<SimCapture> capture;
  std::vector<SimNode*> nodes;
};

class SimDevice final : public StreamDevice {
 public:
  explicit SimDevice(SimShape shape = {});
  // Waits for all work.
  ~SimDevice() override;

  // Communicators that this thread makes with ROCENANTE_DEVICE=sim are on `device`, until it says
  // otherwise.
  static void make_current(std::shared_ptr<SimDevice> device);
  // The process's devices 0, 1 and so on, for who names one by its number.
  static void number(std::vector<std::shared_ptr<SimDevice>> devices);

  // What a program does with a device. Streams are known by their handles; null is the default stream.
  void* make_stream();
  // What is enqueued still runs.
  void destroy_stream(void* stream);
  // Memory for a call's buffers, zeroed.
  std::shared_ptr<unsigned char> buffer(std::uint64_t bytes);
  // A kernel of the user's.
  Status run(void* stream, std::function<void()> work);
  Result<SimMark> mark(void* stream);
  Status follow(void* stream, const SimMark& mark);
  // Waits for all work of the stream; an error if a call of ours has ended with one since the last time.
  Status synchronise(void* stream);
  Status begin_capture(void* stream);
  Result<std::shared_ptr<SimGraph>> end_capture(void* stream);
  Status replay(const std::shared_ptr<SimGraph>& graph, void* stream);

  // What tests ask.
  const SimShape& shape() const { return shape_; }
  std::uint64_t launches() const { return launches_; }        // begun
  std::uint32_t last_groups() const { return last_groups_; }  // that the last of them might have
  // The last completed round of the lane that was launched on last; only while nothing runs.
  std::uint64_t epoch() const { return *last_lane_.load()->lane.epoch; }
  std::uint64_t allocations() const { return allocations_; }  // of memory, events and reach, ever
  std::uint64_t default_stream_uses() const { return default_stream_uses_; }
  std::size_t memory_ranges() const { return memory_->ranges(); }  // not yet let go of

  // The seam.
  const char* name() const override { return "sim"; }
  Result<std::shared_ptr<Region>> allocate_region(std::uint64_t bytes, PeerAccess access) override;
  Status check_stream(const void* stream) const override;
  Result<std::shared_ptr<DeviceInbox>> allocate_receive(std::uint64_t bytes) override;
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
  using StreamPtr = std::shared_ptr<SimStream>;

  // The stream behind a handle, for `call`.
  Result<StreamPtr> find(const void* stream, const char* call) const;
  // Becomes a node of the stream's capture, or is enqueued; the node, or null.
  SimNode* submit(SimStream& stream, SimNode node);
  // An error while something is being captured: an allocation waits for all work.
  Status begin_allocation(const char* call);
  Result<DeviceMemory> allocate(std::uint64_t bytes, SimMemory::Kind kind);

  const SimShape shape_;
  const std::shared_ptr<SimMemory> memory_ = std::make_shared<SimMemory>();
  std::atomic<std::uint64_t> launches_{0};
  std::atomic<std::uint32_t> last_groups_{0};
  std::atomic<const protocol::DeviceLane*> last_lane_{nullptr};
  std::atomic<std::uint64_t> allocations_{0};
  mutable std::atomic<std::uint64_t> default_stream_uses_{0};

  // Of streams and captures, as the program sees them.
  mutable std::mutex mutex_;
  std::map<const void*, StreamPtr> streams_;
  std::uint64_t captures_ = 0;  // in progress
  SimPool pool_;                // ends first: its tasks use all of the above
};

}  // namespace rocenante::test
