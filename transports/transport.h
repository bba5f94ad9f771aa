// SPDX-License-Identifier: Apache-2.0
//
// The transport seam. A transport reaches some of a communicator's peers; several are mixed freely, per
// peer. One that can map a peer's memory says so in its capabilities and fills the peer's PeerLink: the
// round then stores signals and reads payloads itself. One that cannot takes the round's puts through
// post(), one call per round.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/config.h"
#include "lib/base/handle.h"
#include "lib/base/status.h"
#include "lib/device/device.h"
#include "lib/fabric/fabric.h"
#include "lib/net/deadline.h"
#include "lib/net/handshake.h"
#include "lib/protocol/round.h"

namespace rocenante {

struct TransportCaps {
  // Fills PeerLink::outbound and ::source; post() is never called for its peers.
  bool maps_memory = false;
  // Payloads of up to kInlineBytes ride in the signal line.
  bool carries_inline = false;
  // A peer may touch our memory after its last call: leaving waits for its goodbye.
  bool needs_goodbye = false;
  // Fills the tag of signal lines although it maps nothing.
  bool carries_tag = false;
  // Puts may be read from any memory until drained(), not from the outbox only.
  bool reads_anywhere = false;
  // Puts go over rails (TransportContext::rails), large ones over all of them, and see to the tag that
  // stands before the slot.
  bool has_rails = false;
  // What it does takes the processors on which ranks wait, and its wait_descriptor() ends a sleep: where
  // there are more ranks than processors, who waits had better sleep soon.
  bool wants_processors = false;
};

// What a transport needs to know of this rank. Outlives the transport.
struct TransportContext {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  const Config* config = nullptr;
  const net::SecretKey* key = nullptr;  // of the communicator, for handshakes
  protocol::Geometry geometry;
  std::shared_ptr<Region> inbox;
  std::shared_ptr<Region> outbox;
  // Per peer: which of the receive slots is its, for peers whose memory is not mapped.
  std::vector<std::uint32_t> recv_index;
  // Per peer: the pairs of RDMA ports that reach it; the same pairs in the same order at the other end.
  std::vector<std::vector<fabric::Rail>> rails;
  // Every rank's adapters are software. The same on all ranks.
  bool software_rails = false;
  // Asked for memory to receive in by a transport that can write to a device's own; null: host memory
  // alone.
  Device* device = nullptr;
};

// Where a process runs: what ranks compare to find how they can reach each other.
struct HostIdentity {
  std::string host_name;
  std::string boot_id;              // one per boot of a kernel
  std::uint64_t process_nonce = 0;  // random, one per process image
  std::int64_t pid = 0;
  // Processors the rank may run on, a bit each, first byte first: launchers bind ranks, so no rank alone
  // knows how many there are for all.
  std::string processors;
  // RDMA ports that can be used; where there are none, why.
  std::vector<fabric::Port> ports;
  std::string no_ports;
  // What is wrong with the settings that name ports; an error as soon as a pair of ranks would need them.
  std::string ports_error;
};

// One round's payload for one peer, and the signal that follows it. `payload` is in the outbox, unless the
// transport reads anywhere.
struct Put {
  std::uint32_t peer;
  const void* payload;
  std::uint64_t bytes;
  std::uint64_t epoch;
  std::uint64_t tag;
  std::uint32_t stripes = 1;  // over how many rails the payload goes, each with a signal of its own
};

// Where the regions of a peer are mapped here.
struct MappedRegions {
  std::shared_ptr<void> owner;  // keeps them mapped, also after the transport has gone
  unsigned char* inbox = nullptr;
  std::uint64_t inbox_bytes = 0;
  unsigned char* outbox = nullptr;
  std::uint64_t outbox_bytes = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const char* name() const = 0;
  virtual TransportCaps caps() const = 0;

  // Opens this end and returns the blob that peers need to connect to it; at most 64 KiB. Called once.
  virtual Result<std::string> open(const TransportContext& context) = 0;

  // Connects to `peer`, whose open() returned `blob`. One that maps memory fills `link`; for the others the
  // communicator does. Every rank connects to each of its peers; a transport serves the other side
  // meanwhile. The error names the peer.
  virtual Status connect(std::uint32_t peer, std::string_view blob, net::Deadline deadline,
                         protocol::PeerLink* link) = 0;

  // Where this transport's peers write payloads, tags and the signals that a launch waits for, each at its
  // offset in the inbox, if that is a device's own memory; null if it is the inbox. Then the epochs of
  // signals that have come are also noted in the inbox, for the host: in its lines of the peer, whichever
  // of them, and in no order with what the device sees. From open() on.
  virtual std::shared_ptr<DeviceInbox> device_inbox() const { return nullptr; }

  // Of a connected peer, where the transport maps memory.
  virtual MappedRegions mapped_regions(std::uint32_t /*peer*/) const { return {}; }

  // No more peers will connect: every rank has said that it has connected to all. Waits for what may still
  // be on its way. The error names the peer.
  virtual Status stop_serving(net::Deadline) { return {}; }

  // Sends something empty every way to every peer and waits for what comes from them. Once, when every rank
  // has connected; the error names the way that does not work.
  virtual Status probe(net::Deadline) { return {}; }

  // A descriptor that becomes readable when the peer's process ends (pidfd), or an empty one.
  virtual Fd process_handle(std::uint32_t peer) = 0;

  // Queues payload then signal for each peer of this transport. May be partial only by failing.
  virtual Status post(std::span<const Put> puts) = 0;

  // Advances sockets and completion queues; an error names the peer. Called while a round waits.
  virtual Status progress() = 0;

  // True once nothing posted is still being read from the outbox.
  virtual bool drained() const = 0;

  // A descriptor that is readable when progress() has something to do, to be slept on until then; or -1.
  // Asked for anew before each sleep.
  virtual int wait_descriptor() { return -1; }

  // Success as long as `peer` may still send something, as far as this transport can tell; else why it
  // cannot, naming the peer. Whether that is an error depends on whether an operation needs the peer.
  virtual Status connection(std::uint32_t /*peer*/) const { return {}; }

  // Whether something is still to come from `peer` for the last round that was posted to it; true where the
  // transport cannot tell. Who calls post().
  virtual bool expects(std::uint32_t /*peer*/) const { return true; }

  // Nothing more will be posted: tells the peers where the transport can.
  virtual void finish_sending() {}
};

// The transports there are. A communicator takes one, so that tests can put theirs in.
class TransportCatalog {
 public:
  virtual ~TransportCatalog() = default;
  // Names, in the order in which ROCENANTE_TRANSPORT=auto tries them.
  virtual std::span<const char* const> names() const = 0;
  // Adds to a rank's identity what the transports must know of its host. Only RDMA needs anything.
  virtual void look_around(const Config&, HostIdentity*) const {}
  // Whether two processes could use the transport, by what both know of each other: the same answer on all
  // ranks.
  virtual bool reachable(std::string_view name, const HostIdentity& a, const HostIdentity& b) const = 0;
  // InvalidArgument for an unknown name.
  virtual Result<std::unique_ptr<Transport>> make(std::string_view name) const = 0;
};

// Those built into the library. Lives for ever.
const TransportCatalog& builtin_transports();

// Identity of this process; the nonce differs between a process and its forked child.
HostIdentity local_identity();

}  // namespace rocenante
