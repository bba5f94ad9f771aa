// SPDX-License-Identifier: Apache-2.0
//
// Making and leaving a communicator. Calls are in communicator_calls.cc, failures in
// communicator_failures.cc.
#include "lib/comm/communicator.h"

#include <sys/eventfd.h>

#include <algorithm>

#include "lib/base/log.h"
#include "lib/comm/identity.h"
#include "lib/comm/topology.h"
#include "lib/net/fork.h"
#include "lib/net/wire.h"

namespace rocenante {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::size_t kLongestText = 65536;
constexpr const char* kMapsAll = "maps all";

// A range of operator numbers, different from that of the 16,383 communicators made before.
std::uint32_t next_operator_range() {
  static std::atomic<std::uint32_t> made{0};
  const std::uint32_t range = made.fetch_add(1, std::memory_order_relaxed) % (1u << 14);
  return reduce::kNumOperators + range * static_cast<std::uint32_t>(kMostOperators);
}

}  // namespace

Communicator::Communicator(std::uint32_t rank, std::uint32_t ranks, Config config,
                           const TransportCatalog& catalog, Result<std::shared_ptr<Device>> device)
    : rank_(rank),
      ranks_(ranks),
      config_(std::move(config)),
      catalog_(catalog),
      fork_generation_(net::fork_generation()),
      timeout_ns_(config_.nanoseconds(Key::kTimeoutS)),
      first_timeout_ns_(config_.nanoseconds(Key::kFirstOpTimeoutS)),
      suspect_ns_(config_.nanoseconds(Key::kSuspectS)),
      device_(std::move(device)),
      first_operator_(next_operator_range()),
      absences_(std::make_unique<Absence[]>(ranks)),
      driver_(std::make_shared<Driver>()) {}

Result<std::unique_ptr<Communicator>> Communicator::create(const UniqueId& id, std::uint32_t rank,
                                                           std::uint32_t ranks, Config config,
                                                           const TransportCatalog& catalog) {
  Result<std::shared_ptr<Device>> device = open_device(config.text(Key::kDevice));
  return create(id, rank, ranks, std::move(config), catalog, std::move(device));
}

Result<std::unique_ptr<Communicator>> Communicator::create(const UniqueId& id, std::uint32_t rank,
                                                           std::uint32_t ranks, Config config,
                                                           const TransportCatalog& catalog,
                                                           Result<std::shared_ptr<Device>> device) {
  std::unique_ptr<Communicator> comm(
      new Communicator(rank, ranks, std::move(config), catalog, std::move(device)));
  RCN_TRY(comm->initialise(id));
  return comm;
}

// Protocol rule 7: every step that can fail on one rank alone is followed by an exchange in which each says
// how it went, so that either all have a communicator or all have the same error.
Status Communicator::initialise(const UniqueId& id) {
  const net::Deadline deadline = net::Deadline::after_ns(config_.nanoseconds(Key::kInitTimeoutS));
  driver_->thread.store(thread_number(), std::memory_order_relaxed);
  RCN_ASSIGN(control_, ControlStar::join(id, rank_, ranks_, config_, deadline));
  const net::SecretKey& key = control_->key();
  const std::string world(reinterpret_cast<const char*>(key.bytes.data()), key.bytes.size());
  register_driver(world, driver_);

  reunion_.emplace(id, rank_, config_);
  HostIdentity self = local_identity();
  catalog_.look_around(config_, &self);
  const Status prepared = prepare();
  RCN_ASSIGN(const std::vector<std::string> identities,
             exchange(prepared.ok() ? Result<std::string>(reunion_->address_bytes() + encode_identity(self))
                                    : Result<std::string>(prepared),
                      deadline));
  identities_.resize(ranks_);
  const bool is_whole = reunion_->complete(identities, key);
  for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
    if (!is_whole || !decode_identity(std::string_view(identities[peer]).substr(Reunion::kAddressBytes),
                                      &identities_[peer])) {
      return make_error(Code::kRemoteError, "rank {} sent an identity that cannot be read", peer);
    }
  }
  RCN_TRY(connect_all(deadline));
  choose_waiting();
  for (const auto& transport : transports_) RCN_TRY(transport->stop_serving(deadline));
  RCN_ASSIGN(const std::vector<std::string> probed, exchange(probe(deadline), deadline));
  // A rank that maps all its peers must still cut its rounds as those that do not (protocol rule 7).
  choose_pieces(
      std::all_of(probed.begin(), probed.end(), [](const std::string& text) { return text == kMapsAll; }));

  neighbours_ = other_drivers(world, driver_);
  RCN_TRY(control_->start_events(this));
  if (progress_ != nullptr) RCN_TRY(start_progress());
  is_complete_ = true;
  for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
    if (transport_of_[peer] == nullptr) continue;
    if (Fd handle = transport_of_[peer]->process_handle(peer))
      RCN_TRY(control_->watch_process(peer, std::move(handle)));
  }
  log_connections();
  log_info(rank_, "communicator of {} ranks: {} on this host, {} processors, reduction {}, transport {}",
           ranks_, ranks_on_host(rank_, identities_), processors_on_host(rank_, identities_),
           kernels_->target, ranks_ == 1 ? "self" : transport_names_[rank_ == 0 ? 1 : 0]);
  return {};
}

