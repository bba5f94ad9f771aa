// SPDX-License-Identifier: Apache-2.0
#include "tests/support/faulty_transport.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <utility>

namespace rocenante::test {

// The puts in flight of one directed pair, in order.
struct Wire {
  std::mutex mutex;
  std::deque<Put> in_flight;
};

struct FaultyCatalog::Network {
  explicit Network(const Faults& wanted) : faults(wanted) {}

  Wire& wire(std::uint32_t from, std::uint32_t to) {
    const std::lock_guard lock(mutex);
    return wires[{from, to}];
  }

  const Faults faults;
  std::mutex mutex;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Wire> wires;
};

namespace {

constexpr std::array<const char*, 1> kNames = {"faulty"};

class FaultyTransport final : public Transport {
 public:
  explicit FaultyTransport(FaultyCatalog::Network& network) : network_(network) {}

  // As closing a queue pair does: nothing of ours is read any more, delivered or not (failure rule 6).
  ~FaultyTransport() override {
    for (const std::uint32_t peer : peers_) {
      Wire& wire = network_.wire(context_.rank, peer);
      const std::lock_guard lock(wire.mutex);
      wire.in_flight.clear();
    }
  }

  const char* name() const override { return kNames[0]; }
  TransportCaps caps() const override { return {.needs_goodbye = true}; }

  Result<std::string> open(const TransportContext& context) override {
    context_ = context;
    random_.seed(network_.faults.seed * 7919 + context.rank);
    incoming_.resize(context.ranks);
    backlog_.resize(context.ranks);
    return std::string("faulty");
  }

  Status connect(std::uint32_t peer, std::string_view, net::Deadline, protocol::PeerLink*) override {
    peers_.push_back(peer);
    return {};
  }

  Fd process_handle(std::uint32_t) override { return Fd(); }

  Status post(std::span<const Put> puts) override {
    for (const Put& put : puts) backlog_[put.peer].push_back(put);
    return {};
  }

  Status progress() override {
    std::shuffle(peers_.begin(), peers_.end(), random_);
    for (const std::uint32_t peer : peers_) {
      if (Status status = send(peer); !status.ok()) return status;
      if (random_() % 100 >= network_.faults.delay_percent) receive(peer);
    }
    return {};
  }

  // Nothing is read from the outbox of a rank whose wires are empty.
  bool drained() const override {
    for (const std::uint32_t peer : peers_) {
      if (!backlog_[peer].empty()) return false;
      Wire& wire = network_.wire(context_.rank, peer);
      const std::lock_guard lock(wire.mutex);
      if (!wire.in_flight.empty()) return false;
    }
    return true;
  }

 private:
  // How far the put at the head of an incoming wire has got.
  struct Incoming {
    std::uint64_t copied = 0;
  };

  Status send(std::uint32_t peer) {
    std::deque<Put>& waiting = backlog_[peer];
    while (!waiting.empty()) {
      if (network_.faults.fail_after_puts != 0 && context_.rank == network_.faults.failing_rank &&
          sent_ >= network_.faults.fail_after_puts) {
        return make_error(Code::kRemoteError, "faulty: completion error of the put to rank {}", peer);
      }
      Wire& wire = network_.wire(context_.rank, peer);
      const std::lock_guard lock(wire.mutex);
      if (wire.in_flight.size() >= network_.faults.queue_slots) return {};
      wire.in_flight.push_back(waiting.front());
      waiting.pop_front();
      ++sent_;
    }
    return {};
  }

  // Moves one piece, or, when all of the payload is here, the signal. The payload is read only now: a
  // sender that reuses its slot too early is found out.
  void receive(std::uint32_t peer) {
    Wire& wire = network_.wire(peer, context_.rank);
    const std::lock_guard lock(wire.mutex);
    if (wire.in_flight.empty()) return;
    const Put& put = wire.in_flight.front();
    Incoming& incoming = incoming_[peer];
    const std::uint64_t parity = put.epoch & 1;
    if (incoming.copied < put.bytes) {
      const std::uint64_t piece =
          std::min(put.bytes - incoming.copied, 1 + random_() % network_.faults.piece_bytes);
      unsigned char* const slot =
          context_.inbox->address() + context_.geometry.recv_offset(parity, context_.recv_index[peer]);
      std::memcpy(slot + incoming.copied, static_cast<const unsigned char*>(put.payload) + incoming.copied,
                  piece);
      incoming.copied += piece;
      return;
    }
    auto* const line = reinterpret_cast<protocol::SignalLine*>(
        context_.inbox->address() + context_.geometry.signal_offset(parity, peer, 0));
    __atomic_store_n(&line->epoch, put.epoch, __ATOMIC_RELEASE);
    incoming.copied = 0;
    wire.in_flight.pop_front();
  }

  FaultyCatalog::Network& network_;
  TransportContext context_;
  std::mt19937_64 random_;
  std::vector<std::uint32_t> peers_;
  std::vector<Incoming> incoming_;
  std::vector<std::deque<Put>> backlog_;
  std::uint64_t sent_ = 0;
};

}  // namespace

FaultyCatalog::FaultyCatalog(const Faults& faults) : network_(std::make_unique<Network>(faults)) {}
FaultyCatalog::~FaultyCatalog() = default;

std::span<const char* const> FaultyCatalog::names() const {
  return kNames;
}

bool FaultyCatalog::reachable(std::string_view, const HostIdentity& a, const HostIdentity& b) const {
  return a.process_nonce == b.process_nonce;
}

Result<std::unique_ptr<Transport>> FaultyCatalog::make(std::string_view) const {
  return std::unique_ptr<Transport>(std::make_unique<FaultyTransport>(*network_));
}

}  // namespace rocenante::test
