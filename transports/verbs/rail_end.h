// SPDX-License-Identifier: Apache-2.0
//
// This end of one rail to one peer: a reliable queue pair and the puts it carries.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "lib/fabric/fabric.h"
#include "lib/protocol/layout.h"
#include "transports/verbs/adapter.h"
#include "transports/verbs/api.h"

namespace rocenante {

// The settings of all queue pairs of a communicator.
struct QueueSettings {
  bool immediate = false;  // ROCENANTE_SIGNAL is imm, or auto comes to that
  std::uint8_t traffic_class = 0;
  std::uint8_t service_level = 0;
  std::uint8_t timeout = 0;
  std::uint8_t retry_count = 0;
  static QueueSettings from(const Config& config, bool software_rails);
};

// What a peer says of its end.
struct RemoteEnd {
  // An inbox: the address is one of there.
  struct Inbox {
    std::uint32_t rkey = 0;
    std::uint64_t address = 0;
  };
  std::uint32_t queue_pair = 0;
  std::uint32_t first_packet = 0;
  ibv_mtu mtu = IBV_MTU_256;
  Inbox host;  // in host memory
  // The same in a device's own memory, which payloads and signals go to where it is there.
  std::optional<Inbox> device;
};

// A share of one payload and its signal.
struct Stripe {
  const unsigned char* from = nullptr;
  std::uint64_t offset = 0;  // of `from` in its slot, modulo 2^64: the first share begins before it
  std::uint32_t bytes = 0;
  std::uint32_t line = 0;
  std::uint64_t epoch = 0;  // also says which of the peer's slots and lines
};

// Where a peer keeps what comes from us, by parity. Offsets in its inbox.
struct RemotePlaces {
  std::array<std::uint64_t, protocol::kParities> slots{};
  std::array<std::uint64_t, protocol::kParities> epochs{};  // the first line's; others follow
};

// A payload's request, its signal's, and what takes the signal's place where the peer receives in device
// memory: the same without a completion, and the notice. A post reads all of a request, so all rails of a
// transport share these, and only what differs from the last time is written.
struct Requests {
  explicit Requests(bool immediate);
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  std::uint64_t epoch = 0;
  ibv_sge payload_memory{}, epoch_memory{};
  ibv_send_wr payload{}, signal{};
  ibv_send_wr quiet_signal{}, notice{};
};

// How much a queue pair may hold. The protocol has at most two rounds under way that are not known to have
// arrived; acknowledgements may be seen later than that.
inline constexpr std::uint32_t kQueuedStripes = 16;
inline constexpr std::uint32_t kSendRequests = 3 * kQueuedStripes;  // payload, signal, notice
inline constexpr std::uint32_t kReceiveRequests = 16;

// What a completion is of: the rail's number and this.
enum class Request : std::uint64_t { kPayload, kSignal, kReceive };
inline constexpr std::uint64_t kRequestBits = 2;

// What a put needs stands first, in one cache line.
class alignas(64) RailEnd {
 public:
  // In state INIT, with receive requests posted where `settings` need them. `number` stands in its
  // completions.
  static Result<RailEnd> create(const VerbsApi& api, Adapter& adapter, const fabric::Rail& rail,
                                std::uint32_t peer, std::uint64_t number, const QueueSettings& settings);

  // To RTS. `index`: which of the peer's rails this is. `first_packet`: the number the peer expects of our
  // first packet.
  Status connect(const RemoteEnd& remote, const RemotePlaces& places, std::uint32_t index,
                 std::uint32_t first_packet);

  // Queues a stripe and posts what fits. Never waits.
  Status put(Requests& requests, const Stripe& stripe) {
    if (outstanding_ < kQueuedStripes) [[likely]]
      return post(requests, stripe);
    return queue(stripe);
  }
  // Writes eight bytes at `to` in the peer's inbox in host memory, for probing.
  Status write_word(std::uint64_t to, std::uint64_t word) { return write_word_to(remote_.host, to, word); }
  // The same, and before it in the one in device memory where there is one.
  Status write_words(std::uint64_t to, std::uint64_t word);
  // A signal request has completed: posts what has waited for it.
  Status signal_done(Requests& requests) {
    --outstanding_;
    --adapter_->pending;
    return waiting_count_ == 0 ? Status() : post_waiting(requests);
  }
  // Takes what a receive completion said, and makes room for the next one. The epoch of `line`, which only
  // its low bits tell, is within millions of `near`.
  Status received(std::uint32_t immediate, std::uint64_t near, std::uint64_t* epoch, std::uint32_t* line);
  // State ERR: outstanding requests complete with errors and touch no memory any more.
  void stop();
  // Forgets what waits to be posted.
  void drop_waiting() { waiting_count_ = 0; }

