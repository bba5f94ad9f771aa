// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/own_children.h"

#include <algorithm>

#include "lib/comm/at_once.h"
#include "lib/comm/boundary.h"
#include "nccl_shim/libnccl/abi.h"
#include "nccl_shim/libnccl/exchange.h"
#include "nccl_shim/libnccl/own_world.h"
#include "nccl_shim/libnccl/thread_group.h"

namespace rocenante::nccl {
namespace {

constexpr int kShrinkAbort = 1;

// A new communicator's place.
struct Place {
  UniqueId id;
  int rank;
  int ranks;  // none: this rank has no part in it
};

Participant participant(const OwnPin& own) {
  return {own->core, own->rank, own->ranks, &own->config};
}

// Runs body(0) to body(count - 1), on a thread each if there are several; the first error.
template <class Body>
Status at_once(std::size_t count, const Body& body) {
  if (count == 1) return body(0);
  for (Status& result : run_at_once(count, body)) {
    if (!result.ok()) return std::move(result);
  }
  return {};
}

// A communicator of all ranks of one that was revoked, for as long as they have something to exchange.
class StandIn {
 public:
  StandIn() = default;
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;
  ~StandIn() {
    if (core_ == nullptr) return;
    const Status closed = close_communicator(core_, false);
    (void)closed;  // what it was for is done
  }
  Status meet(const OwnComm& own) {
    UniqueId id;
    {
      RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(own.core));
      RCN_ASSIGN(id, use->reunion_id(std::vector<bool>(static_cast<std::size_t>(own.ranks), false)));
    }
    return initialise(PendingInit{&core_, id, static_cast<std::uint32_t>(own.rank),
                                  static_cast<std::uint32_t>(own.ranks), own.config});
  }
  void* core() const { return core_; }

 private:
  void* core_ = nullptr;
};

Result<std::vector<Place>> place_splits(const std::vector<Child>& children,
                                        const std::vector<OwnPin>& pins) {
  std::vector<StandIn> stand_ins(pins.size());
  // Ranks of one world that this thread holds wait for each other.
  RCN_TRY(at_once(pins.size(), [&](std::size_t i) {
    return pins[i]->revoked ? stand_ins[i].meet(*pins[i]) : Status();
  }));
  std::vector<SplitAsk> asks;
  for (std::size_t i = 0; i < children.size(); ++i) {
    Participant who = participant(pins[i]);
    if (pins[i]->revoked) who.core = stand_ins[i].core();
    asks.push_back({who, children[i].color, children[i].key});
  }
  RCN_ASSIGN(const std::vector<SplitResult> results, exchange_splits(asks));
  std::vector<Place> places;
  for (const SplitResult& result : results) places.push_back({result.id, result.rank, result.ranks});
  return places;
}

Result<std::vector<Place>> place_grows(const std::vector<Child>& children,
                                       const std::vector<OwnPin>& pins) {
  std::vector<GrowAsk> asks;
  for (std::size_t i = 0; i < children.size(); ++i) {
    asks.push_back({participant(pins[i]), children[i].id, children[i].ranks});
  }
  RCN_ASSIGN(const std::vector<std::optional<UniqueId>> ids, exchange_grows(asks));
  std::vector<Place> places;
  for (std::size_t i = 0; i < children.size(); ++i) {
    // It is used up.
    if (children[i].id) pins[i]->has_grow_id.store(false);
    if (!ids[i]) {
      return make_error(Code::kInvalidUsage, "no rank of comm {} gave the uniqueId of ncclCommGetUniqueId",
                        static_cast<const void*>(children[i].parent));
    }
    places.push_back({*ids[i], pins[i]->rank, children[i].ranks});
  }
  return places;
}

Result<std::vector<Place>> place_shrinks(const std::vector<Child>& children,
                                         const std::vector<OwnPin>& pins) {
  std::vector<Place> places;
  for (std::size_t i = 0; i < children.size(); ++i) {
    const std::vector<bool>& left_out = children[i].left_out;
    RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(pins[i]->core));
    RCN_ASSIGN(const UniqueId id, use->reunion_id(left_out));
    const auto before = std::count(left_out.begin(), left_out.begin() + pins[i]->rank, false);
    const auto all = std::count(left_out.begin(), left_out.end(), false);
    places.push_back({id, static_cast<int>(before), static_cast<int>(all)});
  }
  return places;
}

