// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/stream_calls.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "transports/mapped_link.h"

namespace rocenante {
namespace {

using protocol::DeviceLane;
using protocol::DeviceWords;
using protocol::DoorbellRing;
using protocol::kLineBytes;
using protocol::kParities;
using protocol::PeerLink;
using protocol::round_up;

// What of a lane is in the device's own memory, in this order, each from a line of its own on.
struct LocalLayout {
  explicit LocalLayout(std::uint32_t ranks)
      : links(round_up(sizeof(DeviceLane), kLineBytes)),
        staged(links + round_up(ranks * sizeof(PeerLink), kLineBytes)),
        finished(staged + kParities * sizeof(protocol::ArrivalCounter)),
        epoch(finished + kParities * sizeof(protocol::ArrivalCounter)),
        abort_word(epoch + kLineBytes),
        bytes(abort_word + kLineBytes) {}

  const std::uint64_t links, staged, finished, epoch, abort_word, bytes;
};

// The same for the memory that host and device share.
struct SharedLayout {
  explicit SharedLayout(std::uint32_t ranks)
      : ring(round_up(sizeof(DeviceWords), kLineBytes)),
        peer_states(ring + sizeof(DoorbellRing)),
        bytes(round_up(peer_states + ranks * sizeof(std::uint32_t), kLineBytes)) {}

  const std::uint64_t ring, peer_states, bytes;
};

template <class T>
T* at(unsigned char* base, std::uint64_t offset) {
  return reinterpret_cast<T*>(base + offset);
}

// The device's addresses of this rank's regions.
struct OwnRegions {
  unsigned char* inbox;
  unsigned char* outbox;
};

// A pointer into the own inbox, for the device.
template <class T>
T* moved(T* pointer, const Region& inbox, unsigned char* device_inbox) {
  if (pointer == nullptr) return nullptr;
  return reinterpret_cast<T*>(device_inbox +
                              (reinterpret_cast<const unsigned char*>(pointer) - inbox.address()));
}

// What the peer sends stands at the same place of whichever inbox it writes.
PeerLink carried_link(const StreamSetup& setup, std::uint32_t peer, const OwnRegions& own) {
  PeerLink link = setup.lane->peers[peer];
  unsigned char* inbox = own.inbox;
  if (const auto& received = setup.device_inboxes[peer]; received != nullptr) inbox = received->device;
  for (std::uint64_t parity = 0; parity < kParities; ++parity) {
    link.inbound[parity] = moved(link.inbound[parity], *setup.inbox, inbox);
    link.source[parity] = moved(link.source[parity], *setup.inbox, inbox);
    link.tag[parity] = moved(link.tag[parity], *setup.inbox, inbox);
  }
  return link;
}

// `reach` gets what keeps the peer's memory within the device's reach.
Result<PeerLink> device_link(const StreamSetup& setup, std::uint32_t peer, StreamDevice& device,
                             const OwnRegions& own, std::vector<std::shared_ptr<void>>* reach) {
  const MappedRegions& mapped = setup.mapped[peer];
  if (mapped.owner == nullptr) return carried_link(setup, peer, own);
  RCN_ASSIGN(std::shared_ptr<void> inbox, device.make_reachable({mapped.inbox, mapped.inbox_bytes,
                                                                 PeerAccess::kReadWrite, mapped.owner}));
  reach->push_back(std::move(inbox));
  RCN_ASSIGN(std::shared_ptr<void> outbox, device.make_reachable({mapped.outbox, mapped.outbox_bytes,
                                                                  PeerAccess::kReadOnly, mapped.owner}));
  reach->push_back(std::move(outbox));
  RCN_ASSIGN(unsigned char* const peer_inbox, device.device_address(mapped.inbox));
  RCN_ASSIGN(const unsigned char* const peer_outbox, device.device_address(mapped.outbox));
  PeerLink link = mapped_link(setup.geometry, setup.lane->rank, peer, own.inbox, peer_inbox, peer_outbox);
  link.wake = nullptr;  // a device wakes nobody, and nobody sleeps
  return link;
}

}  // namespace

// Everything that a launch touches. Kept by the communicator and by every graph that has calls of it.
struct StreamCalls::State {
  std::shared_ptr<Region> inbox, outbox;
  std::vector<std::shared_ptr<void>> reach;  // of the peers' memory
  std::vector<std::shared_ptr<DeviceInbox>> device_inboxes;
  DeviceMemory local;
  DeviceMemory shared;
  std::unique_ptr<StreamEvent> event;
  GroupShare groups;
  DeviceLane* lane = nullptr;            // the device's address
  DeviceWords* words = nullptr;          // the host's
  std::uint32_t* peer_states = nullptr;  // the host's
  DoorbellRing* ring = nullptr;          // the host's
};

// A capture that has calls of the communicator. Kept by its graph.
struct StreamCalls::Captured {
  std::uint64_t id = 0;
  std::shared_ptr<State> state;
  GraphNode* last = nullptr;    // the last call
  GraphNode* record = nullptr;  // behind all of them
};

namespace {

// Memory that a launch may still use although its communicator is gone: the stream has not come to it.
// Looked at whenever another communicator is made or goes.
class Parked {
 public:
  void add(std::shared_ptr<Device> device, std::shared_ptr<void> state, StreamEvent* event) {
    const std::lock_guard lock(mutex_);
    all_.push_back({std::move(device), std::move(state), event});
  }
  void sweep() {
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [](const One& one) {
      const Result<bool> passed = static_cast<StreamDevice&>(*one.device).has_passed(*one.event);
      return passed.ok() && passed.value();
    });
  }

