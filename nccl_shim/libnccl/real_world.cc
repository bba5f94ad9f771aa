// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/real_world.h"

#include <algorithm>
#include <array>

#include "lib/base/log.h"
#include "lib/comm/boundary.h"
#include "lib/net/deadline.h"
#include "nccl_shim/libnccl/own_world.h"
#include "nccl_shim/libnccl/policy.h"
#include "nccl_shim/libnccl/voters.h"

namespace rocenante::nccl {
namespace {

constinit thread_local unsigned inside_depth = 0;

constexpr std::size_t kTail = kUniqueIdPayloadOffset;

// The id of our side alone, as if our own world had made it; empty if there is none in it.
Result<UniqueId> side_id(const rcnUniqueId& id) {
  const UniqueId whole = to_internal(id);
  RCN_ASSIGN(const UniqueIdContents contents,
             decode_unique_id_payload(std::span(whole.bytes).subspan<kUniqueIdPayloadOffset>()));
  return encode_unique_id(contents);
}

Status try_extending(rcnUniqueId* id) {
  RCN_ASSIGN(const Config config, load_settings({}));
  if (!own_side_possible(config)) return {};
  const bool is_free = std::all_of(std::begin(id->internal) + kTail, std::end(id->internal),
                                   [](char byte) { return byte == 0; });
  if (!is_free) return make_error(Code::kInvalidUsage, "the real library's id leaves no room for ours");
  RCN_ASSIGN(const UniqueId made, create_unique_id(config));
  std::memcpy(id->internal + kTail, made.bytes.data() + kTail, made.bytes.size() - kTail);
  return {};
}

void settle(SideEntry& entry, SideEntry::Decision decision, std::string why) {
  entry.why = std::move(why);
  log_info(entry.rank, "communicator of {} ranks beside NCCL: {}: {}", entry.ranks,
           decision == SideEntry::kOurs ? "small all-reduces are ours" : "everything is NCCL's", entry.why);
  // Release: core and why before it.
  entry.decision.store(decision, std::memory_order_release);
}

Status meet(SideEntry& entry) {
  const net::ScopedCancel cancel(entry.cancel);
  const PendingInit init{&entry.core, entry.id, static_cast<std::uint32_t>(entry.rank),
                         static_cast<std::uint32_t>(entry.ranks), entry.core_config};
  return initialise(init);
}

Status meet_or_decline(SideEntry& entry) {
  if (entry.blocking) return meet(entry);
  // Its calls may not wait for other ranks, and a meeting does.
  if (Status voted = vote_no(entry.id, entry.rank, entry.ranks); !voted.ok()) return voted;
  return make_error(Code::kInvalidUsage, "the communicator is non-blocking");
}

}  // namespace

InsideReal::InsideReal() {
  ++inside_depth;
}
InsideReal::~InsideReal() {
  --inside_depth;
}
bool inside_real() {
  return inside_depth != 0;
}

void extend_id(rcnUniqueId* id) {
  if (const Status status = try_extending(id); !status.ok()) {
    log_warn(-1, "every call will be NCCL's: {}", status.text());
  }
}

std::unique_ptr<SideEntry> prepare_side(const rcnUniqueId& id, int nranks, int rank, const void* config) {
  if (nranks < 1 || rank < 0 || rank >= nranks) return nullptr;  // the real library will say so
  Result<Config> settings = load_settings({});
  const Result<UniqueId> ours = side_id(id);
  if (!settings.ok() || (!ours.ok() && settings.value().integer(Key::kStats) == 0)) return nullptr;
  auto entry = std::make_unique<SideEntry>(rank, nranks, settings.take());
  const Result<bool> blocking = read_blocking(config);
  entry->blocking = !blocking.ok() || blocking.value();
  if (ours.ok()) {
    entry->id = ours.value();
  } else {
    settle(*entry, SideEntry::kReal, "the id carries no rendezvous of ours");
  }
  return entry;
}

void adopt_side(void** handle, std::unique_ptr<SideEntry> entry) {
  if (entry == nullptr) return;
  if (group_is_open()) {
    ThreadGroup::of_this_thread().real_inits.push_back({handle, std::move(entry)});
    return;
  }
  if (handle == nullptr || *handle == nullptr) return;
  if (const Status status = add_side(*handle, std::move(entry)); !status.ok()) {
    log_warn(-1, "every call of a communicator will be NCCL's: {}", status.text());
  }
}

void adopt_all(void** comms, int count) {
  const Status status = [&]() -> Status {
    RCN_ASSIGN(const Config config, load_settings({}));
    if (!own_side_possible(config) || group_is_open()) return {};
    RCN_ASSIGN(const UniqueId id, create_unique_id(config));
    for (int rank = 0; rank < count; ++rank) {
      auto entry = std::make_unique<SideEntry>(rank, count, config);
      entry->id = id;
      RCN_TRY(add_side(comms[rank], std::move(entry)));
    }
    return {};
  }();
  if (!status.ok()) log_warn(-1, "calls of some communicators will be NCCL's: {}", status.text());
}

void adopt_split(void* parent, int color, int key, void* made) {
  SidePin side(parent);
  if (!side || group_is_open() || decide(*side) != SideEntry::kOurs) return;
  Result<SplitResult> split = exchange_split(side->core, side->rank, side->ranks, color, key, side->config);
  if (!split.ok()) {
    log_warn(side->rank, "every call of a split communicator will be NCCL's: {}", split.status().text());
    return;
  }
  if (split.value().ranks == 0 || made == nullptr) return;
  auto entry = std::make_unique<SideEntry>(split.value().rank, split.value().ranks, side->config);
  entry->id = split.value().id;
  if (const Status added = add_side(made, std::move(entry)); !added.ok()) {
    log_warn(-1, "every call of a split communicator will be NCCL's: {}", added.text());
  }
}

SideEntry::Decision decide(SideEntry& entry) {
  const auto decision = static_cast<SideEntry::Decision>(entry.decision.load(std::memory_order_acquire));
  if (decision != SideEntry::kUndecided) return decision;
  if (entry.is_inherited()) return SideEntry::kReal;
  const std::lock_guard lock(entry.deciding);
  if (entry.decision.load(std::memory_order_relaxed) == SideEntry::kUndecided) {
    const Status met = meet_or_decline(entry);
    if (met.ok()) {
      settle(entry, SideEntry::kOurs, "all ranks take part");
    } else {
      settle(entry, SideEntry::kReal, met.text());
    }
  }
  return static_cast<SideEntry::Decision>(entry.decision.load(std::memory_order_relaxed));
}

// The order of an abort: our word first, so that nobody waits in a call of ours while the real library is
// told; the entry goes before the real call, whose address may be used again.
void end_side(void* comm, bool aborting) {
  {
    SidePin side(comm);
    if (!side) return;
    side->cancel.store(true, std::memory_order_relaxed);
    if (aborting && side->decision.load(std::memory_order_acquire) == SideEntry::kOurs) {
      const Result<PinnedUse> use = PinnedUse::begin(side->core);
      if (use.ok()) (*use.value()).abort_by_user();
    }
  }
  const std::unique_ptr<SideEntry> entry = remove_side(comm);
  if (entry == nullptr) return;
  write_stats(entry->config, entry->rank, entry->ranks, entry->why, entry->core, entry->forwarded);
  if (entry->core == nullptr) return;
  if (const Status status = close_communicator(entry->core, aborting); !status.ok()) {
    log_warn(entry->rank, "leaving our side of a communicator: {}", status.text());
  }
}

// By what all ranks share: size, operator, and what they have decided together.
Route route_all_reduce(SideEntry& side, const CollectiveCall& call, void* comm) {
  const std::uint64_t bytes = call.count * reduce::element_size(call.type);
  const bool custom = call.op >= reduce::kNumOperators;
  const bool fits = bytes <= side.max_bytes && call.count <= side.max_bytes;
  const bool undecided_or_ours = side.decision.load(std::memory_order_acquire) != SideEntry::kReal;
  const bool eligible = undecided_or_ours && !custom && fits && call.count != 0;
  if (group_is_open()) {
    if (eligible) return Route::kCandidate;
    if (ThreadGroup::of_this_thread().holds(comm)) return Route::kHeld;
  } else if (eligible && decide(side) == SideEntry::kOurs) {
    return Route::kOurs;
  }
  side.forwarded.count(Kind::kAllReduce, bytes,
                       custom  ? Reason::kOperator
                       : !fits ? Reason::kSize
                               : Reason::kNotTakingPart);
  return Route::kReal;
}

}  // namespace rocenante::nccl