Result<UniqueId> Communicator::reunion_id(const std::vector<bool>& left_out) const {
  return reunion_->id_without(left_out);
}

// What can fail before anything is shared.
Status Communicator::prepare() {
  RCN_TRY(device_.status());
  kernels_ = reduce::find_kernels(config_.text(Key::kSimd).c_str());
  if (kernels_ == nullptr) {
    return make_error(Code::kInvalidArgument,
                      "ROCENANTE_SIMD={}: not built or not supported by this processor",
                      config_.text(Key::kSimd));
  }
  inputs_.resize(ranks_);
  return {};
}

// Makes the transports that some peer of ours is reached by, and the memory they need.
Status Communicator::allocate() {
  transport_of_.assign(ranks_, nullptr);
  recv_index_.assign(ranks_, 0);
  rails_.assign(ranks_, {});
  std::uint32_t received = 0;
  for (const char* const name : catalog_.names()) {
    if (std::find(transport_names_.begin(), transport_names_.end(), name) == transport_names_.end())
      continue;
    RCN_ASSIGN(std::unique_ptr<Transport> transport, catalog_.make(name));
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      if (transport_names_[peer] != name) continue;
      transport_of_[peer] = transport.get();
      if (!transport->caps().maps_memory) recv_index_[peer] = received++;
      if (transport->caps().has_rails)
        rails_[peer] = fabric::rails_between(identities_[rank_].ports, identities_[peer].ports);
    }
    transports_.push_back(std::move(transport));
  }
  const std::uint32_t rails = most_rails(config_.text(Key::kTransport), identities_);
  geometry_ = protocol::Geometry{ranks_, rails, received, config_.integer(Key::kSlotBytes)};
  RCN_ASSIGN(inbox_, device_.value()->allocate_region(geometry_.inbox_bytes(), PeerAccess::kReadWrite));
  RCN_ASSIGN(outbox_, device_.value()->allocate_region(geometry_.outbox_bytes(), PeerAccess::kReadOnly));
  return {};
}

// All-gather of either a payload or this rank's error; an error anywhere is an error here, naming the first
// rank that has one.
Result<std::vector<std::string>> Communicator::exchange(const Result<std::string>& own,
                                                        net::Deadline deadline) {
  net::WireWriter out;
  out.integer(static_cast<std::uint32_t>(own.ok() ? Code::kSuccess : own.status().code()));
  out.string(own.ok() ? own.value() : own.status().text());
  RCN_ASSIGN(std::vector<std::string> gathered, control_->all_gather(out.take(), deadline));
  if (!own.ok()) return own.status();
  for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
    net::WireReader in(gathered[peer]);
    const auto code = in.integer<std::uint32_t>();
    std::string text(in.string(kLongestText));
    if (!in.complete())
      return make_error(Code::kRemoteError, "rank {} sent a message that cannot be read", peer);
    if (code != 0) return make_error(Code::kRemoteError, "rank {} cannot take part: {}", peer, text);
    gathered[peer] = std::move(text);
  }
  return gathered;
}

// The payload is the blob of each transport, by name.
Result<std::string> Communicator::open_transports() {
  RCN_TRY(allocate());
  const TransportContext context{rank_,
                                 ranks_,
                                 &config_,
                                 &control_->key(),
                                 geometry_,
                                 inbox_,
                                 outbox_,
                                 recv_index_,
                                 rails_,
                                 software_rails(identities_),
                                 device_.value().get()};
  net::WireWriter out;
  for (const auto& transport : transports_) {
    RCN_ASSIGN(const std::string blob, transport->open(context));
    out.string(transport->name()).string(blob);
  }
  return out.take();
}