 private:
  struct One {
    std::shared_ptr<Device> device;
    std::shared_ptr<void> state;
    StreamEvent* event;  // in `state`
  };
  std::mutex mutex_;
  std::vector<One> all_;
};

// Never destroyed: devices may be gone before static objects are.
Parked& parked() {
  static Parked* const instance = new Parked;
  return *instance;
}

}  // namespace

StreamCalls::StreamCalls(std::shared_ptr<Device> device, std::shared_ptr<State> state)
    : owned_device_(std::move(device)),
      device_(static_cast<StreamDevice&>(*owned_device_)),
      state_(std::move(state)) {}

StreamCalls::~StreamCalls() {
  parked().sweep();
  const Result<bool> idle = is_idle();
  if (!idle.ok() || !idle.value()) parked().add(owned_device_, state_, state_->event.get());
}

Result<std::unique_ptr<StreamCalls>> StreamCalls::create(const StreamSetup& setup) {
  parked().sweep();
  auto& device = static_cast<StreamDevice&>(*setup.device);
  const std::uint32_t ranks = setup.lane->ranks;
  const LocalLayout local(ranks);
  const SharedLayout shared(ranks);
  auto state = std::make_shared<State>();
  state->inbox = setup.inbox;
  state->outbox = setup.outbox;
  state->device_inboxes = setup.device_inboxes;
  RCN_ASSIGN(state->local, device.allocate_local(local.bytes));
  RCN_ASSIGN(state->shared, device.allocate_shared(shared.bytes));
  RCN_ASSIGN(state->event, device.make_event());
  // Without peers one group, which waits for nobody: nothing would hold several back from running rounds
  // apart.
  if (ranks != 1) {
    RCN_ASSIGN(state->groups, device.group_budget().take());
  }
  state->lane = at<DeviceLane>(state->local.device, 0);
  state->words = at<DeviceWords>(state->shared.host, 0);
  state->peer_states = at<std::uint32_t>(state->shared.host, shared.peer_states);
  state->ring = at<DoorbellRing>(state->shared.host, shared.ring);

  OwnRegions own{};
  RCN_ASSIGN(own.inbox, device.device_address(setup.inbox->address()));
  RCN_ASSIGN(own.outbox, device.device_address(setup.outbox->address()));
  std::vector<PeerLink> links(ranks);
  for (std::uint32_t peer = 0; peer < ranks; ++peer) {
    if (peer == setup.lane->rank) continue;
    RCN_ASSIGN(links[peer], device_link(setup, peer, device, own, &state->reach));
  }

  unsigned char* const base = state->local.device;
  DeviceLane lane{};
  lane.lane = *setup.lane;
  lane.lane.may_sleep = false;
  lane.lane.peers = at<PeerLink>(base, local.links);
  for (std::uint64_t parity = 0; parity < kParities; ++parity)
    lane.lane.send[parity] = own.outbox + setup.geometry.send_offset(parity);
  lane.lane.epoch = at<std::uint64_t>(base, local.epoch);
  lane.own_abort = at<std::uint64_t>(base, local.abort_word);
  lane.lane.abort_word = lane.own_abort;
  lane.lane.staged = at<protocol::ArrivalCounter>(base, local.staged);
  lane.lane.finished = at<protocol::ArrivalCounter>(base, local.finished);
  lane.ring = setup.lane->all_mapped ? nullptr : at<DoorbellRing>(state->shared.device, shared.ring);
  lane.words = at<DeviceWords>(state->shared.device, 0);
  lane.peer_states = at<std::uint32_t>(state->shared.device, shared.peer_states);
  lane.suspect_ns = setup.suspect_ns;
  lane.timeout_ns = setup.timeout_ns;
  lane.first_timeout_ns = setup.first_timeout_ns;

  std::vector<unsigned char> image(local.bytes);
  std::memcpy(image.data(), &lane, sizeof lane);
  std::memcpy(image.data() + local.links, links.data(), links.size() * sizeof(PeerLink));
  RCN_TRY(device.fill(state->local, image.data(), image.size()));
  return std::unique_ptr<StreamCalls>(new StreamCalls(setup.device, std::move(state)));
}

