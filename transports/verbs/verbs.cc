// SPDX-License-Identifier: Apache-2.0
#include "transports/verbs/verbs.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <map>
#include <span>

#include "lib/base/log.h"
#include "lib/net/crypto.h"
#include "lib/net/fork.h"
#include "transports/verbs/blob.h"
#include "transports/verbs/rail_end.h"
#include "transports/verbs/transport.h"

namespace rocenante {
namespace {

constexpr std::uint32_t kPacketNumbers = 1u << 24;

std::uint32_t random_packet_number() {
  std::uint32_t number = 0;
  net::random_bytes(std::as_writable_bytes(std::span(&number, 1)));
  return number % kPacketNumbers;
}

bool is_on_streams(const Device* device) {
  return device != nullptr && device->drive_mode() == DriveMode::kStream;
}

}  // namespace

VerbsTransport::~VerbsTransport() {
  if (net::fork_generation() != fork_generation_) {
    // The parent's: closing them here would take them from it.
    for (RailEnd& rail : rails_) rail.forget();
    for (auto& adapter : adapters_) adapter->forget();
    return;
  }
  // Failure rule 6: no queue pair touches memory any more when the regions are deregistered.
  for (RailEnd& rail : rails_) rail.stop();
  drain(net::Deadline::after_s(kDrainSeconds));
}

Result<std::string> VerbsTransport::open(const TransportContext& context) {
  context_ = context;
  settings_ = QueueSettings::from(*context.config, context.software_rails);
  requests_.emplace(settings_.immediate);
  peers_.resize(context.ranks);
  first_packet_ = random_packet_number();
  RCN_TRY(open_adapters());
  RCN_TRY(choose_receive_memory());
  if (settings_.immediate) RCN_TRY(open_events());
  for (std::uint32_t peer = 0; peer < context.ranks; ++peer) {
    peers_[peer].rails.reserve(context.rails[peer].size());
    for (const fabric::Rail& rail : context.rails[peer]) {
      RCN_ASSIGN(RailEnd end, RailEnd::create(api_, *adapter_of(rail.local.device), rail, peer,
                                              rails_.size(), settings_));
      peers_[peer].rails.push_back(static_cast<std::uint32_t>(rails_.size()));
      rails_.push_back(std::move(end));
    }
  }
  return encode_blob(own_blob());
}

// Those that some rail uses, each with a completion queue that holds whatever its queue pairs can complete.
Status VerbsTransport::open_adapters() {
  std::map<std::string, std::uint32_t> rails_of;
  for (const auto& rails : context_.rails) {
    for (const fabric::Rail& rail : rails) ++rails_of[rail.local.device];
  }
  const std::uint32_t entries = kSendRequests + (settings_.immediate ? kReceiveRequests : 1);
  for (const auto& [device, count] : rails_of) {
    RCN_ASSIGN(std::unique_ptr<Adapter> adapter,
               Adapter::open(api_, device, *context_.inbox, *context_.outbox, count * entries,
                             settings_.immediate));
    adapters_.push_back(std::move(adapter));
  }
  return {};
}

Status VerbsTransport::open_events() {
  ready_ = net::open_socket([] { return ::eventfd(1, EFD_CLOEXEC); });
  events_ = net::open_socket([] { return ::epoll_create1(EPOLL_CLOEXEC); });
  if (!ready_ || !events_) return errno_error("verbs: no descriptor to wait on");
  for (const auto& adapter : adapters_) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, adapter->event_fd(), &event) != 0)
      return errno_error("verbs: the events of {}", adapter->device());
  }
  return {};
}

// The device's memory or none of it, whatever the peers do: each rank says where its own inbox is.
Status VerbsTransport::choose_receive_memory() {
  const std::string& setting = context_.config->text(Key::kReceiveMemory);
  const bool is_demanded = setting == "device";
  if (!is_demanded && (setting == "host" || !is_on_streams(context_.device))) return {};
  const Status received = receive_in_device();
  if (received.ok()) {
    log_info(static_cast<int>(context_.rank), "verbs: peers write the memory of the device {}",
             context_.device->name());
    return {};
  }
  for (const auto& adapter : adapters_) adapter->forget_device_inbox();
  device_inbox_.reset();
  if (is_demanded) {
    return make_error(received.code(), "verbs: ROCENANTE_RECEIVE_MEMORY=device cannot be: {}",
                      received.text());
  }
  log_info(static_cast<int>(context_.rank), "verbs: peers write host memory: {}", received.text());
  return {};
}

