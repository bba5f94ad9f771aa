// SPDX-License-Identifier: Apache-2.0
//
// Two ends of one pair of ranks over adapters that are made up, driven by one thread.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/device/device.h"
#include "tests/support/catch.h"
#include "tests/support/dma_buf.h"
#include "tests/support/fake_verbs.h"
#include "tests/support/sysfs_tree.h"
#include "transports/verbs/verbs.h"

namespace rocenante {

using test::FakeVerbs;

inline constexpr std::uint64_t kSlotBytes = 8192;

inline std::vector<fabric::Port> ports_of(const std::string& fixture) {
  const test::SysfsTree tree(fixture);
  Result<fabric::Fabric> found = fabric::discover(tree.root(), tree.addresses(), {});
  REQUIRE(found.ok());
  return found.take().ports;
}

// One end. Members in the order of a communicator's: the transport goes first.
struct End {
  Config config;
  std::unique_ptr<Device> device;  // null: none that has memory of its own
  std::shared_ptr<Region> inbox, outbox;
  protocol::Geometry geometry;
  protocol::PeerLink link{};
  std::unique_ptr<Transport> transport;
  std::string blob;
  std::uint32_t rank = 0;

  unsigned char* send_slot(std::uint64_t epoch) const {
    return outbox->address() + geometry.send_offset(epoch & 1);
  }
  // The inbox that payloads and signals arrive in.
  unsigned char* received() const {
    const auto in_device = transport->device_inbox();
    return in_device != nullptr ? in_device->device : inbox->address();
  }
  const unsigned char* recv_slot(std::uint64_t epoch) const {
    return received() + geometry.recv_offset(epoch & 1, 0);
  }
  std::uint64_t signal(std::uint64_t epoch, std::uint32_t line = 0) const {
    return signal_in(received(), epoch, line);
  }
  // What the host sees of it.
  std::uint64_t notice(std::uint64_t epoch, std::uint32_t line) const {
    return signal_in(inbox->address(), epoch, line);
  }
  std::uint64_t signal_in(unsigned char* memory, std::uint64_t epoch, std::uint32_t line) const {
    const auto* const at = reinterpret_cast<const protocol::SignalLine*>(
        memory + geometry.signal_offset(epoch & 1, 1 - rank, line));
    return __atomic_load_n(&at->epoch, __ATOMIC_ACQUIRE);
  }
};

// Two ranks on two hosts.
class Pair {
 public:
  Pair(std::vector<fabric::Port> a, std::vector<fabric::Port> b, const std::string& options = "")
      : ports_{std::move(a), std::move(b)} {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      verbs.add_host(rank, ports_[rank]);
      Result<Config> config = Config::load(options);
      INFO(config.status().text());
      REQUIRE(config.ok());
      ends[rank].config = config.take();
      ends[rank].rank = rank;
    }
  }
  ~Pair() { FakeVerbs::set_host(0); }

  // To be said before connect().
  void set_device(std::uint32_t rank, bool gives = true) {
    ends[rank].device = std::make_unique<test::DmaBufDevice>(gives);
  }

  // The first error on the way to a connection.
  Status connect() {
    RCN_TRY(open());
    return connect_opened();
  }
  // Its halves.
  Status open() {
    for (std::uint32_t rank = 0; rank < 2; ++rank) RCN_TRY(open(rank));
    return {};
  }
  Status connect_opened() {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      End& end = ends[rank];
      RCN_TRY(end.transport->connect(1 - rank, ends[1 - rank].blob, net::Deadline::after_s(10), &end.link));
    }
    return {};
  }

  // Posts `bytes` of `fill` from a rank, striped as a round of this epoch would be.
  Status put(std::uint64_t epoch, std::uint64_t bytes, unsigned char fill, std::uint32_t stripes,
             std::uint32_t from = 0) {
    return put_tagged(1000 + epoch, epoch, bytes, fill, stripes, from);
  }
  Status put_tagged(std::uint64_t tag, std::uint64_t epoch, std::uint64_t bytes, unsigned char fill,
                    std::uint32_t stripes, std::uint32_t from = 0) {
    End& end = ends[from];
    std::memset(end.send_slot(epoch), fill, bytes);
    *protocol::slot_tag(end.send_slot(epoch)) = tag;
    const Put put{1 - from, end.send_slot(epoch), bytes, epoch, tag, stripes};
    return end.transport->post({&put, 1});
  }

  // Lets both ends work until rank 0's puts have left, or a bound that no test comes near.
  Status settle() {
    for (int look = 0; look < 100'000; ++look) {
      RCN_TRY(ends[0].transport->progress());
      RCN_TRY(ends[1].transport->progress());
      if (ends[0].transport->drained()) return {};
    }
    return make_error(Code::kTimeout, "not drained");
  }

  FakeVerbs verbs;
  const VerbsApi* api = &FakeVerbs::api();
  End ends[2];

 private:
  Status open(std::uint32_t rank) {
    End& end = ends[rank];
    const auto rails = fabric::rails_between(ports_[rank], ports_[1 - rank]);
    end.geometry = {2, static_cast<std::uint32_t>(rails.size()), 1, kSlotBytes};
    RCN_ASSIGN(end.inbox,
               host_device().allocate_region(end.geometry.inbox_bytes(), PeerAccess::kReadWrite));
    RCN_ASSIGN(end.outbox,
               host_device().allocate_region(end.geometry.outbox_bytes(), PeerAccess::kReadOnly));
    TransportContext context{rank,      2,          &end.config, nullptr, end.geometry,
                             end.inbox, end.outbox, {0, 0},      {{}, {}}};
    context.rails[1 - rank] = rails;
    context.device = end.device.get();
    FakeVerbs::set_host(rank);
    RCN_ASSIGN(end.transport, make_verbs_transport(api));
    RCN_ASSIGN(end.blob, end.transport->open(context));
    return {};
  }

  std::vector<fabric::Port> ports_[2];
};

inline void require_ok(const Status& status) {
  INFO(status.text());
  REQUIRE(status.ok());
}

inline bool contains(const std::string& whole, const std::string& part) {
  return whole.find(part) != std::string::npos;
}

inline bool holds(const unsigned char* memory, std::uint64_t bytes, unsigned char fill) {
  for (std::uint64_t i = 0; i < bytes; ++i) {
    if (memory[i] != fill) return false;
  }
  return true;
}

}  // namespace rocenante