// Two processes of one host may yet be unable to hand memory to each other (containers, security policies).
// Who finds out says so to all, and all connect anew with that pair's next transport.
Status Communicator::connect_all(net::Deadline deadline) {
  UnusableWays unusable;
  for (;;) {
    // A pure function of what all ranks know: fails on all or on none.
    RCN_ASSIGN(transport_names_,
               choose_transports(catalog_, config_.text(Key::kTransport), rank_, identities_, unusable));
    RCN_ASSIGN(const std::vector<std::string> blobs, exchange(open_transports(), deadline));
    const std::size_t known = unusable.size();
    RCN_ASSIGN(const std::vector<std::string> votes,
               exchange(connect_peers(blobs, deadline, unusable), deadline));
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      net::WireReader in(votes[rank]);
      for (;;) {
        const std::string name(in.string(kLongestText));
        const auto peer = in.integer<std::uint32_t>();
        if (name.empty() || peer >= ranks_) break;
        unusable.emplace(std::min(rank, peer), std::max(rank, peer), name);
      }
    }
    // Each turn rules out at least one way, so this ends.
    if (unusable.size() == known) return {};
    links_.clear();
    transports_.clear();
    inbox_.reset();
    outbox_.reset();
  }
}

// Returns the ways that turned out not to work although there are others: name, peer.
Result<std::string> Communicator::connect_peers(const std::vector<std::string>& blobs,
                                                net::Deadline deadline, const UnusableWays& unusable) {
  links_.assign(ranks_, {});
  net::WireWriter failed;
  for (std::uint32_t step = 1; step < ranks_; ++step) {
    const std::uint32_t peer = (rank_ + step) % ranks_;  // everybody starts elsewhere
    const Status status = connect_peer(peer, blobs[peer], deadline);
    if (status.ok()) continue;
    const char* const name = transport_of_[peer]->name();
    if (!has_other_way(catalog_, config_.text(Key::kTransport), identities_, rank_, peer, name, unusable)) {
      return status;
    }
    log_warn(rank_, "rank {} is not reached by {}, another transport is taken: {}", peer, name,
             status.text());
    failed.string(name).integer(peer);
  }
  return failed.take();
}

// `offers` are the peer's blobs, by transport.
Status Communicator::connect_peer(std::uint32_t peer, std::string_view offers, net::Deadline deadline) {
  net::WireReader in(offers);
  for (;;) {
    const std::string_view name = in.string(kLongestText);
    if (name.empty()) {
      return make_error(Code::kRemoteError, "rank {} offers no {} transport", peer, transport_names_[peer]);
    }
    const std::string_view blob = in.string(kLongestText);
    if (name != transport_names_[peer]) continue;
    if (!transport_of_[peer]->caps().maps_memory) link_unmapped(peer);
    return transport_of_[peer]->connect(peer, blob, deadline, &links_[peer]);
  }
}

// Rule 7 again: who finds a way closed says so to all. Returns kMapsAll where every transport maps memory.
Result<std::string> Communicator::probe(net::Deadline deadline) {
  bool maps_all = true;
  for (const auto& transport : transports_) {
    RCN_TRY(transport->probe(deadline));
    maps_all = maps_all && transport->caps().maps_memory;
  }
  RCN_TRY(build_lane());
  if (device_.value()->drive_mode() == DriveMode::kStream) RCN_TRY(set_up_streams());
  return std::string(maps_all ? kMapsAll : "");
}

void Communicator::log_connections() const {
  for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
    for (const fabric::Rail& rail : rails_[peer]) {
      log_info(rank_, "rail to rank {}: {} ({}, GID {}) - {} ({}), which are in {}", peer,
               fabric::port_name(rail.local), fabric::address_text(rail.local.gid), rail.local.gid_index,
               fabric::port_name(rail.remote), fabric::address_text(rail.remote.gid),
               fabric::subnet_text(rail.local));
    }
  }
}

// A peer whose puts arrive in our receive slots.
void Communicator::link_unmapped(std::uint32_t peer) {
  protocol::PeerLink& link = links_[peer];
  for (std::uint64_t parity = 0; parity < protocol::kParities; ++parity) {
    link.inbound[parity] = reinterpret_cast<const protocol::SignalLine*>(
        inbox_->address() + geometry_.signal_offset(parity, peer, 0));
    link.source[parity] = inbox_->address() + geometry_.recv_offset(parity, recv_index_[peer]);
  }
  if (transport_of_[peer]->caps().carries_tag) {
    for (std::uint64_t parity = 0; parity < protocol::kParities; ++parity) {
      link.tag[parity] = &link.inbound[parity]->tag;
    }
  }
  link.rails = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(rails_[peer].size()));
}

