// SPDX-License-Identifier: Apache-2.0
//
// This end of one rail to one peer: a reliable queue pair and the puts it carries.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "lib/fabric/fabric.h"
#include "transports/verbs/adapter.h"
#include "transports/verbs/api.h"

namespace rocenante {

// The settings of all queue pairs of a communicator.
struct QueueSettings {
  bool immediate = false;  // ROCENANTE_SIGNAL=imm
  std::uint8_t traffic_class = 0;
  std::uint8_t service_level = 0;
  std::uint8_t timeout = 0;
  std::uint8_t retry_count = 0;
  static QueueSettings from(const Config& config);
};

// What a peer says of its end.
struct RemoteEnd {
  std::uint32_t queue_pair = 0;
  std::uint32_t first_packet = 0;
  std::uint32_t rkey = 0;
  std::uint64_t inbox = 0;  // its address there
  ibv_mtu mtu = IBV_MTU_256;
};

// A share of one payload and its signal. Offsets are in the peer's inbox.
struct Stripe {
  const unsigned char* from = nullptr;
  std::uint64_t to = 0;
  std::uint32_t bytes = 0;
  std::uint64_t signal = 0;  // of the line's epoch
  std::uint64_t epoch = 0;
  std::uint32_t line = 0;
};

// How much a queue pair may hold. The protocol has at most two rounds under way that are not known to have
// arrived; acknowledgements may be seen later than that.
inline constexpr std::uint32_t kQueuedStripes = 16;
inline constexpr std::uint32_t kSendRequests = 2 * kQueuedStripes;
inline constexpr std::uint32_t kReceiveRequests = 16;

// What a completion is of: the rail's number and this.
enum class Request : std::uint64_t { kPayload, kSignal, kReceive };
inline constexpr std::uint64_t kRequestBits = 2;

class RailEnd {
 public:
  // In state INIT, with receive requests posted where `settings` need them. `number` stands in its
  // completions.
  static Result<RailEnd> create(const VerbsApi& api, Adapter& adapter, const fabric::Rail& rail,
                                std::uint32_t peer, std::uint64_t number, const QueueSettings& settings);

  // To RTS. `first_packet`: the number the peer expects of our first packet.
  Status connect(const RemoteEnd& remote, std::uint32_t first_packet);

  // Queues a stripe and posts what fits. Never waits.
  Status put(const Stripe& stripe);
  // Writes eight bytes at `to` in the peer's inbox; for probing.
  Status write_word(std::uint64_t to, std::uint64_t word);
  // A signal request has completed: posts what has waited for it.
  Status signal_done();
  // Takes what a receive completion said, and makes room for the next one. The epoch of `line`.
  Status received(std::uint32_t immediate, std::uint64_t* epoch, std::uint32_t* line);
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
      : api_(&api),
        adapter_(&adapter),
        rail_(std::move(rail)),
        settings_(settings),
        peer_(peer),
        number_(number) {}
  Status create_pair();
  Status initialise();
  Status modify(ibv_qp_attr& attributes, int mask, const char* state);
  Status post_receives(std::uint32_t count);
  Status post(const Stripe& stripe);
  Status send(ibv_send_wr* first);
  std::uint64_t id(Request request) const {
    return number_ << kRequestBits | static_cast<std::uint64_t>(request);
  }

  const VerbsApi* api_;
  Adapter* adapter_;
  fabric::Rail rail_;
  QueueSettings settings_;
  std::uint32_t peer_;
  std::uint64_t number_;
  QueuePair pair_;
  std::uint32_t most_inline_ = 0;
  ibv_mtu mtu_ = IBV_MTU_256;
  RemoteEnd remote_;
  std::uint32_t outstanding_ = 0;  // signal requests posted and not completed
  std::array<Stripe, kQueuedStripes> waiting_{};
  std::uint32_t waiting_first_ = 0;
  std::uint32_t waiting_count_ = 0;
  std::uint64_t last_epoch_ = 0;  // of the receives
};

}  // namespace rocenante