// Asks all before it takes anything: an adapter that cannot would keep its peers in host memory, and with
// them the others', since a transport has one inbox.
Status VerbsTransport::receive_in_device() {
  if (settings_.immediate)
    return Status(Code::kInvalidUsage, "ROCENANTE_SIGNAL=imm has the host store the signals");
  if (!is_on_streams(context_.device)) {
    return Status(Code::kInvalidUsage,
                  "calls are on no device that has memory of its own (ROCENANTE_DEVICE)");
  }
  for (const auto& adapter : adapters_) RCN_TRY(adapter->can_register_dma_bufs());
  RCN_ASSIGN(device_inbox_, context_.device->allocate_receive(context_.geometry.inbox_bytes()));
  for (const auto& adapter : adapters_) RCN_TRY(adapter->register_device_inbox(*device_inbox_));
  device_inbox_->dma_buf.reset();
  return {};
}

Adapter* VerbsTransport::adapter_of(const std::string& device) const {
  for (const auto& adapter : adapters_) {
    if (adapter->device() == device) return adapter.get();
  }
  return nullptr;
}

VerbsBlob VerbsTransport::own_blob() const {
  VerbsBlob blob;
  blob.first_packet = first_packet_;
  blob.received = context_.geometry.received;
  blob.inbox_bytes = context_.geometry.inbox_bytes();
  blob.in_device = device_inbox_ != nullptr;
  for (const auto& adapter : adapters_) {
    VerbsBlob::AdapterPart part{adapter->inbox_rkey(),
                                reinterpret_cast<std::uintptr_t>(context_.inbox->address())};
    if (blob.in_device) {
      part.device_rkey = adapter->device_inbox_rkey();
      part.device_inbox = reinterpret_cast<std::uintptr_t>(device_inbox_->device);
    }
    blob.adapters.push_back(part);
  }
  for (std::uint32_t peer = 0; peer < context_.ranks; ++peer) {
    VerbsBlob::PeerPart part{context_.recv_index[peer], {}};
    for (const std::uint32_t number : peers_[peer].rails) {
      const RailEnd& rail = rails_[number];
      const auto adapter = std::find_if(adapters_.begin(), adapters_.end(),
                                        [&](const auto& one) { return one.get() == &rail.adapter(); });
      part.rails.push_back({static_cast<std::uint8_t>(adapter - adapters_.begin()), rail.queue_pair(),
                            static_cast<std::uint8_t>(rail.mtu())});
    }
    blob.peers.push_back(std::move(part));
  }
  return blob;
}

Status VerbsTransport::connect(std::uint32_t peer, std::string_view blob, net::Deadline,
                               protocol::PeerLink* link) {
  VerbsBlob theirs;
  Peer& mine = peers_[peer];
  if (!decode_blob(blob, context_.ranks, &theirs)) {
    return make_error(Code::kRemoteError,
                      "verbs: rank {} sent a description of its queue pairs that cannot be read", peer);
  }
  const VerbsBlob::PeerPart& part = theirs.peers[context_.rank];
  if (part.rails.size() != mine.rails.size() || mine.rails.empty()) {
    return make_error(Code::kRemoteError, "verbs: rank {} has {} rails to rank {}, expected {}", peer,
                      part.rails.size(), context_.rank, mine.rails.size());
  }
  mine.geometry = context_.geometry;
  mine.geometry.received = theirs.received;
  if (theirs.inbox_bytes != mine.geometry.inbox_bytes()) {
    return make_error(Code::kRemoteError, "verbs: rank {} has an inbox of {} bytes, expected {}", peer,
                      theirs.inbox_bytes, mine.geometry.inbox_bytes());
  }
  mine.ends = &rails_[mine.rails.front()];
  const std::uint32_t single = (context_.rank + peer) % static_cast<std::uint32_t>(mine.rails.size());
  mine.single = mine.ends + single;
  // The peer takes the same rail, and notices stand in the line of the rail that brought them.
  mine.single_line = device_inbox_ != nullptr ? single : 0;
  RemotePlaces places;
  for (std::uint64_t parity = 0; parity < protocol::kParities; ++parity) {
    places.slots[parity] = mine.geometry.recv_offset(parity, part.recv_index);
    places.epochs[parity] =
        mine.geometry.signal_offset(parity, context_.rank, 0) + offsetof(protocol::SignalLine, epoch);
  }
  for (std::uint32_t i = 0; i < part.rails.size(); ++i) {
    const VerbsBlob::RailPart& rail = part.rails[i];
    const VerbsBlob::AdapterPart& adapter = theirs.adapters[rail.adapter];
    RemoteEnd remote{rail.queue_pair,
                     theirs.first_packet,
                     static_cast<ibv_mtu>(rail.mtu),
                     {adapter.rkey, adapter.inbox},
                     std::nullopt};
    if (theirs.in_device) remote.device = RemoteEnd::Inbox{adapter.device_rkey, adapter.device_inbox};
    RCN_TRY(rails_[mine.rails[i]].connect(remote, places, i, first_packet_));
  }
  for (std::uint64_t parity = 0; parity < protocol::kParities; ++parity) {
    unsigned char* const slot =
        context_.inbox->address() + context_.geometry.recv_offset(parity, context_.recv_index[peer]);
    link->tag[parity] = protocol::slot_tag(slot);
  }
  return {};
}

