// SPDX-License-Identifier: Apache-2.0
//
// NCCL's functions that make and end communicators.
#include "nccl_shim/libnccl/api.h"
#include "nccl_shim/libnccl/memory.h"
#include "nccl_shim/libnccl/own_children.h"
#include "nccl_shim/libnccl/policy.h"

namespace rocenante::nccl {
namespace {

// The real library, for an id that is not of our own world.
Status require_real(const char* what) {
  Result<const RealLibrary*> real = wanted_real();
  RCN_TRY(real.status());
  if (real.value() != nullptr) return {};
  return make_error(
      Code::kInvalidArgument,
      "{} was not made by ncclGetUniqueId of RoCEnante's own world, and no real NCCL is in use here: "
      "{}",
      what, why_no_real());
}

Status require_own(const Config& config) {
  if (config.text(Key::kFallback) != "require") return {};
  return make_error(
      Code::kInvalidUsage,
      "the id was made without the real NCCL, and ROCENANTE_FALLBACK=require here: the process "
      "that makes the id decides for all ranks");
}

rcnResult_t init_own(void** comm, int nranks, const rcnUniqueId& id, int rank, const void* config,
                     bool joins = false) {
  return answer_in_group([&]() -> Status {
    RCN_ASSIGN(const Config settings, load_settings({}));
    RCN_TRY(require_own(settings));
    return init_rank(comm, nranks, id, rank, config, joins);
  });
}

// `make` is the real library's call.
template <class Make>
rcnResult_t init_real(void** comm, int nranks, const rcnUniqueId& id, int rank, const void* config,
                      Make make) {
  const rcnResult_t wanted = answer([] { return require_real("id"); });
  if (wanted != rcnSuccess) return wanted;
  std::unique_ptr<SideEntry> side;
  const rcnResult_t prepared = guarded([&]() -> Status {
    if (!inside_real()) side = prepare_side(id, nranks, rank, config);
    return {};
  });
  if (prepared != rcnSuccess) return prepared;
  rcnResult_t result;
  {
    const InsideReal inside;
    result = make();
  }
  if (result != rcnSuccess && result != rcnInProgress) return result;
  bool goes_on = false;
  (void)guarded([&]() -> Status {
    goes_on = adopt_side(comm, std::move(side));
    return {};
  });
  return goes_on ? rcnInProgress : result;
}

Status close_and_forget(OwnSlot* slot, bool aborting) {
  RCN_TRY(close_own(slot, aborting));
  forget_registrations(slot);
  return {};
}

Status end_own(OwnSlot* slot, bool aborting) {
  if (aborting || !group_is_open()) return close_and_forget(slot, aborting);
  // In a group: after its calls.
  RCN_ASSIGN(const OwnPin own, OwnPin::begin(slot));
  ThreadGroup::of_this_thread().destroys.push_back(slot);
  return {};
}

rcnResult_t end(void* comm, bool aborting, rcnResult_t (*forward)(void*)) {
  switch (owner_of(comm)) {
    case Owner::kOwn:
      return answer([&] { return end_own(own_slot(comm), aborting); });
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kReal:
      break;
  }
  bool later = false;
  const rcnResult_t left = guarded([&]() -> Status {
    later = !aborting && group_is_open() && !inside_real() &&
            ThreadGroup::of_this_thread().end_later(comm, forward);
    if (!later) end_side(comm, aborting);
    return {};
  });
  if (later) return left;
  const rcnResult_t result = forward(comm);
  return result == rcnSuccess ? left : result;
}

// The real library's `make` of a communicator out of another, and our side of it. `note` is before the
// call.
template <class Note, class Make>
rcnResult_t make_child_real(void* parent, bool aborting, Note note, Make make) {
  std::optional<RealChild> noted;
  const rcnResult_t refused = answer_in_group([&]() -> Status {
    if (inside_real()) return {};
    if (is_busy(parent)) return aborting ? Status() : busy_error(parent);
    noted = note();
    return {};
  });
  if (refused != rcnSuccess) return refused;
  rcnResult_t result;
  {
    const InsideReal inside;
    result = make();
  }
  if (!noted || (result != rcnSuccess && result != rcnInProgress)) return result;
  bool goes_on = false;
  (void)guarded([&]() -> Status {
    if (group_is_open()) {
      ThreadGroup::of_this_thread().real_children.push_back(std::move(*noted));
    } else {
      goes_on = follow_children({std::move(*noted)});
    }
    return {};
  });
  return goes_on ? rcnInProgress : result;
}

void abandon(void* comm) {
  (void)guarded([&]() -> Status {
    abandon_side(comm);
    return {};
  });
}

}  // namespace
}  // namespace rocenante::nccl

