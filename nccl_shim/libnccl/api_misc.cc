// SPDX-License-Identifier: Apache-2.0
//
// NCCL's functions on groups, operators, memory, versions and errors.
#include <cstring>
#include <string>

#include "lib/comm/user_memory.h"
#include "nccl_shim/libnccl/api.h"
#include "nccl_shim/libnccl/memory.h"
#include "nccl_shim/libnccl/policy.h"

namespace rocenante::nccl {
namespace {

void* core_of(OwnSlot* slot) {
  return slot->core.load(std::memory_order_acquire);
}

Status create_operator(rcnRedOp_t* op, void* scalar, rcnDataType_t type, int residence, OwnSlot* slot) {
  RCN_TRY(require(op, "op"));
  RCN_TRY(require(scalar, "scalar"));
  RCN_TRY(check_type_and_op(type, rcnSum));
  if (residence != rcnScalarHostImmediate && residence != rcnScalarDevice) {
    return make_error(Code::kInvalidArgument, "residence is {}: expected 0 or 1", residence);
  }
  if (residence == rcnScalarDevice) {
    return make_error(Code::kInvalidUsage,
                      "ncclScalarDevice is not native yet: the scalar is read when the operator is made "
                      "(ncclScalarHostImmediate)");
  }
  RCN_TRY(why_not_ready(slot));
  void* const core = core_of(slot);
  ExclusiveUse use(core);
  if (!use) return ExclusiveUse::refusal(core);
  RCN_ASSIGN(const std::uint32_t made,
             use->create_pre_mul_sum(static_cast<reduce::DataType>(type), scalar));
  *op = static_cast<rcnRedOp_t>(made);
  return {};
}

Status destroy_operator(rcnRedOp_t op, OwnSlot* slot) {
  RCN_TRY(why_not_ready(slot));
  void* const core = core_of(slot);
  ExclusiveUse use(core);
  if (!use) return ExclusiveUse::refusal(core);
  return use->destroy_operator(static_cast<std::uint32_t>(op));
}

// What the real library's last error was when ours came: if it has another since, that one is the last.
const char* real_text() {
  if (loaded_real() == nullptr) return "";
  const char* const text = rcn_nccl_forward_GetLastError(nullptr);
  return text == nullptr ? "" : text;
}

}  // namespace
}  // namespace rocenante::nccl

using namespace rocenante;        // NOLINT(google-build-using-namespace)
using namespace rocenante::nccl;  // NOLINT(google-build-using-namespace)

