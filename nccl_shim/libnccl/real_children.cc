// SPDX-License-Identifier: Apache-2.0
//
// Our sides of communicators that the real library makes out of others.
#include <algorithm>
#include <vector>

#include "lib/base/log.h"
#include "lib/comm/boundary.h"
#include "nccl_shim/libnccl/exchange.h"
#include "nccl_shim/libnccl/own_world.h"
#include "nccl_shim/libnccl/real_world.h"
#include "nccl_shim/libnccl/thread_group.h"

namespace rocenante::nccl {
namespace {

// A new communicator's place; no ranks where it has no side of ours, or not this rank.
using Place = SplitResult;

Participant participant(const SideEntry& side) {
  return {side.core, side.rank, side.ranks, &side.config};
}

Result<std::vector<Place>> place_grows(const std::vector<const RealChild*>& children,
                                       const std::vector<const SideEntry*>& parents) {
  std::vector<GrowAsk> asks;
  for (std::size_t i = 0; i < children.size(); ++i) {
    asks.push_back({participant(*parents[i]), children[i]->id, children[i]->ranks});
  }
  RCN_ASSIGN(const std::vector<std::optional<UniqueId>> ids, exchange_grows(asks));
  std::vector<Place> places(children.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i]) places[i] = {*ids[i], parents[i]->rank, children[i]->ranks};
  }
  return places;
}

Result<std::vector<Place>> place_shrinks(const std::vector<const RealChild*>& children,
                                         const std::vector<const SideEntry*>& parents) {
  std::vector<Place> places;
  for (std::size_t i = 0; i < children.size(); ++i) {
    const std::vector<bool>& out = children[i]->left_out;
    RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(parents[i]->core));
    RCN_ASSIGN(const UniqueId id, use->reunion_id(out));
    places.push_back({id, static_cast<int>(std::count(out.begin(), out.begin() + parents[i]->rank, false)),
                      static_cast<int>(std::count(out.begin(), out.end(), false))});
  }
  return places;
}

// For children made in one way.
Result<std::vector<Place>> place(const std::vector<const RealChild*>& children,
                                 const std::vector<const SideEntry*>& parents) {
  if (children.front()->made_by == RealChild::Made::kGrow) return place_grows(children, parents);
  if (children.front()->made_by == RealChild::Made::kShrink) return place_shrinks(children, parents);
  std::vector<SplitAsk> asks;
  for (std::size_t i = 0; i < children.size(); ++i) {
    asks.push_back({participant(*parents[i]), children[i]->color, children[i]->key});
  }
  return exchange_splits(asks);
}

std::unique_ptr<SideEntry> make_side(const SideEntry& parent, const Place& place, bool blocking) {
  auto child = std::make_unique<SideEntry>(place.rank, place.ranks, parent.config);
  child->id = place.id;
  child->blocking = blocking;
  return child;
}

void add_child(void* made, std::unique_ptr<SideEntry> child) {
  if (made == nullptr) return;
  if (const Status added = add_side(made, std::move(child)); !added.ok()) {
    log_warn(-1, "every call of a new communicator will be NCCL's: {}", added.text());
  }
}

void tell_failure(const Status& status) {
  log_warn(-1, "every call of a new communicator will be NCCL's: {}", status.text());
}

// A shrink's parent may have been given up; what it was is enough.
bool can_follow(SideEntry& parent, RealChild::Made made_by) {
  if (made_by == RealChild::Made::kShrink) return parent.core != nullptr;
  return parent.decision.load(std::memory_order_acquire) == SideEntry::kOurs;
}

// Alone, in the background: the real library has made the new communicator, and the client, who has no
// other way to ask for it, learns that it is there when our side is.
void follow_alone(SideEntry& parent, const RealChild& child) {
  if (child.made_by == RealChild::Made::kSplit) (void)decide(parent);
  if (!can_follow(parent, child.made_by)) return;
  const Result<std::vector<Place>> places = place({&child}, {&parent});
  if (!places.ok()) return tell_failure(places.status());
  if (places.value().front().ranks == 0) return;
  auto side = make_side(parent, places.value().front(), child.blocking);
  (void)decide(*side);
  add_child(*child.handle, std::move(side));
}

