// SPDX-License-Identifier: Apache-2.0
//
// Streams, captures and graphs of the simulated device; its memory is in sim_memory.cc.
#include "tests/support/sim_device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "lib/device/registry.h"
#include "tests/support/sim_launch.h"
#include "tests/support/sim_stream.h"

namespace rocenante::test {
namespace {

thread_local std::shared_ptr<SimDevice> current_device;

// Of the process, and outliving what its last threads do.
struct Numbered {
  std::mutex mutex;
  std::vector<std::shared_ptr<SimDevice>> devices;
};
Numbered& numbered() {
  static auto* const instance = new Numbered;
  return *instance;
}

Result<std::shared_ptr<Device>> device_of_number(int number) {
  const std::lock_guard lock(numbered().mutex);
  const auto at = static_cast<std::size_t>(number);
  if (at < numbered().devices.size()) return std::shared_ptr<Device>(numbered().devices[at]);
  return make_error(Code::kInvalidUsage, "ROCENANTE_DEVICE=sim: there is no simulated device {}", number);
}

const bool kRegistered = [] {
  register_device("sim", [](int number) -> Result<std::shared_ptr<Device>> {
    if (number != kCurrentDevice) return device_of_number(number);
    if (current_device != nullptr) return std::shared_ptr<Device>(current_device);
    return make_error(Code::kInvalidUsage, "ROCENANTE_DEVICE=sim: this thread has no simulated device");
  });
  return true;
}();

std::uint64_t next_capture_id() {
  static std::atomic<std::uint64_t> next{1};
  return next.fetch_add(1);
}

// Where no call of a device is allowed, no test looks at an error.
void check_allowed(const char* call) {
  if (!SimGraph::is_letting_go()) return;
  std::fprintf(stderr, "%s was called while a graph let go of what it had kept\n", call);
  std::abort();
}

SimNode* node_of(GraphNode* node) {
  return reinterpret_cast<SimNode*>(node);
}
GraphNode* handle_of(SimNode* node) {
  return reinterpret_cast<GraphNode*>(node);
}

}  // namespace

SimDevice::SimDevice(SimShape shape)
    : StreamDevice({shape.groups, shape.roomy_groups, shape.resident_groups}), shape_(shape) {
  (void)kRegistered;
  streams_[nullptr] = std::make_shared<SimStream>(pool_);
}

SimDevice::~SimDevice() = default;

void SimDevice::make_current(std::shared_ptr<SimDevice> device) {
  current_device = std::move(device);
}

void SimDevice::number(std::vector<std::shared_ptr<SimDevice>> devices) {
  const std::lock_guard lock(numbered().mutex);
  numbered().devices = std::move(devices);
}

void* SimDevice::make_stream() {
  auto stream = std::make_shared<SimStream>(pool_);
  const std::lock_guard lock(mutex_);
  void* const handle = stream.get();
  streams_[handle] = std::move(stream);
  return handle;
}

void SimDevice::destroy_stream(void* stream) {
  const std::lock_guard lock(mutex_);
  streams_.erase(stream);
}

Result<SimDevice::StreamPtr> SimDevice::find(const void* stream, const char* call) const {
  check_allowed(call);
  if (stream == nullptr) ++default_stream_uses_;
  const auto at = streams_.find(stream);
  if (at != streams_.end()) return at->second;
  return make_error(Code::kInvalidArgument, "stream is {}: not a stream of the simulated device", stream);
}

Status SimDevice::check_stream(const void* stream) const {
  const std::lock_guard lock(mutex_);
  return find(stream, "check_stream").status();
}

SimNode* SimDevice::submit(SimStream& stream, SimNode node) {
  if (stream.capture != nullptr) {
    node.before = stream.frontier;
    SimNode* const added = stream.capture->graph->add(std::move(node));
    stream.frontier = {added};
    return added;
  }
  switch (node.kind) {
    case SimNode::Kind::kWork:
      stream.enqueue(std::move(node.work));
      break;
    case SimNode::Kind::kWait:
      if (Ticket ticket = node.event->latest(); ticket != nullptr) {
        stream.enqueue([ticket = std::move(ticket)] {
          ticket->wait();
          return Verdict::kReady;
        });
      }
      break;
    case SimNode::Kind::kRecord:
      stream.enqueue([ticket = node.event->renew()] {
        ticket->finish();
        return Verdict::kReady;
      });
      break;
  }
  return nullptr;
}

// What a program does.

Status SimDevice::run(void* stream, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  RCN_ASSIGN(const StreamPtr found, find(stream, "run"));
  SimNode node;
  node.work = [work = std::move(work)] {
    work();
    return Verdict::kReady;
  };
  (void)submit(*found, std::move(node));
  return {};
}

Result<SimMark> SimDevice::mark(void* stream) {
  const std::lock_guard lock(mutex_);
  RCN_ASSIGN(const StreamPtr found, find(stream, "mark"));
  if (found->capture != nullptr) return SimMark{nullptr, found->capture, found->frontier};
  auto ticket = std::make_shared<SimTicket>();
  found->enqueue([ticket] {
    ticket->finish();
    return Verdict::kReady;
  });
  return SimMark{ticket, nullptr, {}};
}

Status SimDevice::follow(void* stream, const SimMark& mark) {
  const std::lock_guard lock(mutex_);
  RCN_ASSIGN(const StreamPtr found, find(stream, "follow"));
  if (mark.capture == nullptr && found->capture == nullptr) {
    found->enqueue([ticket = mark.ticket] {
      ticket->wait();
      return Verdict::kReady;
    });
    return {};
  }
  if (mark.capture == nullptr || (found->capture != nullptr && found->capture != mark.capture)) {
    found->capture->broken = "one of its streams waited for work outside of it";
    return make_error(Code::kInvalidUsage, "a stream that is being captured waits for work outside");
  }
  found->capture = mark.capture;
  found->frontier.insert(found->frontier.end(), mark.nodes.begin(), mark.nodes.end());
  return {};
}

Status SimDevice::synchronise(void* stream) {
  StreamPtr found;
  {
    const std::lock_guard lock(mutex_);
    RCN_ASSIGN(found, find(stream, "synchronise"));
    if (found->capture != nullptr) {
      found->capture->broken = "one of its streams was synchronised";
      return make_error(Code::kInvalidUsage, "a stream that is being captured was synchronised");
    }
  }
  switch (found->drain()) {
    case Verdict::kAborted:
      return make_error(Code::kRemoteError, "a call on the stream was aborted");
    case Verdict::kMismatch:
      return make_error(Code::kInvalidUsage, "a call on the stream met another call");
    default:
      return {};
  }
}

Status SimDevice::begin_capture(void* stream) {
  const std::lock_guard lock(mutex_);
  RCN_ASSIGN(const StreamPtr found, find(stream, "begin_capture"));
  if (stream == nullptr) return make_error(Code::kInvalidUsage, "the default stream cannot be captured");
  if (found->capture != nullptr) return make_error(Code::kInvalidUsage, "the stream is being captured");
  found->capture = std::make_shared<SimCapture>();
  found->capture->id = next_capture_id();
  found->capture->graph = std::make_shared<SimGraph>(pool_);
  found->is_origin = true;
  found->frontier.clear();
  ++captures_;
  return {};
}

Result<std::shared_ptr<SimGraph>> SimDevice::end_capture(void* stream) {
  const std::lock_guard lock(mutex_);
  RCN_ASSIGN(const StreamPtr found, find(stream, "end_capture"));
  if (!found->is_origin) {
    return make_error(Code::kInvalidUsage, "the capture did not begin on this stream");
  }
  const std::shared_ptr<SimCapture> capture = found->capture;
  const std::vector<SimNode*> all = found->frontier;
  std::string broken = capture->broken;
  for (const auto& [handle, other] : streams_) {
    if (other->capture != capture) continue;
    for (const SimNode* node : other->frontier) {
      if (!capture->graph->follows(all, node)) broken = "a stream was not joined";
    }
    other->capture = nullptr;
    other->frontier.clear();
  }
  found->is_origin = false;
  --captures_;
  if (!broken.empty()) return make_error(Code::kInvalidUsage, "the capture is no graph: {}", broken);
  return capture->graph;
}

Status SimDevice::replay(const std::shared_ptr<SimGraph>& graph, void* stream) {
  const std::lock_guard lock(mutex_);
  RCN_ASSIGN(const StreamPtr found, find(stream, "replay"));
  if (found->capture != nullptr) {
    return make_error(Code::kInvalidUsage, "graphs in graphs are not simulated");
  }
  found->enqueue(graph->launch(graph));
  return {};
}

// The seam.

Result<StreamCapture> SimDevice::capture_of(void* stream) {
  const std::lock_guard lock(mutex_);
  RCN_ASSIGN(const StreamPtr found, find(stream, "capture_of"));
  if (found->capture == nullptr) return StreamCapture{};
  if (!found->capture->broken.empty()) {
    return make_error(Code::kInvalidUsage, "the capture of the stream is broken: {}",
                      found->capture->broken);
  }
  return StreamCapture{true, found->capture->id};
}

Result<std::unique_ptr<StreamEvent>> SimDevice::make_event() {
  RCN_TRY(begin_allocation("make_event"));
  return std::unique_ptr<StreamEvent>(std::make_unique<SimEvent>());
}

Status SimDevice::wait(void* stream, StreamEvent& event) {
  const std::lock_guard lock(mutex_);
  RCN_ASSIGN(const StreamPtr found, find(stream, "wait"));
  SimNode node;
  node.kind = SimNode::Kind::kWait;
  node.event = static_cast<SimEvent*>(&event);
  (void)submit(*found, std::move(node));
  return {};
}

Status SimDevice::record(void* stream, StreamEvent& event) {
  const std::lock_guard lock(mutex_);
  RCN_ASSIGN(const StreamPtr found, find(stream, "record"));
  if (found->capture != nullptr) return make_error(Code::kInternalError, "record() in a capture");
  SimNode node;
  node.kind = SimNode::Kind::kRecord;
  node.event = static_cast<SimEvent*>(&event);
  (void)submit(*found, std::move(node));
  return {};
}

Result<bool> SimDevice::has_passed(StreamEvent& event) {
  check_allowed("has_passed");
  const Ticket latest = static_cast<SimEvent&>(event).latest();
  return latest == nullptr || latest->is_done();
}

Result<GraphNode*> SimDevice::launch(void* stream, const CallLaunch& call) {
  const std::lock_guard lock(mutex_);
  RCN_ASSIGN(const StreamPtr found, find(stream, "launch"));
  SimNode node;
  node.work = [this, call] {
    ++launches_;
    last_lane_ = call.lane;
    last_groups_ = call.groups;
    return run_launch(pool_, call, shape_.threads, shape_.bytes_per_group);
  };
  return handle_of(submit(*found, std::move(node)));
}

Status SimDevice::join(GraphNode* earlier, void* stream) {
  const std::lock_guard lock(mutex_);
  RCN_ASSIGN(const StreamPtr found, find(stream, "join"));
  if (found->capture == nullptr) return make_error(Code::kInternalError, "join() outside of a capture");
  found->frontier.push_back(node_of(earlier));
  return {};
}

Result<GraphNode*> SimDevice::record_in_graph(void* stream, StreamEvent& event, GraphNode* last,
                                              GraphNode* record) {
  const std::lock_guard lock(mutex_);
  RCN_ASSIGN(const StreamPtr found, find(stream, "record_in_graph"));
  if (found->capture == nullptr) {
    return make_error(Code::kInternalError, "record_in_graph() outside of a capture");
  }
  if (record == nullptr) {
    SimNode node;
    node.kind = SimNode::Kind::kRecord;
    node.event = static_cast<SimEvent*>(&event);
    record = handle_of(found->capture->graph->add(std::move(node)));
  }
  node_of(record)->before.push_back(node_of(last));
  return record;
}

Status SimDevice::keep(void* stream, std::shared_ptr<void> reference) {
  const std::lock_guard lock(mutex_);
  RCN_ASSIGN(const StreamPtr found, find(stream, "keep"));
  if (found->capture == nullptr) return make_error(Code::kInternalError, "keep() outside of a capture");
  found->capture->graph->keep(std::move(reference));
  return {};
}

Status SimDevice::begin_allocation(const char* call) {
  check_allowed(call);
  const std::lock_guard lock(mutex_);
  ++allocations_;
  if (captures_ == 0) return {};
  return make_error(Code::kInvalidUsage, "{} while a stream is being captured", call);
}

}  // namespace rocenante::test