// How many bytes a put begins before its payload: the tag's, unless the peer's slot has it already. What
// put it there was a round of the same parity, which has completed, whichever rail it took (rule 4). Calls
// that are repeated then send no more than their payload, which would else need one packet more where it
// fills its last.
std::uint64_t VerbsTransport::tag_bytes(Peer& peer, const Put& put) {
  std::uint64_t& sent = peer.tags[put.epoch % protocol::kParities];
  if (sent == put.tag && put.tag != 0 && put.bytes != 0) return 0;
  sent = put.tag;
  return protocol::kSlotTagBytes;
}

// The tag stands before the payload on both sides and, where it goes, goes with its first byte.
Status VerbsTransport::post(std::span<const Put> puts) {
  for (const Put& put : puts) {
    Peer& peer = peers_[put.peer];
    if (!peer.failure.ok()) [[unlikely]]
      return peer.failure;
    peer.last_epoch = put.epoch;
    peer.last_lines = put.stripes;
    const std::uint64_t tag = tag_bytes(peer, put);
    if (put.stripes != 1) {
      RCN_TRY(put_striped(peer, put, tag));
      continue;
    }
    const auto* const from = static_cast<const unsigned char*>(put.payload) - tag;
    const auto bytes = static_cast<std::uint32_t>(put.bytes + tag);
    RCN_TRY(peer.single->put(*requests_, {from, -tag, bytes, 0, put.epoch}));
  }
  return {};
}

// Shares as protocol::range_of cuts them.
Status VerbsTransport::put_striped(const Peer& peer, const Put& put, std::uint64_t tag) {
  if (striped_.bytes != put.bytes || striped_.stripes != put.stripes) {
    std::uint64_t begin;
    striped_.bytes = put.bytes;
    striped_.stripes = put.stripes;
    protocol::range_of(0, put.stripes, 0, put.bytes, begin, striped_.share);
  }
  std::uint64_t begin = 0;
  for (std::uint32_t line = 0; line < put.stripes; ++line) {
    const std::uint64_t end = std::min(begin + striped_.share, put.bytes);
    const auto* const from = static_cast<const unsigned char*>(put.payload) + begin - tag;
    RCN_TRY(peer.ends[line].put(
        *requests_, {from, begin - tag, static_cast<std::uint32_t>(end - begin + tag), line, put.epoch}));
    tag = 0;
    begin = end;
  }
  return {};
}

bool VerbsTransport::drained() const {
  for (const auto& adapter : adapters_) {
    if (adapter->pending != 0) return false;
  }
  return std::all_of(rails_.begin(), rails_.end(), [](const RailEnd& rail) { return rail.idle(); });
}

protocol::SignalLine* VerbsTransport::line_from(std::uint32_t peer, std::uint64_t parity,
                                                std::uint32_t line) const {
  return reinterpret_cast<protocol::SignalLine*>(context_.inbox->address() +
                                                 context_.geometry.signal_offset(parity, peer, line));
}

// A peer that has signalled its part of the last round may fail or leave: nothing is missing (failure rule
// 5). Where a device has the signals, this is by their notices: what they tell of is with the device or on
// its way there, where no peer and no network can stop it any more.
bool VerbsTransport::expects(std::uint32_t peer) const {
  const Peer& mine = peers_[peer];
  const std::uint32_t first = mine.last_lines == 1 ? mine.single_line : 0;
  for (std::uint32_t line = first; line < first + mine.last_lines; ++line) {
    const std::uint64_t* const epoch = &line_from(peer, mine.last_epoch % protocol::kParities, line)->epoch;
    if (__atomic_load_n(epoch, __ATOMIC_ACQUIRE) < mine.last_epoch) return true;
  }
  return false;
}

Result<std::unique_ptr<Transport>> make_verbs_transport(const VerbsApi* api) {
  if (api == nullptr) {
    RCN_ASSIGN(api, load_verbs());
  }
  return std::unique_ptr<Transport>(std::make_unique<VerbsTransport>(*api));
}

}  // namespace rocenante