DoorbellRing* StreamCalls::ring() const {
  return state_->ring;
}

Status StreamCalls::enqueue(CallLaunch call, void* stream, bool* changed) {
  call.lane = state_->lane;
  call.groups = state_->groups.groups();
  *changed = false;
  RCN_ASSIGN(const StreamCapture capture, device_.capture_of(stream));
  *changed = true;
  return capture.active ? this->capture(call, stream, capture.id) : enqueue_eagerly(call, stream);
}

// Wait first, then launch: the launch stages into slots that the call before it may still be using.
Status StreamCalls::enqueue_eagerly(const CallLaunch& call, void* stream) {
  RCN_TRY(device_.wait(stream, *state_->event));
  RCN_TRY(device_.launch(stream, call).status());
  return device_.record(stream, *state_->event);
}

Status StreamCalls::capture(const CallLaunch& call, void* stream, std::uint64_t id) {
  Captured* captured = find_capture(id);
  if (captured != nullptr) {
    RCN_TRY(device_.join(captured->last, stream));
  } else {
    std::erase_if(captures_, [](const std::weak_ptr<Captured>& held) { return held.expired(); });
    const auto made = std::make_shared<Captured>(Captured{id, state_, nullptr, nullptr});
    RCN_TRY(device_.keep(stream, made));
    captures_.push_back(made);
    RCN_TRY(device_.wait(stream, *state_->event));
    captured = made.get();
  }
  RCN_ASSIGN(captured->last, device_.launch(stream, call));
  RCN_ASSIGN(captured->record,
             device_.record_in_graph(stream, *state_->event, captured->last, captured->record));
  return {};
}

// A graph that is being captured keeps its own, so what is found stays.
StreamCalls::Captured* StreamCalls::find_capture(std::uint64_t id) const {
  for (const std::weak_ptr<Captured>& held : captures_) {
    if (const std::shared_ptr<Captured> captured = held.lock(); captured != nullptr && captured->id == id)
      return captured.get();
  }
  return nullptr;
}

void StreamCalls::mirror_abort(std::uint64_t word) {
  env_.store_release(&state_->words->host_abort, word);
}

void StreamCalls::note_peer(std::uint32_t peer, protocol::PeerState state) {
  std::uint32_t before = env_.load_relaxed(&state_->peer_states[peer]);
  while (before != protocol::kGone &&
         !__atomic_compare_exchange_n(&state_->peer_states[peer], &before, state, false, __ATOMIC_RELEASE,
                                      __ATOMIC_RELAXED)) {
  }
  if (state == protocol::kGone) env_.store_release(&state_->words->absent, std::uint32_t{1});
}

std::optional<DeviceFailure> StreamCalls::failure() const {
  const DeviceWords& words = *state_->words;
  const std::uint64_t word = env_.load_acquire(&words.device_abort);
  if (word == 0) return std::nullopt;
  return DeviceFailure{protocol::unpack_abort(word),
                       {env_.load_relaxed(&words.failure.epoch), env_.load_relaxed(&words.failure.peer),
                        env_.load_relaxed(&words.failure.seen), env_.load_relaxed(&words.failure.tag),
                        env_.load_relaxed(&words.failure.expected)}};
}

Result<bool> StreamCalls::is_idle() const {
  return device_.has_passed(*state_->event);
}

}  // namespace rocenante
