// SPDX-License-Identifier: Apache-2.0
//
// Our sides of communicators that the real library makes out of others.
#include <algorithm>
#include <vector>

#include "lib/base/log.h"
#include "lib/comm/at_once.h"
#include "lib/comm/boundary.h"
#include "lib/net/deadline.h"
#include "nccl_shim/libnccl/exchange.h"
#include "nccl_shim/libnccl/families.h"
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

Result<Place> place_shrink(const RealChild& child, const SideEntry& parent) {
  const std::vector<bool>& out = child.left_out;
  RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(parent.core));
  RCN_ASSIGN(const UniqueId id, use->reunion_id(out));
  return Place{id, static_cast<int>(std::count(out.begin(), out.begin() + parent.rank, false)),
               static_cast<int>(std::count(out.begin(), out.end(), false))};
}

Result<Place> place(const RealChild& child, const SideEntry& parent) {
  switch (child.made_by) {
    case RealChild::Made::kSplit:
      return exchange_split({participant(parent), child.color, child.key});
    case RealChild::Made::kShrink:
      return place_shrink(child, parent);
    case RealChild::Made::kGrow:
      break;
  }
  RCN_ASSIGN(const std::optional<UniqueId> id, exchange_grow({participant(parent), child.id, child.ranks}));
  return id ? Place{*id, parent.rank, child.ranks} : Place{};
}

std::unique_ptr<SideEntry> make_side(const SideEntry& parent, const Place& place, bool blocking) {
  auto child = std::make_unique<SideEntry>(place.rank, place.ranks, parent.config, parent.device);
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

// The real library has made the new communicator. A blocking one's side meets at its first call, but after
// a shrink, whose ranks meet where those of the parent's next shrink will. Of a non-blocking parent its
// client, who has no other way to ask for it, learns that it is there when our side is.
Status follow(SideEntry& parent, const RealChild& child) {
  if (child.made_by == RealChild::Made::kSplit) (void)decide(parent);
  if (!can_follow(parent, child.made_by)) return {};
  RCN_ASSIGN(const Place found, place(child, parent));
  if (found.ranks == 0) return {};
  auto side = make_side(parent, found, child.blocking);
  if (!parent.blocking || !child.blocking || child.made_by == RealChild::Made::kShrink) {
    (void)decide(*side);
    set_driver(*side, child.driver);
  }
  // The client may have given up its handle with the parent, or the process.
  if (net::cancelled()) return {};
  add_child(*child.handle, std::move(side));
  return {};
}

// Those of one parent, one after the other. Giving up the parent ends every wait.
void follow_in_turn(SideEntry& parent, const std::vector<RealChild>& children) {
  const net::ScopedCancel cancel(parent.work.cancelled());
  for (const RealChild& child : children) {
    const Status followed = caught([&] { return follow(parent, child); });
    if (!followed.ok()) tell_failure(followed);
  }
  // What was exchanged made it this thread's.
  set_driver(parent, children.front().driver);
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
  std::vector<SidePin> pins;
  std::vector<std::vector<RealChild>> here;
  for (std::vector<RealChild>& family : by_parent(children)) {
    SidePin side(family.front().parent);
    if (!side) continue;
    if (side->blocking) {
      pins.push_back(std::move(side));
      here.push_back(std::move(family));
      continue;
    }
    wait_with(*side, [&parent = *side, all = std::move(family)] { follow_in_turn(parent, all); });
    goes_on = true;
  }
  if (here.size() == 1) {
    follow_in_turn(*pins.front(), here.front());
    return goes_on;
  }
  // Ranks of one world that this thread holds wait for each other.
  const std::vector<Status> results = run_at_once(here.size(), [&](std::size_t i) -> Status {
    follow_in_turn(*pins[i], here[i]);
    return {};
  });
  for (const Status& result : results) {
    if (!result.ok()) tell_failure(result);
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