using namespace rocenante;        // NOLINT(google-build-using-namespace)
using namespace rocenante::nccl;  // NOLINT(google-build-using-namespace)

extern "C" {

rcnResult_t rcn_nccl_GetUniqueId(rcnUniqueId* id) {
  if (inside_real()) return rcn_nccl_forward_GetUniqueId(id);
  bool real = false;
  const rcnResult_t result = answer([&]() -> Status {
    RCN_TRY(require(id, "uniqueId"));
    RCN_ASSIGN(const RealLibrary* const library, wanted_real());
    real = library != nullptr;
    if (real) return {};
    RCN_ASSIGN(const Config config, load_settings({}));
    RCN_ASSIGN(const UniqueId made, create_unique_id(config));
    to_public(made, id);
    return {};
  });
  if (result != rcnSuccess || !real) return result;
  rcnResult_t made;
  {
    const InsideReal inside;
    made = rcn_nccl_forward_GetUniqueId(id);
  }
  if (made == rcnSuccess) {
    (void)guarded([&]() -> Status {
      extend_id(id);
      return {};
    });
  }
  return made;
}

rcnResult_t rcn_nccl_CommInitRank(void** comm, int nranks, rcnUniqueId id, int rank) {
  if (is_own_id(id)) return init_own(comm, nranks, id, rank, nullptr);
  return init_real(comm, nranks, id, rank, nullptr,
                   [&] { return rcn_nccl_forward_CommInitRank(comm, nranks, id, rank); });
}

rcnResult_t rcn_nccl_CommInitRankConfig(void** comm, int nranks, rcnUniqueId id, int rank, void* config) {
  if (is_own_id(id)) return init_own(comm, nranks, id, rank, config);
  return init_real(comm, nranks, id, rank, config,
                   [&] { return rcn_nccl_forward_CommInitRankConfig(comm, nranks, id, rank, config); });
}

// Several ids spread the work of meeting; ours needs one. All ranks have the same, in the same order.
rcnResult_t rcn_nccl_CommInitRankScalable(void** comm, int nranks, int rank, int count, rcnUniqueId* ids,
                                          void* config) {
  if (count < 1 || ids == nullptr) {
    return answer([&] {
      return make_error(Code::kInvalidArgument, "nId is {} and commIds is {}: expected at least one id",
                        count, static_cast<void*>(ids));
    });
  }
  if (is_own_id(ids[0])) return init_own(comm, nranks, ids[0], rank, config);
  return init_real(comm, nranks, ids[0], rank, config, [&] {
    return rcn_nccl_forward_CommInitRankScalable(comm, nranks, rank, count, ids, config);
  });
}

rcnResult_t rcn_nccl_CommInitAll(void** comms, int count, const int* devices) {
  bool real = false;
  const rcnResult_t result = answer([&]() -> Status {
    RCN_ASSIGN(const RealLibrary* const library, wanted_real());
    real = library != nullptr;
    return real ? Status() : init_all(comms, count, devices);
  });
  if (!real) return result;
  rcnResult_t made;
  {
    const InsideReal inside;
    made = rcn_nccl_forward_CommInitAll(comms, count, devices);
  }
  if (made == rcnSuccess && !inside_real()) {
    (void)guarded([&]() -> Status {
      adopt_all(comms, count, devices);
      return {};
    });
  }
  return made;
}

rcnResult_t rcn_nccl_CommFinalize(void* comm) {
  switch (owner_of(comm)) {
    case Owner::kOwn:
      return answer([&] { return finalize(own_slot(comm)); });
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kReal:
      break;
  }
  return end(comm, false, rcn_nccl_forward_CommFinalize);
}

rcnResult_t rcn_nccl_CommDestroy(void* comm) {
  return end(comm, false, rcn_nccl_forward_CommDestroy);
}

rcnResult_t rcn_nccl_CommAbort(void* comm) {
  return end(comm, true, rcn_nccl_forward_CommAbort);
}

rcnResult_t rcn_nccl_CommRevoke(void* comm, int flags) {
  switch (owner_of(comm)) {
    case Owner::kOwn:
      return answer([&] { return revoke(own_slot(comm), flags); });
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kReal:
      break;
  }
  abandon(comm);
  const InsideReal inside;
  return rcn_nccl_forward_CommRevoke(comm, flags);
}

rcnResult_t rcn_nccl_CommSplit(void* comm, int color, int key, void** made, void* config) {
  switch (owner_of(comm)) {
    case Owner::kOwn:
      return answer([&] { return split(comm, color, key, made, config); });
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kReal:
      break;
  }
  return make_child_real(
      comm, false, [&] { return note_split(comm, color, key, made, config); },
      [&] { return rcn_nccl_forward_CommSplit(comm, color, key, made, config); });
}

rcnResult_t rcn_nccl_CommShrink(void* comm, int* excluded, int count, void** made, void* config,
                                int flags) {
  switch (owner_of(comm)) {
    case Owner::kOwn:
      return answer([&] { return shrink(comm, excluded, count, made, config, flags); });
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kReal:
      break;
  }
  constexpr int kShrinkAbort = 1;
  const bool aborting = (flags & kShrinkAbort) != 0;
  return make_child_real(
      comm, aborting, [&] { return note_shrink(comm, excluded, count, made, config); },
      [&] {
        // Our word first: nobody waits in a call of ours while the others end.
        if (aborting) abandon(comm);
        return rcn_nccl_forward_CommShrink(comm, excluded, count, made, config, flags);
      });
}

rcnResult_t rcn_nccl_CommGetUniqueId(void* comm, rcnUniqueId* id) {
  switch (owner_of(comm)) {
    case Owner::kOwn:
      return answer([&] { return make_grow_id(own_slot(comm), id); });
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kReal:
      break;
  }
  rcnResult_t result;
  {
    const InsideReal inside;
    result = rcn_nccl_forward_CommGetUniqueId(comm, id);
  }
  if (result == rcnSuccess && id != nullptr && !inside_real()) {
    (void)guarded([&]() -> Status {
      extend_grow_id(comm, id);
      return {};
    });
  }
  return result;
}

// New ranks have no communicator yet, and initialise with the id.
rcnResult_t rcn_nccl_CommGrow(void* comm, int nranks, const rcnUniqueId* id, int rank, void** made,
                              void* config) {
  const auto grow_real = [&] { return rcn_nccl_forward_CommGrow(comm, nranks, id, rank, made, config); };
  if (comm == nullptr && id != nullptr) {
    if (is_own_id(*id)) return init_own(made, nranks, *id, rank, config, true);
    return init_real(made, nranks, *id, rank, config, grow_real);
  }
  switch (owner_of(comm)) {
    case Owner::kOwn:
      return answer([&] { return grow(comm, nranks, id, rank, made, config); });
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kReal:
      break;
  }
  return make_child_real(
      comm, false, [&] { return note_grow(comm, nranks, id, made, config); }, grow_real);
}

}  // extern "C"
