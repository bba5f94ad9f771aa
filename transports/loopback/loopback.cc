// SPDX-License-Identifier: Apache-2.0
#include "transports/loopback/loopback.h"

#include <charconv>
#include <map>
#include <mutex>
#include <span>

#include "lib/net/crypto.h"
#include "lib/net/fork.h"
#include "transports/mapped_link.h"

namespace rocenante {
namespace {

struct Published {
  std::shared_ptr<Region> inbox;
  std::shared_ptr<Region> outbox;
};

constinit std::mutex registry_mutex;
[[maybe_unused]] const bool kHooked = net::lock_across_fork<registry_mutex>();

// What ranks of this process have opened, by a random number that the blob carries: nothing that arrives in
// a blob is ever used as an address.
class Registry {
 public:
  std::uint64_t add(Published entry) {
    const std::lock_guard lock(registry_mutex);
    std::uint64_t id = 0;
    do {
      net::random_bytes(std::as_writable_bytes(std::span(&id, 1)));
    } while (id == 0 || entries_.contains(id));
    entries_.emplace(id, std::move(entry));
    return id;
  }
  void remove(std::uint64_t id) {
    decltype(entries_)::node_type gone;  // its memory goes after the lock
    const std::lock_guard lock(registry_mutex);
    gone = entries_.extract(id);
  }
  bool find(std::uint64_t id, Published* entry) {
    const std::lock_guard lock(registry_mutex);
    const auto at = entries_.find(id);
    if (at == entries_.end()) return false;
    *entry = at->second;
    return true;
  }

 private:
  std::map<std::uint64_t, Published> entries_;
};

// Never destroyed: threads may still make and leave communicators while static objects go.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

class LoopbackTransport final : public Transport {
 public:
  ~LoopbackTransport() override {
    if (id_ != 0) registry().remove(id_);
  }

  const char* name() const override { return "loopback"; }
  TransportCaps caps() const override { return {.maps_memory = true, .carries_inline = true}; }

  Result<std::string> open(const TransportContext& context) override {
    context_ = context;
    peers_.resize(context.ranks);
    id_ = registry().add({context.inbox, context.outbox});
    return fmt::format("{:x}", id_);
  }

  Status connect(std::uint32_t peer, std::string_view blob, net::Deadline,
                 protocol::PeerLink* link) override {
    std::uint64_t id = 0;
    const char* const end = blob.data() + blob.size();
    const auto [next, error] = std::from_chars(blob.data(), end, id, 16);
    Published& entry = peers_[peer];
    if (error != std::errc() || next != end || !registry().find(id, &entry)) {
      return make_error(Code::kRemoteError, "loopback: rank {} is not in this process", peer);
    }
    *link = mapped_link(context_.geometry, context_.rank, peer, context_.inbox->address(),
                        entry.inbox->address(), entry.outbox->address());
    return {};
  }

  MappedRegions mapped_regions(std::uint32_t peer) const override {
    const auto entry = std::make_shared<Published>(peers_[peer]);
    return {entry, entry->inbox->address(), entry->inbox->bytes(), entry->outbox->address(),
            entry->outbox->bytes()};
  }

  Fd process_handle(std::uint32_t) override { return Fd(); }
  Status post(std::span<const Put> puts) override {
    return make_error(Code::kInternalError, "loopback: {} puts posted to mapped peers", puts.size());
  }
  Status progress() override { return {}; }
  bool drained() const override { return true; }

 private:
  TransportContext context_;
  std::uint64_t id_ = 0;
  std::vector<Published> peers_;
};

}  // namespace

std::unique_ptr<Transport> make_loopback_transport() {
  return std::make_unique<LoopbackTransport>();
}

}  // namespace rocenante
