// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/shm.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "lib/device/memfd.h"
#include "transports/mapped_link.h"
#include "transports/shm/hand_over.h"

namespace rocenante {
namespace {

// The glibc wrapper is newer than the oldest glibc we run on.
Fd open_pidfd(pid_t pid) {
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
  if (pid <= 0) return Fd();
  return Fd(above_standard(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0u))));
}

class ShmTransport final : public Transport {
 public:
  const char* name() const override { return "shm"; }
  TransportCaps caps() const override { return {.maps_memory = true, .carries_inline = true}; }

  Result<std::string> open(const TransportContext& context) override {
    context_ = context;
    peers_.resize(context.ranks);
    if (context.inbox->shareable_fd() < 0 || context.outbox->shareable_fd() < 0) {
      return make_error(Code::kInvalidUsage, "shm: this rank's memory cannot be mapped by other processes");
    }
    HandedOver regions;
    regions.inbox = Fd(::dup(context.inbox->shareable_fd()));
    regions.outbox = Fd(::dup(context.outbox->shareable_fd()));
    if (!regions.inbox || !regions.outbox) return errno_error("dup of a memfd");
    regions.inbox_bytes = context.inbox->bytes();
    regions.outbox_bytes = context.outbox->bytes();
    RCN_ASSIGN(server_,
               HandOverServer::start(*context.key, context.rank, context.ranks, std::move(regions)));
    return server_->name();
  }

  Status connect(std::uint32_t peer, std::string_view blob, net::Deadline deadline,
                 protocol::PeerLink* link) override {
    Result<HandedOver> received = receive_regions(blob, *context_.key, context_.rank, peer, deadline);
    if (!received.ok()) {
      return make_error(received.status().code(), "shm: rank {} cannot map the memory of rank {}: {}",
                        context_.rank, peer, received.status().text());
    }
    const HandedOver regions = received.take();
    // The signals' place does not depend on how many receive slots the peer has; they must fit what it
    // offers.
    if (regions.inbox_bytes < context_.geometry.signals_end() ||
        regions.outbox_bytes < context_.geometry.outbox_bytes()) {
      return make_error(Code::kRemoteError,
                        "shm: rank {} offers regions of {} and {} bytes, expected at least {} and {}", peer,
                        regions.inbox_bytes, regions.outbox_bytes, context_.geometry.signals_end(),
                        context_.geometry.outbox_bytes());
    }
    peers_[peer].regions = std::make_shared<Mapped>();
    Mapped& mapped = *peers_[peer].regions;
    RCN_ASSIGN(mapped.inbox,
               map_peer_memfd(regions.inbox.get(), regions.inbox_bytes, PeerAccess::kReadWrite));
    RCN_ASSIGN(mapped.outbox,
               map_peer_memfd(regions.outbox.get(), regions.outbox_bytes, PeerAccess::kReadOnly));
    peers_[peer].process = open_pidfd(regions.pid);
    *link = mapped_link(context_.geometry, context_.rank, peer, context_.inbox->address(),
                        static_cast<unsigned char*>(mapped.inbox.get().address),
                        static_cast<const unsigned char*>(mapped.outbox.get().address));
    return {};
  }

  MappedRegions mapped_regions(std::uint32_t peer) const override {
    const auto& mapped = peers_[peer].regions;
    return {mapped, static_cast<unsigned char*>(mapped->inbox.get().address), mapped->inbox.get().bytes,
            static_cast<unsigned char*>(mapped->outbox.get().address), mapped->outbox.get().bytes};
  }

  Status stop_serving(net::Deadline) override {
    server_.reset();
    return {};
  }
  Fd process_handle(std::uint32_t peer) override { return std::move(peers_[peer].process); }

  Status post(std::span<const Put> puts) override {
    return make_error(Code::kInternalError, "shm: {} puts posted to mapped peers", puts.size());
  }
  Status progress() override { return {}; }
  bool drained() const override { return true; }

 private:
  struct Mapped {
    OwnedMapping inbox;
    OwnedMapping outbox;
  };
  struct Peer {
    std::shared_ptr<Mapped> regions;
    Fd process;
  };

  TransportContext context_;
  std::unique_ptr<HandOverServer> server_;
  std::vector<Peer> peers_;
};

}  // namespace

std::unique_ptr<Transport> make_shm_transport() {
  return std::make_unique<ShmTransport>();
}

}  // namespace rocenante