Status Communicator::build_lane() {
  for (const auto& transport : transports_) {
    if (!transport->caps().maps_memory) carriers_.push_back(transport.get());
  }
  const bool all_mapped = carriers_.empty();
  puts_from_input_ = !all_mapped && carriers_.size() == transports_.size() &&
                     std::all_of(carriers_.begin(), carriers_.end(),
                                 [](const Transport* carrier) { return carrier->caps().reads_anywhere; });
  if (!all_mapped) {
    wake_fd_ = net::open_socket([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
    if (!wake_fd_) return errno_error("eventfd");
  }
  first_doubt_ns_.assign(ranks_, 0);
  lane_.rank = rank_;
  lane_.ranks = ranks_;
  lane_.striped_bytes = config_.integer(Key::kStripeBytes);
  lane_.tags_slots = std::any_of(transports_.begin(), transports_.end(),
                                 [](const auto& transport) { return transport->caps().has_rails; });
  lane_.all_mapped = all_mapped;
  lane_.may_sleep = true;
  lane_.peers = links_.data();
  for (std::uint64_t parity = 0; parity < protocol::kParities; ++parity) {
    lane_.send[parity] = outbox_->address() + geometry_.send_offset(parity);
  }
  lane_.epoch = &epoch_;
  lane_.abort_word = abort_.address();
  puts_.reserve(ranks_);
  return {};
}

void Communicator::choose_waiting() {
  // Whoever sleeps soon must be woken by everybody.
  const bool wants_processors =
      !transports_.empty() &&
      std::all_of(transports_.begin(), transports_.end(),
                  [](const auto& transport) { return transport->caps().wants_processors; });
  policy_ = WaitPolicy::choose(ranks_on_host(rank_, identities_), processors_on_host(rank_, identities_),
                               config_.integer(Key::kSpinUs), wants_processors);
}

// Rounds that nobody copies out of stay in the cache; the others pay for each round with a signal.
void Communicator::choose_pieces(bool everybody_maps) {
  const std::uint64_t chunk = std::min(config_.integer(Key::kChunkBytes), geometry_.slot_bytes);
  piece_bytes_ = (everybody_maps ? chunk : geometry_.slot_bytes) / 16 * 16;
  two_round_bytes_ = ~std::uint64_t{0};
  if (ranks_ < 3) return;
  // No less than a slot, so that a call of one is one piece.
  two_round_piece_bytes_ = protocol::slice_of(geometry_.slot_bytes, ranks_) * ranks_;
  // About from where on a second wait paid, over the transports together (docs/benchmarks.md).
  two_round_bytes_ = config_.text(Key::kTwoRoundBytes) != "auto" ? config_.integer(Key::kTwoRoundBytes)
                     : ranks_ == 3                               ? 256 * kKiB
                     : ranks_ == 4 ? (software_rails(identities_) ? 32 : 48) * kKiB
                                   : 32 * kKiB;
}

// Failure rule 5. Mapped memory stays alive as long as somebody maps it, so only transports whose peers
// touch our memory by other means wait for goodbyes.
void Communicator::leave() {
  if (control_ == nullptr || inherited()) return;
  const bool has_failed = streams_ != nullptr ? end_streams() : abort_.raised();
  // A call ends when its own puts have left, so nothing is cut off.
  for (Transport* const carrier : carriers_) carrier->finish_sending();
  control_->say_goodbye();
  std::vector<bool> waited_for(ranks_, false);
  bool any = false;
  for (std::uint32_t peer = 0; peer < transport_of_.size(); ++peer) {
    const bool needed = transport_of_[peer] != nullptr && transport_of_[peer]->caps().needs_goodbye;
    waited_for[peer] = needed;
    any = any || needed;
  }
  if (any && is_complete_ && !has_failed) {
    control_->wait_for_goodbyes(waited_for,
                                net::Deadline::after_ns(config_.nanoseconds(Key::kGoodbyeTimeoutS)));
  }
  control_->stop_events();
}

Communicator::~Communicator() {
  leave();
  // One that was never complete has nothing to say.
  if (is_complete_ && !inherited() && config_.integer(Key::kStats) != 0) {
    write_stats_line(stats_line(counters_, rank_, ranks_), config_.text(Key::kStatsFile), rank_);
  }
}

}  // namespace rocenante