  bool idle() const { return outstanding_ == 0 && waiting_count_ == 0; }
  std::uint32_t peer() const { return peer_; }
  std::uint32_t queue_pair() const { return pair_.get()->qp_num; }
  ibv_mtu mtu() const { return mtu_; }
  const fabric::Rail& rail() const { return rail_; }
  Adapter& adapter() const { return *adapter_; }
  // "mlx5_0:1 (10.0.0.1) to mlx5_1:1 (10.0.0.2)".
  std::string text() const;
  void forget() { pair_.take(); }

 private:
  RailEnd(const VerbsApi& api, Adapter& adapter, fabric::Rail rail, std::uint32_t peer,
          std::uint64_t number, const QueueSettings& settings)
      : adapter_(&adapter),
        number_(static_cast<std::uint32_t>(number)),
        api_(&api),
        rail_(std::move(rail)),
        settings_(settings),
        peer_(peer) {}
  Status create_pair();
  Status initialise();
  Status modify(ibv_qp_attr& attributes, int mask, const char* state);
  Status post_receives(std::uint32_t count);
  Status post(Requests& requests, const Stripe& stripe);
  Status post_otherwise(Requests& requests, const Stripe& stripe);
  Status post_immediate(Requests& requests, const Stripe& stripe);
  Status post_with_notice(Requests& requests, const Stripe& stripe);
  Status write_word_to(const RemoteEnd::Inbox& inbox, std::uint64_t to, std::uint64_t word);
  Status post_waiting(Requests& requests);
  Status queue(const Stripe& stripe);
  Status send(ibv_send_wr* first) {
    ibv_send_wr* bad = nullptr;
    const int error = api_->post_send(queue_pair_, first, &bad);
    if (error != 0) [[unlikely]]
      return refused(error);
    ++outstanding_;
    ++adapter_->pending;
    return {};
  }
  Status refused(int error);
  std::uint64_t id(Request request) const {
    return std::uint64_t{number_} << kRequestBits | static_cast<std::uint64_t>(request);
  }

  ibv_qp* queue_pair_ = nullptr;
  Adapter* adapter_;
  std::array<std::uint64_t, protocol::kParities> slots_{};   // addresses of the peer
  std::array<std::uint64_t, protocol::kParities> epochs_{};  // the same
  std::uint32_t rkey_ = 0;
  std::uint32_t number_;
  std::uint16_t most_inline_ = 0;
  // How a peer is told that a payload is there.
  enum class Signalling : std::uint8_t { kWrite, kImmediate, kNotice } signalling_ = Signalling::kWrite;
  // Signal or notice requests posted and not completed. While stripes wait, it stands at kQueuedStripes.
  std::uint32_t outstanding_ = 0;

  const VerbsApi* api_;
  fabric::Rail rail_;
  QueueSettings settings_;
  std::uint32_t peer_;
  QueuePair pair_;
  ibv_mtu mtu_ = IBV_MTU_256;
  RemoteEnd remote_;
  std::array<std::uint64_t, protocol::kParities> notices_{};  // addresses of the peer, if it wants any
  std::array<Stripe, kQueuedStripes> waiting_{};
  std::uint32_t waiting_first_ = 0;
  std::uint32_t waiting_count_ = 0;
};

// Payload, then signal, on one queue pair (protocol rule 4).
inline Status RailEnd::post(Requests& requests, const Stripe& stripe) {
  const std::uint64_t parity = stripe.epoch % protocol::kParities;
  ibv_send_wr& payload = requests.payload;
  requests.payload_memory = {reinterpret_cast<std::uintptr_t>(stripe.from), stripe.bytes,
                             adapter_->outbox_lkey()};
  payload.num_sge = stripe.bytes == 0 ? 0 : 1;
  payload.send_flags =
      stripe.bytes != 0 && stripe.bytes <= most_inline_ ? static_cast<unsigned>(IBV_SEND_INLINE) : 0;
  payload.wr.rdma.remote_addr = slots_[parity] + stripe.offset;
  payload.wr.rdma.rkey = rkey_;
  if (signalling_ != Signalling::kWrite) [[unlikely]]
    return post_otherwise(requests, stripe);
  payload.wr_id = id(Request::kPayload);
  requests.epoch = stripe.epoch;
  ibv_send_wr& signal = requests.signal;
  signal.wr_id = id(Request::kSignal);
  signal.wr.rdma.remote_addr = epochs_[parity] + stripe.line * protocol::kLineBytes;
  signal.wr.rdma.rkey = rkey_;
  return send(stripe.bytes == 0 ? &signal : &payload);
}

}  // namespace rocenante
