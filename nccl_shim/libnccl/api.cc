// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/api.h"

#include "nccl_shim/libnccl/policy.h"

namespace rocenante::nccl {
namespace {

int reported_version() {
  const RealLibrary* const real = loaded_real();
  return real == nullptr ? kAbiLevel : real->version;
}

}  // namespace

Owner owner_of(const void* comm) {
  if (own_slot(comm) != nullptr) return Owner::kOwn;
  if (loaded_real() != nullptr) return Owner::kReal;
  // Not loaded does not mean not wanted: a handle of a real library that somebody else uses is possible.
  const Result<const RealLibrary*> real = wanted_real();
  return real.ok() && real.value() != nullptr ? Owner::kReal : Owner::kNobody;
}

rcnResult_t client_result(rcnResult_t result) {
  if (result == rcnSuccess) [[likely]]
    return result;
  note_real_error();
  return result == rcnTimeout && reported_version() < kFirstWithTimeout ? rcnRemoteError : result;
}

rcnResult_t refuse_handle(const void* comm) {
  return answer([&] { return not_a_communicator(comm); });
}

rcnResult_t refuse_call(const void* comm) {
  return answer_in_group([&] { return not_a_communicator(comm); });
}

rcnResult_t refuse_unknown(const char* name) {
  return answer([&] {
    return make_error(Code::kInvalidUsage, "{} is not native yet: it needs the real NCCL", name);
  });
}

}  // namespace rocenante::nccl
