// SPDX-License-Identifier: Apache-2.0
//
// What a communicator adds for a device with streams: the lane as the device sees it, the words between
// host and device, and the order of its calls across streams and graphs.
//
// Calls of one communicator run one after the other, in the order in which they were made: outside of
// captures by one event, which each call waits for and then records. In a capture by ordinary edges from
// call to call; the first also waits for the event and the last records it, as external nodes, which
// orders the graph's runs with everything else. A graph keeps the memory that its calls use.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lib/base/status.h"
#include "lib/comm/host_env.h"
#include "lib/device/stream_device.h"
#include "lib/protocol/abort_word.h"
#include "lib/protocol/device_call.h"
#include "transports/transport.h"

namespace rocenante {

// What the host knows of a lane before the device does. Pointers in `lane` are the host's.
struct StreamSetup {
  std::shared_ptr<Device> device;  // a StreamDevice
  const protocol::Lane* lane = nullptr;
  protocol::Geometry geometry;
  std::shared_ptr<Region> inbox;
  std::shared_ptr<Region> outbox;
  // Per peer; without an owner where its memory is not mapped.
  std::vector<MappedRegions> mapped;
  // Per peer; null where what it sends arrives in `inbox`.
  std::vector<std::shared_ptr<DeviceInbox>> device_inboxes;
  std::uint64_t timeout_ns = 0;
  std::uint64_t first_timeout_ns = 0;
  std::uint64_t suspect_ns = 0;
};

// Why the device gave up.
struct DeviceFailure {
  protocol::AbortCause cause;
  protocol::FailureRecord record;
};

class StreamCalls {
 public:
  // Takes all memory that calls will need.
  static Result<std::unique_ptr<StreamCalls>> create(const StreamSetup& setup);
  ~StreamCalls();
  StreamCalls(const StreamCalls&) = delete;
  StreamCalls& operator=(const StreamCalls&) = delete;

  StreamDevice& device() const { return device_; }
  // The doorbells of the carried members, for the host. Lives as long as this.
  protocol::DoorbellRing* ring() const;

  // Enqueues a call, whose lane and groups are filled in here; one thread at a time. An error before
  // anything was enqueued sets `*changed` to false.
  Status enqueue(CallLaunch call, void* stream, bool* changed);

  // Any thread. Calls that wait end, later ones and replays do nothing.
  void mirror_abort(std::uint64_t word);
  // Any thread; kGone is for good.
  void note_peer(std::uint32_t peer, protocol::PeerState state);
  // Any thread; does not touch the device.
  std::optional<DeviceFailure> failure() const;
  // Whether all calls that were enqueued, replays included, have ended.
  Result<bool> is_idle() const;

 private:
  struct State;
  struct Captured;

  StreamCalls(std::shared_ptr<Device> device, std::shared_ptr<State> state);
  Status enqueue_eagerly(const CallLaunch& call, void* stream);
  Status capture(const CallLaunch& call, void* stream, std::uint64_t id);
  Captured* find_capture(std::uint64_t id) const;

  const std::shared_ptr<Device> owned_device_;
  StreamDevice& device_;
  const std::shared_ptr<State> state_;
  HostEnv env_;
  // Of the graphs that are alive; each is kept by its graph.
  std::vector<std::weak_ptr<Captured>> captures_;
};

}  // namespace rocenante