// Those of blocking parents: all of this thread's at once, since they may wait for each other.
void follow_together(const std::vector<const RealChild*>& children) {
  std::vector<SidePin> pins;
  std::vector<const SideEntry*> parents;
  std::vector<const RealChild*> followed;
  for (const RealChild* child : children) {
    SidePin side(child->parent);
    if (!side || !can_follow(*side, child->made_by)) continue;
    parents.push_back(&*side);
    pins.push_back(std::move(side));
    followed.push_back(child);
  }
  if (followed.empty()) return;
  const Result<std::vector<Place>> places = place(followed, parents);
  if (!places.ok()) return tell_failure(places.status());
  std::vector<void*> to_meet;
  for (std::size_t i = 0; i < followed.size(); ++i) {
    if (places.value()[i].ranks == 0) continue;
    void* const made = *followed[i]->handle;
    add_child(made, make_side(*parents[i], places.value()[i], followed[i]->blocking));
    // A blocking one meets at its first call; this one's calls may not wait.
    if (!followed[i]->blocking) to_meet.push_back(made);
  }
  // Their parents may end meanwhile.
  pins.clear();
  decide_all(to_meet);
}

bool child_blocking(const SideEntry& parent, const void* config) {
  const Result<bool> blocking = read_blocking(config);
  return config == nullptr || !blocking.ok() ? parent.blocking : blocking.value();
}

}  // namespace

std::optional<RealChild> note_split(void* parent, int color, int key, void** made, const void* config) {
  const SidePin side(parent);
  if (made == nullptr || !side || side->decision == SideEntry::kReal) return std::nullopt;
  return RealChild{RealChild::Made::kSplit, parent, made, child_blocking(*side, config), color, key};
}

std::optional<RealChild> note_shrink(void* parent, const int* left_out, int count, void** made,
                                     const void* config) {
  const SidePin side(parent);
  if (made == nullptr || !side || side->decision == SideEntry::kUndecided) return std::nullopt;
  if (side->core == nullptr || count < 0 || (left_out == nullptr && count != 0)) return std::nullopt;
  std::vector<bool> out(static_cast<std::size_t>(side->ranks), false);
  for (int i = 0; i < count; ++i) {
    if (left_out[i] < 0 || left_out[i] >= side->ranks) return std::nullopt;  // the real library will say so
    out[static_cast<std::size_t>(left_out[i])] = true;
  }
  return RealChild{
      RealChild::Made::kShrink, parent, made, child_blocking(*side, config), 0, 0, std::move(out)};
}

std::optional<RealChild> note_grow(void* parent, int ranks, const rcnUniqueId* id, void** made,
                                   const void* config) {
  const SidePin side(parent);
  if (made == nullptr || !side || side->decision != SideEntry::kOurs) return std::nullopt;
  RealChild child{RealChild::Made::kGrow, parent, made, child_blocking(*side, config), 0, 0, {}, ranks};
  if (id != nullptr) {
    if (Result<UniqueId> ours = side_id(*id); ours.ok()) child.id = ours.take();
  }
  return child;
}

bool follow_children(const std::vector<RealChild>& children) {
  bool goes_on = false;
  std::vector<void*> undecided;
  for (const RealChild& child : children) {
    const SidePin side(child.parent);
    if (side && side->blocking && child.made_by == RealChild::Made::kSplit)
      undecided.push_back(child.parent);
  }
  decide_all(undecided);
  for (const auto made_by : {RealChild::Made::kSplit, RealChild::Made::kGrow, RealChild::Made::kShrink}) {
    std::vector<const RealChild*> here;
    for (const RealChild& child : children) {
      const SidePin side(child.parent);
      if (!side || child.made_by != made_by) continue;
      if (side->blocking) {
        here.push_back(&child);
        continue;
      }
      wait_with(*side, [&parent = *side, child] { follow_alone(parent, child); });
      goes_on = true;
    }
    follow_together(here);
  }
  return goes_on;
}

void extend_grow_id(void* parent, rcnUniqueId* id) {
  const SidePin side(parent);
  if (!side || side->decision.load(std::memory_order_acquire) != SideEntry::kOurs) return;
  const Status status = [&]() -> Status {
    RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(side->core));
    RCN_ASSIGN(const UniqueId made, create_child_id(side->config, use->key()));
    return fill_tail(id, made);
  }();
  if (!status.ok()) tell_failure(status);
}

}  // namespace rocenante::nccl