extern "C" {

rcnResult_t rcn_nccl_GroupStart() {
  if (inside_real()) return rcn_nccl_forward_GroupStart();
  return answer([] { return ThreadGroup::of_this_thread().start(); });
}

rcnResult_t rcn_nccl_GroupEnd() {
  if (inside_real()) return rcn_nccl_forward_GroupEnd();
  rcnResult_t result = rcnSuccess;
  const rcnResult_t outer = guarded([&]() -> Status {
    result = ThreadGroup::of_this_thread().end();
    return {};
  });
  return client_result(outer == rcnSuccess ? result : outer);
}

rcnResult_t rcn_nccl_GroupSimulateEnd(SimInfo* info) {
  if (inside_real()) return rcn_nccl_forward_GroupSimulateEnd(info);
  bool real = false;
  const rcnResult_t result = answer([&] { return ThreadGroup::of_this_thread().discard(&real); });
  return real ? rcn_nccl_forward_GroupSimulateEnd(info) : result;
}

rcnResult_t rcn_nccl_RedOpCreatePreMulSum(rcnRedOp_t* op, void* scalar, rcnDataType_t type, int residence,
                                          void* comm) {
  switch (owner_of(comm)) {
    case Owner::kReal:
      return rcn_nccl_forward_RedOpCreatePreMulSum(op, scalar, type, residence, comm);
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kOwn:
      break;
  }
  return answer([&] { return create_operator(op, scalar, type, residence, own_slot(comm)); });
}

rcnResult_t rcn_nccl_RedOpDestroy(rcnRedOp_t op, void* comm) {
  switch (owner_of(comm)) {
    case Owner::kReal:
      return rcn_nccl_forward_RedOpDestroy(op, comm);
    case Owner::kNobody:
      return refuse_handle(comm);
    case Owner::kOwn:
      break;
  }
  return answer([&] { return destroy_operator(op, own_slot(comm)); });
}

rcnResult_t rcn_nccl_MemAlloc(void** pointer, size_t bytes) {
  if (inside_real()) return rcn_nccl_forward_MemAlloc(pointer, bytes);
  bool real = false;
  const rcnResult_t result = answer([&]() -> Status {
    RCN_ASSIGN(const Config config, load_settings({}));
    if (config.text(Key::kMemAlloc) != "host") {
      RCN_ASSIGN(const RealLibrary* const library, wanted_real());
      real = library != nullptr;
    }
    if (real) return {};
    RCN_TRY(require(pointer, "ptr"));
    RCN_ASSIGN(*pointer, allocate_user_memory(config.with(Key::kDevice, memory_device(config)), bytes));
    return {};
  });
  return real ? rcn_nccl_forward_MemAlloc(pointer, bytes) : result;
}

rcnResult_t rcn_nccl_MemFree(void* pointer) {
  if (inside_real()) return rcn_nccl_forward_MemFree(pointer);
  bool ours = false;
  const rcnResult_t result = answer([&]() -> Status {
    ours = free_user_memory(pointer);
    if (ours || loaded_real() != nullptr) return {};
    ours = true;
    if (pointer == nullptr) return {};
    return make_error(Code::kInvalidArgument, "ptr {} was not made by ncclMemAlloc", pointer);
  });
  return ours || result != rcnSuccess ? result : rcn_nccl_forward_MemFree(pointer);
}

rcnResult_t rcn_nccl_GetVersion(int* version) {
  bool real = false;
  const rcnResult_t result = answer([&]() -> Status {
    RCN_ASSIGN(const RealLibrary* const library, wanted_real());
    real = library != nullptr;
    if (real) return {};
    RCN_TRY(require(version, "version"));
    *version = kAbiLevel;
    return {};
  });
  return real ? rcn_nccl_forward_GetVersion(version) : result;
}

const char* rcn_nccl_GetErrorString(rcnResult_t result) {
  if (loaded_real() != nullptr) return rcn_nccl_forward_GetErrorString(result);
  const Result<const RealLibrary*> real = wanted_real();
  if (real.ok() && real.value() != nullptr) return rcn_nccl_forward_GetErrorString(result);
  return error_text(result);
}

// The later of ours and the real library's. A communicator's own first error goes before both.
const char* rcn_nccl_GetLastError(void* comm) {
  if (OwnSlot* const slot = own_slot(comm); slot != nullptr) {
    (void)guarded([&]() -> Status {
      RCN_ASSIGN(const OwnPin own, OwnPin::begin(slot));
      const std::uint32_t phase = own->phase.load(std::memory_order_acquire);
      if (phase == OwnComm::kFailed) return own->error;
      if (phase != OwnComm::kReady || own->left) return {};
      RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(own->core));
      return use->async_error();
    });
  }
  const std::string& ours = thread_state().last_error;
  if (loaded_real() == nullptr || own_slot(comm) != nullptr) return ours.c_str();
  const bool real_is_later = ours.empty() || ThreadGroup::of_this_thread().real_error != real_text();
  return real_is_later ? rcn_nccl_forward_GetLastError(comm) : ours.c_str();
}

void rcn_nccl_ResetDebugInit() {
  if (loaded_real() != nullptr) rcn_nccl_forward_ResetDebugInit();
  (void)guarded([]() -> Status {
    RCN_ASSIGN(const Config config, load_settings({}));
    return {};
  });
}

}  // extern "C"

namespace rocenante::nccl {

void note_real_error() {
  if (loaded_real() == nullptr) return;
  ThreadGroup::of_this_thread().real_error = real_text();
}

}  // namespace rocenante::nccl
