// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/thread_group.h"

#include <algorithm>
#include <map>

#include "lib/comm/boundary.h"
#include "nccl_shim/libnccl/exports.h"
#include "nccl_shim/libnccl/policy.h"
#include "nccl_shim/libnccl/real_world.h"

namespace rocenante::nccl {
namespace {

void keep_first(rcnResult_t* first, rcnResult_t next) {
  if (*first == rcnSuccess || (*first == rcnInProgress && next != rcnSuccess)) *first = next;
}

std::vector<void*> undecided(const std::vector<ThreadGroup::SideCall>& calls) {
  std::vector<void*> comms;
  for (const ThreadGroup::SideCall& call : calls) {
    const SidePin side(call.comm);
    if (!call.may_be_ours || !side || side->decision != SideEntry::kUndecided) continue;
    if (std::find(comms.begin(), comms.end(), call.comm) == comms.end()) comms.push_back(call.comm);
  }
  return comms;
}

bool is_ours(const ThreadGroup::SideCall& call) {
  if (!call.may_be_ours) return false;
  const SidePin side(call.comm);
  return side && side->decision.load(std::memory_order_acquire) == SideEntry::kOurs;
}

// Where calls of a communicator change hands, a later phase begins: phase 0 is the real library's, 1 ours,
// and so on. Phases end one after the other; within one, communicators are independent.
std::map<unsigned, std::vector<const ThreadGroup::SideCall*>> in_phases(
    const std::vector<ThreadGroup::SideCall>& calls) {
  std::map<void*, unsigned> at;
  std::map<unsigned, std::vector<const ThreadGroup::SideCall*>> phases;
  for (const ThreadGroup::SideCall& call : calls) {
    unsigned& phase = at[call.comm];
    if ((phase % 2 == 1) != is_ours(call)) ++phase;
    phases[phase].push_back(&call);
  }
  return phases;
}

rcnResult_t run_ours(const std::vector<const ThreadGroup::SideCall*>& calls) {
  return guarded([&]() -> Status {
    CallGroup together;
    together.start();
    std::vector<SidePin> pins;
    for (const ThreadGroup::SideCall* call : calls) {
      SidePin side(call->comm);
      if (!side) return make_error(Code::kInvalidUsage, "comm {} was destroyed in the group", call->comm);
      CollectiveCall checked = call->call;
      {
        ExclusiveUse use(side->core);
        if (!use) return ExclusiveUse::refusal(side->core);
        RCN_TRY(use->check_stream(call->stream));
        RCN_TRY(use->check(&checked));
        RCN_TRY(use->check_on_device(checked));
      }
      together.add(side->core, checked, call->stream);
      pins.push_back(std::move(side));
    }
    return together.end();
  });
}

// Those that were noted and turn out to be the real library's.
void count_forwarded(const ThreadGroup::SideCall& call) {
  const SidePin side(call.comm);
  if (!side || call.call.count == 0) return;
  side->forwarded.count(kind_of(call.call.collective), message_bytes(call.call, side->ranks),
                        call.may_be_ours ? Reason::kNotTakingPart : why_not_ours(*side, call.call));
}

// Takes out those that wait for calls which make others out of communicators.
std::vector<OwnInit> take_joining(std::vector<OwnInit>* inits) {
  const auto first =
      std::stable_partition(inits->begin(), inits->end(), [](const OwnInit& init) { return !init.joins; });
  std::vector<OwnInit> joining(first, inits->end());
  inits->erase(first, inits->end());
  return joining;
}

rcnResult_t run_real(const std::vector<const ThreadGroup::SideCall*>& calls, bool in_group) {
  rcnResult_t first = in_group ? rcnSuccess : rcn_nccl_forward_GroupStart();
  for (const ThreadGroup::SideCall* call : calls) {
    count_forwarded(*call);
    keep_first(&first, call->forward());
  }
  if (!in_group) keep_first(&first, rcn_nccl_forward_GroupEnd());
  return first;
}

}  // namespace

ThreadGroup& ThreadGroup::of_this_thread() {
  std::shared_ptr<void>& held = thread_state().extension;
  if (held == nullptr) held = std::make_shared<ThreadGroup>();
  return *static_cast<ThreadGroup*>(held.get());
}

// The handles are left alone: where they would go may be gone with the thread.
ThreadGroup::~ThreadGroup() {
  for (const OwnInit& init : inits) {
    const Status closed = close_own(init.slot, true);
    (void)closed;
  }
}

bool ThreadGroup::holds(void* comm) const {
  return std::any_of(side_calls.begin(), side_calls.end(),
                     [&](const SideCall& call) { return call.comm == comm; });
}

bool ThreadGroup::end_later(void* comm, rcnResult_t (*forward)(void*)) {
  const bool is_parent = std::any_of(real_children.begin(), real_children.end(),
                                     [&](const RealChild& child) { return child.parent == comm; });
  if (!is_parent && !holds(comm)) return false;
  real_ends_.push_back({comm, forward});
  return true;
}

Status ThreadGroup::start() {
  CallGroup& group = CallGroup::of_this_thread();
  if (!group.open()) {
    RCN_ASSIGN(const RealLibrary* const real, wanted_real());
    real_is_open_ = real != nullptr;
    if (real_is_open_) {
      const InsideReal inside;
      if (const rcnResult_t result = rcn_nccl_forward_GroupStart(); result != rcnSuccess) {
        return make_error(static_cast<Code>(result), "the real ncclGroupStart failed");
      }
    }
  }
  group.start();
  return {};
}

rcnResult_t ThreadGroup::end() {
  CallGroup& group = CallGroup::of_this_thread();
  if (!group.open()) {
    return report(make_error(Code::kInvalidUsage, "ncclGroupEnd without ncclGroupStart"));
  }
  if (group.depth() > 1) return guarded([&] { return group.end(); });
  return end_all();
}

Status ThreadGroup::drop() {
  side_calls.clear();
  real_ends_.clear();
  real_inits.clear();
  real_children.clear();
  children.clear();
  finalizes.clear();
  destroys.clear();
  for (const OwnInit& init : std::exchange(inits, {})) {
    tell(init.handle, nullptr);
    (void)close_own(init.slot, true).ok();  // may have been aborted meanwhile; the others still go
  }
  return {};
}

Status ThreadGroup::discard(bool* real) {
  CallGroup& group = CallGroup::of_this_thread();
  if (!group.open()) return make_error(Code::kInvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart");
  const bool is_outermost = group.depth() == 1;
  group.discard();
  *real = real_is_open_;
  if (is_outermost) {
    real_is_open_ = false;
    RCN_TRY(drop());
  }
  if (*real) return {};
  return make_error(
      Code::kInvalidUsage,
      "ncclGroupSimulateEnd has no estimate without the real NCCL; the group's calls were dropped");
}

rcnResult_t ThreadGroup::end_all() {
  if (!CallGroup::of_this_thread().refused().ok()) {
    // Nothing is performed: the others of the group may wait for the call that was refused.
    (void)guarded([&] { return drop(); });
    if (std::exchange(real_is_open_, false)) (void)rcn_nccl_forward_GroupEnd();
    return guarded([] { return CallGroup::of_this_thread().end(); });
  }
  rcnResult_t first = run_side_calls();
  keep_first(&first, adopt_made(first));
  keep_first(&first, run_real_ends());
  std::vector<OwnInit> alone = std::exchange(inits, {});
  const std::vector<OwnInit> joining = take_joining(&alone);
  keep_first(&first, guarded([&] { return run_inits(alone); }));
  keep_first(&first, guarded([] { return CallGroup::of_this_thread().end(); }));
  keep_first(&first, guarded([&] { return make_children(std::exchange(children, {}), joining); }));
  for (OwnSlot* slot : std::exchange(finalizes, {})) {
    keep_first(&first, guarded([&] { return run_finalize(slot); }));
  }
  for (OwnSlot* slot : std::exchange(destroys, {})) {
    keep_first(&first, guarded([&] { return close_own(slot, false); }));
  }
  return first;
}

// What the real library has made, or is making, in the group that has ended with `result`.
rcnResult_t ThreadGroup::adopt_made(rcnResult_t result) {
  std::vector<RealInit> inits = std::exchange(real_inits, {});
  const std::vector<RealChild> made = std::exchange(real_children, {});
  if (result != rcnSuccess && result != rcnInProgress) return rcnSuccess;
  bool goes_on = false;
  const rcnResult_t adopted = guarded([&]() -> Status {
    for (RealInit& init : inits) goes_on = adopt_now(init.handle, std::move(init.entry)) || goes_on;
    goes_on = follow_children(made) || goes_on;
    return {};
  });
  return adopted == rcnSuccess && goes_on ? rcnInProgress : adopted;
}

// The real library's group is open and holds what was forwarded at once: that is phase 0.
rcnResult_t ThreadGroup::run_side_calls() {
  const std::vector<SideCall> calls = std::exchange(side_calls, {});
  decide_all(undecided(calls));
  const auto phases = in_phases(calls);
  rcnResult_t first = rcnSuccess;
  if (const auto at = phases.find(0); at != phases.end())
    keep_first(&first, run_real(at->second, real_is_open_));
  if (std::exchange(real_is_open_, false)) {
    const InsideReal inside;
    keep_first(&first, rcn_nccl_forward_GroupEnd());
  }
  for (const auto& [phase, pending] : phases) {
    if (phase != 0) keep_first(&first, phase % 2 == 1 ? run_ours(pending) : run_real(pending, false));
  }
  return first;
}

// Together, as the client asked for them.
rcnResult_t ThreadGroup::run_real_ends() {
  const std::vector<RealEnd> ends = std::exchange(real_ends_, {});
  if (ends.empty()) return rcnSuccess;
  rcnResult_t first = rcn_nccl_forward_GroupStart();
  for (const RealEnd& end : ends) {
    keep_first(&first, guarded([&]() -> Status {
      end_side(end.comm, false);
      return {};
    }));
    keep_first(&first, end.forward(end.comm));
  }
  keep_first(&first, rcn_nccl_forward_GroupEnd());
  return first;
}

}  // namespace rocenante::nccl
