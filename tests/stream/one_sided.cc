// SPDX-License-Identifier: Apache-2.0
#include "tests/stream/one_sided.h"

#include <array>
#include <cstring>

#include "transports/loopback/loopback.h"

namespace rocenante::test {
namespace {

constexpr std::array<const char*, 2> kNames = {"loopback", "one-sided"};

class OneSided final : public Transport {
 public:
  explicit OneSided(OneSidedCatalog::Network& network) : network_(network) {}
  ~OneSided() override {
    const std::lock_guard lock(network_.mutex);
    network_.ranks.erase(context_.rank);
  }

  const char* name() const override { return kNames[1]; }
  TransportCaps caps() const override { return {.needs_goodbye = true, .carries_tag = true}; }
  Result<std::string> open(const TransportContext& context) override {
    context_ = context;
    const std::lock_guard lock(network_.mutex);
    network_.ranks[context.rank] = context;
    return std::string("here");
  }
  Status connect(std::uint32_t, std::string_view, net::Deadline, protocol::PeerLink*) override {
    return {};
  }
  Fd process_handle(std::uint32_t) override { return Fd(); }

  Status post(std::span<const Put> puts) override {
    const std::lock_guard lock(network_.mutex);
    for (const Put& put : puts) {
      const auto at = network_.ranks.find(put.peer);
      if (at != network_.ranks.end()) write(at->second, put);
    }
    return {};
  }
  Status progress() override { return {}; }
  bool drained() const override { return true; }

 private:
  void write(const TransportContext& to, const Put& put) const {
    const std::uint64_t parity = put.epoch % protocol::kParities;
    unsigned char* const inbox = to.inbox->address();
    std::memcpy(inbox + to.geometry.recv_offset(parity, to.recv_index[context_.rank]), put.payload,
                put.bytes);
    auto* const line = reinterpret_cast<protocol::SignalLine*>(
        inbox + to.geometry.signal_offset(parity, context_.rank, 0));
    __atomic_store_n(&line->tag, put.tag, __ATOMIC_RELAXED);
    __atomic_store_n(&line->epoch, put.epoch, __ATOMIC_RELEASE);
  }

  OneSidedCatalog::Network& network_;
  TransportContext context_;
};

// Loopback that does not reach the last rank.
class Near final : public Transport {
 public:
  const char* name() const override { return real_->name(); }
  TransportCaps caps() const override { return real_->caps(); }
  Result<std::string> open(const TransportContext& context) override {
    rank_ = context.rank;
    last_ = context.ranks - 1;
    return real_->open(context);
  }
  Status connect(std::uint32_t peer, std::string_view blob, net::Deadline deadline,
                 protocol::PeerLink* link) override {
    if (peer == last_ || rank_ == last_) return make_error(Code::kSystemError, "rank {} is far", last_);
    return real_->connect(peer, blob, deadline, link);
  }
  MappedRegions mapped_regions(std::uint32_t peer) const override { return real_->mapped_regions(peer); }
  Fd process_handle(std::uint32_t peer) override { return real_->process_handle(peer); }
  Status post(std::span<const Put> puts) override { return real_->post(puts); }
  Status progress() override { return real_->progress(); }
  bool drained() const override { return real_->drained(); }

 private:
  const std::unique_ptr<Transport> real_ = make_loopback_transport();
  std::uint32_t rank_ = 0;
  std::uint32_t last_ = 0;
};

}  // namespace

std::span<const char* const> OneSidedCatalog::names() const {
  return std::span(kNames).subspan(mixed_ ? 0 : 1);
}

Result<std::unique_ptr<Transport>> OneSidedCatalog::make(std::string_view name) const {
  if (name == kNames[0]) return std::unique_ptr<Transport>(std::make_unique<Near>());
  return std::unique_ptr<Transport>(std::make_unique<OneSided>(network_));
}

}  // namespace rocenante::test
