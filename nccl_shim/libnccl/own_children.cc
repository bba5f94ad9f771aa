// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/own_children.h"

#include <algorithm>

#include "lib/comm/at_once.h"
#include "lib/comm/boundary.h"
#include "lib/net/deadline.h"
#include "nccl_shim/libnccl/abi.h"
#include "nccl_shim/libnccl/exchange.h"
#include "nccl_shim/libnccl/families.h"
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

Participant participant(const OwnComm& own) {
  return {own.core, own.rank, own.ranks, &own.config};
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
  // Once; further calls find it there.
  Status meet(const OwnComm& own) {
    if (core_ != nullptr) return {};
    UniqueId id;
    {
      RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(own.core));
      RCN_ASSIGN(id, use->reunion_id(std::vector<bool>(static_cast<std::size_t>(own.ranks), false)));
    }
    return initialise(PendingInit{&core_, id, static_cast<std::uint32_t>(own.rank),
                                  static_cast<std::uint32_t>(own.ranks), own.config, own.device.opened});
  }
  void* core() const { return core_; }

 private:
  void* core_ = nullptr;
};

Result<Place> place_split(const Child& child, const OwnComm& own, StandIn& stand_in) {
  Participant who = participant(own);
  if (own.revoked) {
    RCN_TRY(stand_in.meet(own));
    who.core = stand_in.core();
  }
  RCN_ASSIGN(const SplitResult result, exchange_split({who, child.color, child.key}));
  return Place{result.id, result.rank, result.ranks};
}

Result<Place> place_grow(const Child& child, OwnComm& own) {
  RCN_ASSIGN(const std::optional<UniqueId> id, exchange_grow({participant(own), child.id, child.ranks}));
  // It is used up.
  if (child.id) own.has_grow_id.store(false);
  if (id) return Place{*id, own.rank, child.ranks};
  return make_error(Code::kInvalidUsage, "no rank of comm {} gave the uniqueId of ncclCommGetUniqueId",
                    static_cast<const void*>(child.parent));
}

Result<Place> place_shrink(const Child& child, const OwnComm& own) {
  const std::vector<bool>& left_out = child.left_out;
  RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(own.core));
  RCN_ASSIGN(const UniqueId id, use->reunion_id(left_out));
  const auto before = std::count(left_out.begin(), left_out.begin() + own.rank, false);
  const auto all = std::count(left_out.begin(), left_out.end(), false);
  return Place{id, static_cast<int>(before), static_cast<int>(all)};
}

Status make_one(const Child& child, OwnComm& own, StandIn& stand_in) {
  RCN_ASSIGN(const Place place, child.made_by == Child::Made::kSplit  ? place_split(child, own, stand_in)
                                : child.made_by == Child::Made::kGrow ? place_grow(child, own)
                                                                      : place_shrink(child, own));
  if (place.ranks == 0) return {};
  RCN_ASSIGN(OwnInit init, prepare_init(child.handle, place.ranks, place.id, place.rank, child.blocking,
                                        own.device, own.config));
  init.is_child = true;
  init.driver = child.driver;
  return run_inits({init});
}

// Those of one parent, one after the other; the first error ends it. Aborting the parent ends every wait.
Status make_in_turn(const std::vector<Child>& children) {
  RCN_ASSIGN(const OwnPin own, OwnPin::begin(children.front().parent));
  const net::ScopedCancel cancel(own->work.cancelled());
  StandIn stand_in;
  Status done;
  for (const Child& child : children) {
    if (done.ok()) done = make_one(child, *own, stand_in);
  }
  // What was exchanged made it this thread's.
  if (const ExclusiveUse use(own->core); use) use->set_driver(children.front().driver);
  return done;
}

bool is_blocking(OwnSlot* slot) {
  const Result<OwnPin> own = OwnPin::begin(slot);
  return !own.ok() || own.value()->blocking;
}

void keep_first(Status* first, Status next) {
  if (first->ok() || (first->code() == Code::kInProgress && !next.ok())) *first = std::move(next);
}

// Of a non-blocking parent: one piece of work, since it does one at a time.
Status start_family(std::vector<Child> family) {
  OwnSlot* const parent = family.front().parent;
  const bool any_shrink = std::any_of(family.begin(), family.end(), [](const Child& child) {
    return child.made_by == Child::Made::kShrink;
  });
  const auto work = [children = std::move(family)] { return make_in_turn(children); };
  return any_shrink ? start_rescue(parent, work) : start_work(parent, work);
}

// Now, or with the thread's group.
Status make_child(Child child) {
  if (group_is_open()) {
    ThreadGroup::of_this_thread().children.push_back(std::move(child));
    return {};
  }
  return make_children({std::move(child)}, {});
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

Status make_children(const std::vector<Child>& children, const std::vector<OwnInit>& joining) {
  Status first;
  std::vector<std::vector<Child>> here;
  for (std::vector<Child>& family : by_parent(children)) {
    for (const Child& child : family) tell(child.handle, nullptr);
    if (is_blocking(family.front().parent)) {
      here.push_back(std::move(family));
    } else {
      keep_first(&first, start_family(std::move(family)));
    }
  }
  const std::size_t last = here.size();
  const std::size_t count = last + (joining.empty() ? 0 : 1);
  // Ranks of one world that this thread holds wait for each other.
  const auto make = [&](std::size_t i) { return i == last ? run_inits(joining) : make_in_turn(here[i]); };
  std::vector<Status> results = count == 1 ? std::vector<Status>{make(0)} : run_at_once(count, make);
  for (Status& result : results) keep_first(&first, std::move(result));
  return first;
}

}  // namespace rocenante::nccl
