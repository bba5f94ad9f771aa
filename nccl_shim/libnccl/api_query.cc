// SPDX-License-Identifier: Apache-2.0
//
// NCCL's functions that ask communicators, and that tell them of memory.
#include "nccl_shim/libnccl/api.h"
#include "nccl_shim/libnccl/memory.h"

namespace rocenante::nccl {
namespace {

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

}  // namespace
}  // namespace rocenante::nccl

using namespace rocenante;        // NOLINT(google-build-using-namespace)
using namespace rocenante::nccl;  // NOLINT(google-build-using-namespace)

extern "C" {

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
               [](const OwnComm& own) { return own.device.label; });
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
  // The real library asks this of itself before it shrinks or revokes; our side is not its business.
  if (inside_real()) return rcn_nccl_forward_CommGetAsyncError(comm, error);
  rcnResult_t ours = rcnSuccess;
  if (const SidePin side(comm); side && error != nullptr && side->decision == SideEntry::kOurs) {
    (void)guarded([&]() -> Status {
      RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(side->core));
      Status status = use->async_error();
      ours = static_cast<rcnResult_t>(status.code());
      return status;
    });
  }
  if (ours != rcnSuccess) {
    *error = client_result(ours);
    return rcnSuccess;
  }
  const rcnResult_t result = rcn_nccl_forward_CommGetAsyncError(comm, error);
  if (result != rcnSuccess || error == nullptr || *error != rcnSuccess) return result;
  (void)guarded([&]() -> Status {
    if (side_goes_on(comm)) *error = rcnInProgress;
    return {};
  });
  return result;
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
  return refuse_unknown("ncclCommWindowRegister");
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
  return refuse_unknown("ncclCommWindowDeregister");
}

}  // extern "C"
