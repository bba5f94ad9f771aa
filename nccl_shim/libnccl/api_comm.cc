// SPDX-License-Identifier: Apache-2.0
//
// NCCL's functions that make, ask and end communicators.
#include "nccl_shim/libnccl/api.h"
#include "nccl_shim/libnccl/memory.h"
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

rcnResult_t init_own(void** comm, int nranks, const rcnUniqueId& id, int rank, const void* config) {
  return answer_in_group([&]() -> Status {
    RCN_ASSIGN(const Config settings, load_settings({}));
    RCN_TRY(require_own(settings));
    return init_rank(comm, nranks, id, rank, config);
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
  if (result == rcnSuccess || result == rcnInProgress) {
    (void)guarded([&]() -> Status {
      adopt_side(comm, std::move(side));
      return {};
    });
  }
  return result;
}

// A query of one number. `read` has the communicator's part.
template <class Read>
rcnResult_t query(void* comm, int* value, const char* name, rcnResult_t (*forward)(void*, int*),
                  Read read) {
  switch (owner_of(comm)) {
    case Owner::kReal:
      return forward(comm, value);
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kOwn:
      break;
  }
  return answer([&]() -> Status {
    RCN_TRY(require(value, name));
    RCN_ASSIGN(const OwnPin own, OwnPin::begin(own_slot(comm)));
    if (own->phase.load(std::memory_order_acquire) != OwnComm::kReady)
      RCN_TRY(why_not_ready(own_slot(comm)));
    *value = read(*own);
    return {};
  });
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

rcnResult_t split_real(void* comm, int color, int key, void** made, void* config) {
  rcnResult_t result;
  {
    const InsideReal inside;
    result = rcn_nccl_forward_CommSplit(comm, color, key, made, config);
  }
  // What all ranks share: whether it is a blocking split of a blocking communicator that succeeded.
  if (result != rcnSuccess || made == nullptr || inside_real()) return result;
  (void)guarded([&]() -> Status {
    adopt_split(comm, color, key, *made);
    return {};
  });
  return result;
}

rcnResult_t refuse(const char* what) {
  return answer([&] {
    return make_error(Code::kInvalidUsage, "{} is not native yet: it needs the real NCCL", what);
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
      adopt_all(comms, count);
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
  (void)guarded([&]() -> Status {
    end_side(comm, true);
    return {};
  });
  return rcn_nccl_forward_CommRevoke(comm, flags);
}

rcnResult_t rcn_nccl_CommSplit(void* comm, int color, int key, void** made, void* config) {
  switch (owner_of(comm)) {
    case Owner::kReal:
      return split_real(comm, color, key, made, config);
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kOwn:
      break;
  }
  return answer([&]() -> Status {
    RCN_TRY(read_blocking(config).status());
    return split({own_slot(comm), color, key, made});
  });
}

rcnResult_t rcn_nccl_CommShrink(void* comm, int* excluded, int count, void** made, void* config,
                                int flags) {
  switch (owner_of(comm)) {
    case Owner::kOwn:
      return refuse("ncclCommShrink");
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kReal:
      break;
  }
  constexpr int kShrinkAbort = 1;
  if ((flags & kShrinkAbort) != 0) {
    (void)guarded([&]() -> Status {
      end_side(comm, true);
      return {};
    });
  }
  return rcn_nccl_forward_CommShrink(comm, excluded, count, made, config, flags);
}

rcnResult_t rcn_nccl_CommCount(void* comm, int* count) {
  return query(comm, count, "count", rcn_nccl_forward_CommCount,
               [](const OwnComm& own) { return own.ranks; });
}
rcnResult_t rcn_nccl_CommUserRank(void* comm, int* rank) {
  return query(comm, rank, "rank", rcn_nccl_forward_CommUserRank,
               [](const OwnComm& own) { return own.rank; });
}
// -1 unless ncclCommInitAll was given numbers: host memory has no device.
rcnResult_t rcn_nccl_CommCuDevice(void* comm, int* device) {
  return query(comm, device, "device", rcn_nccl_forward_CommCuDevice,
               [](const OwnComm& own) { return own.device; });
}

rcnResult_t rcn_nccl_CommGetAsyncError(void* comm, rcnResult_t* error) {
  switch (owner_of(comm)) {
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kOwn:
      return answer([&]() -> Status {
        RCN_TRY(require(error, "asyncError"));
        RCN_ASSIGN(const Code code, async_code(own_slot(comm)));
        *error = client_result(static_cast<rcnResult_t>(code));
        return {};
      });
    case Owner::kReal:
      break;
  }
  rcnResult_t ours = rcnSuccess;
  if (const SidePin side(comm); side && error != nullptr && side->decision == SideEntry::kOurs) {
    (void)guarded([&]() -> Status {
      RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(side->core));
      Status status = use->async_error();
      ours = static_cast<rcnResult_t>(status.code());
      return status;
    });
  }
  if (ours == rcnSuccess) return rcn_nccl_forward_CommGetAsyncError(comm, error);
  *error = client_result(ours);
  return rcnSuccess;
}

rcnResult_t rcn_nccl_CommRegister(void* comm, void* buffer, size_t bytes, void** handle) {
  switch (owner_of(comm)) {
    case Owner::kReal:
      return rcn_nccl_forward_CommRegister(comm, buffer, bytes, handle);
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kOwn:
      break;
  }
  return answer([&]() -> Status {
    RCN_TRY(require(handle, "handle"));
    RCN_TRY(require(buffer, "buff"));
    RCN_TRY(why_not_ready(own_slot(comm)));
    *handle = note_registration(comm, buffer, bytes);
    return {};
  });
}

rcnResult_t rcn_nccl_CommDeregister(void* comm, void* handle) {
  switch (owner_of(comm)) {
    case Owner::kReal:
      return rcn_nccl_forward_CommDeregister(comm, handle);
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kOwn:
      break;
  }
  return answer([&]() -> Status {
    RCN_ASSIGN(const OwnPin own, OwnPin::begin(own_slot(comm)));
    if (forget_registration(comm, handle)) return {};
    return make_error(Code::kInvalidArgument, "handle {} is not a registration of comm {}", handle, comm);
  });
}

rcnResult_t rcn_nccl_CommWindowRegister(void* comm, void* buffer, size_t bytes, void** window, int flags) {
  switch (owner_of(comm)) {
    case Owner::kReal:
      return rcn_nccl_forward_CommWindowRegister(comm, buffer, bytes, window, flags);
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kOwn:
      break;
  }
  return refuse("ncclCommWindowRegister");
}

rcnResult_t rcn_nccl_CommWindowDeregister(void* comm, void* window) {
  switch (owner_of(comm)) {
    case Owner::kReal:
      return rcn_nccl_forward_CommWindowDeregister(comm, window);
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kOwn:
      break;
  }
  return refuse("ncclCommWindowDeregister");
}

}  // extern "C"