// Those made in one way, before it returns.
Status make_here(const std::vector<Child>& children) {
  if (children.empty()) return {};
  std::vector<OwnPin> pins;
  for (const Child& child : children) {
    RCN_ASSIGN(OwnPin own, OwnPin::begin(child.parent));
    pins.push_back(std::move(own));
  }
  const Child::Made made_by = children.front().made_by;
  RCN_ASSIGN(const std::vector<Place> places, made_by == Child::Made::kSplit ? place_splits(children, pins)
                                              : made_by == Child::Made::kGrow
                                                  ? place_grows(children, pins)
                                                  : place_shrinks(children, pins));
  std::vector<OwnInit> inits;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].ranks == 0) continue;
    rcnUniqueId id;
    to_public(places[i].id, &id);
    RCN_ASSIGN(OwnInit init, prepare_init(children[i].handle, places[i].ranks, id, places[i].rank,
                                          pins[i]->device, children[i].blocking));
    init.around = &pins[i]->work.cancelled();
    inits.push_back(init);
  }
  return run_inits(inits);
}

bool is_blocking(OwnSlot* slot) {
  const Result<OwnPin> own = OwnPin::begin(slot);
  return !own.ok() || own.value()->blocking;
}

void keep_first(Status* first, Status next) {
  if (first->ok() || (first->code() == Code::kInProgress && !next.ok())) *first = std::move(next);
}

// Now, or with the thread's group.
Status make_child(Child child) {
  if (group_is_open()) {
    ThreadGroup::of_this_thread().children.push_back(std::move(child));
    return {};
  }
  return make_children({std::move(child)});
}

// The new communicator's; of a null configuration, the parent's.
Result<bool> child_blocking(OwnSlot* parent, const void* config) {
  return config == nullptr ? Result<bool>(is_blocking(parent)) : read_blocking(config);
}

// Why another cannot be made out of a communicator, unless by growing: it may have been revoked, and to
// shrink with abort it may have failed.
Status check_parent(OwnSlot* slot, const OwnPin& own, bool aborting) {
  const std::uint32_t phase = own->phase.load(std::memory_order_acquire);
  const bool has_failed = phase == OwnComm::kFailed && own->core != nullptr;
  Status status = why_not_ready(slot);
  if (!status.ok() && !own->revoked && !(aborting && has_failed)) return status;
  if (own->finalized) return status;
  if (aborting || own->revoked) return {};
  RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(own->core));
  return use->async_error();
}

Result<std::vector<bool>> read_left_out(const int* list, int count, int rank, int ranks) {
  if (count < 0 || count >= ranks) {
    return make_error(Code::kInvalidArgument, "excludeRanksCount is {}: expected 0 to {}", count,
                      ranks - 1);
  }
  if (count != 0) RCN_TRY(require(list, "excludeRanksList"));
  std::vector<bool> left_out(static_cast<std::size_t>(ranks), false);
  for (int i = 0; i < count; ++i) {
    if (list[i] < 0 || list[i] >= ranks) {
      return make_error(Code::kInvalidArgument, "excludeRanksList[{}] is {}: expected 0 to {}", i, list[i],
                        ranks - 1);
    }
    const auto at = static_cast<std::size_t>(list[i]);
    if (left_out[at]) {
      return make_error(Code::kInvalidArgument, "excludeRanksList[{}] is {}, which stands there twice", i,
                        list[i]);
    }
    left_out[at] = true;
  }
  if (left_out[static_cast<std::size_t>(rank)]) {
    return make_error(Code::kInvalidArgument,
                      "excludeRanksList names rank {}, which calls: only ranks that go on do", rank);
  }
  return left_out;
}

// Whether the members would make the same id of what they are told of this one.
bool is_grow_id(const OwnComm& own, const UniqueId& id) {
  const Result<PinnedUse> use = PinnedUse::begin(own.core);
  const Result<ChildOffer> offer = offer_of(id);
  return use.ok() && offer.ok() && accept_offer(offer.value(), use.value()->key()).bytes == id.bytes;
}

}  // namespace

Status split(void* parent, int color, int key, void** made, const void* config) {
  OwnSlot* const slot = own_slot(parent);
  RCN_TRY(require(made, "newcomm"));
  if (color < kSplitNoColor) {
    return make_error(Code::kInvalidArgument, "color is {}: expected -1 (NCCL_SPLIT_NOCOLOR) or at least 0",
                      color);
  }
  RCN_ASSIGN(const bool blocking, child_blocking(slot, config));
  RCN_ASSIGN(const OwnPin own, OwnPin::begin(slot));
  RCN_TRY(check_parent(slot, own, false));
  return make_child({Child::Made::kSplit, slot, made, blocking, color, key});
}

Status shrink(void* parent, const int* left_out, int count, void** made, const void* config, int flags) {
  OwnSlot* const slot = own_slot(parent);
  RCN_TRY(require(made, "newcomm"));
  if (flags != 0 && flags != kShrinkAbort) {
    return make_error(Code::kInvalidArgument,
                      "shrinkFlags is {}: expected 0 (NCCL_SHRINK_DEFAULT) or 1 (NCCL_SHRINK_ABORT)",
                      flags);
  }
  RCN_ASSIGN(const bool blocking, child_blocking(slot, config));
  RCN_ASSIGN(const OwnPin own, OwnPin::begin(slot));
  RCN_ASSIGN(std::vector<bool> out, read_left_out(left_out, count, own->rank, own->ranks));
  RCN_TRY(check_parent(slot, own, flags == kShrinkAbort));
  if (flags == kShrinkAbort) {
    RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(own->core));
    own->revoked.store(true);
    slot->core.store(nullptr, std::memory_order_release);
    use->abort_by_user();
  }
  return make_child({Child::Made::kShrink, slot, made, blocking, 0, 0, std::move(out)});
}

Status grow(void* parent, int ranks, const rcnUniqueId* id, int rank, void** made, const void* config) {
  OwnSlot* const slot = own_slot(parent);
  RCN_TRY(require(made, "newcomm"));
  RCN_ASSIGN(const bool blocking, child_blocking(slot, config));
  RCN_TRY(why_not_ready(slot));
  RCN_ASSIGN(const OwnPin own, OwnPin::begin(slot));
  if (rank != -1) {
    return make_error(Code::kInvalidArgument,
                      "rank is {}: expected -1 on a rank of comm, which keeps its own", rank);
  }
  RCN_TRY(check_rank(ranks, own->rank));
  if (ranks <= own->ranks) {
    return make_error(Code::kInvalidArgument, "nRanks is {}: expected more than comm has ({})", ranks,
                      own->ranks);
  }
  if (id == nullptr) return make_child({Child::Made::kGrow, slot, made, blocking, 0, 0, {}, ranks});
  if (!own->has_grow_id || !is_grow_id(*own, to_internal(*id))) {
    return make_error(Code::kInvalidUsage, "uniqueId is not one that ncclCommGetUniqueId made for comm {}",
                      parent);
  }
  return make_child({Child::Made::kGrow, slot, made, blocking, 0, 0, {}, ranks, to_internal(*id)});
}

Status make_grow_id(OwnSlot* slot, rcnUniqueId* id) {
  RCN_TRY(require(id, "uniqueId"));
  RCN_TRY(why_not_ready(slot));
  RCN_ASSIGN(const OwnPin own, OwnPin::begin(slot));
  RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(own->core));
  if (own->has_grow_id.exchange(true)) {
    return make_error(Code::kInvalidUsage, "comm {} has an id of ncclCommGetUniqueId that is not used up",
                      static_cast<const void*>(slot));
  }
  const Result<UniqueId> made = create_child_id(own->config, use->key());
  if (!made.ok()) own->has_grow_id.store(false);
  if (!made.ok()) return made.status();
  to_public(made.value(), id);
  return {};
}

Status make_children(const std::vector<Child>& children) {
  Status first;
  for (const Child::Made made_by : {Child::Made::kSplit, Child::Made::kGrow, Child::Made::kShrink}) {
    std::vector<Child> here;
    for (const Child& child : children) {
      if (child.made_by != made_by) continue;
      tell(child.handle, nullptr);
      if (is_blocking(child.parent)) {
        here.push_back(child);
        continue;
      }
      // Each on a thread of its own, so they do not wait for each other.
      const auto work = [child] { return make_here({child}); };
      keep_first(&first, made_by == Child::Made::kShrink ? start_rescue(child.parent, work)
                                                         : start_work(child.parent, work));
    }
    keep_first(&first, make_here(here));
  }
  return first;
}

}  // namespace rocenante::nccl
