// SPDX-License-Identifier: Apache-2.0
//
// What the files that hold NCCL's functions share. Each is called rcn_nccl_<name>; the exported names jump
// there (generate.py).
#pragma once

#include "lib/comm/boundary.h"
#include "nccl_shim/libnccl/exports.h"
#include "nccl_shim/libnccl/own_table.h"
#include "nccl_shim/libnccl/real_world.h"
#include "nccl_shim/libnccl/thread_group.h"

namespace rocenante::nccl {

// Whose a communicator is.
enum class Owner : std::uint8_t { kOwn, kReal, kNobody };
// kReal where there is a real library and the handle is not ours: whether it is any good is for it to say.
Owner owner_of(const void* comm);

// Runs a function of ours and gives its result the numbers a client of this version knows.
rcnResult_t client_result(rcnResult_t result);
// Notes what the real library's last error was when ours came, so that the later one can be told.
void note_real_error();
template <class Function>
rcnResult_t answer(Function&& function) noexcept {
  return client_result(guarded(std::forward<Function>(function)));
}
// The same for a function that a group may defer: its error makes the group fail.
template <class Function>
rcnResult_t answer_in_group(Function&& function) noexcept {
  return client_result(guarded_in_group(std::forward<Function>(function)));
}

rcnResult_t refuse_handle(const void* comm);
// The same for a function that a group may defer.
rcnResult_t refuse_call(const void* comm);

// A function that our own world does not have.
rcnResult_t refuse_unknown(const char* name);

// A call that only the real library performs: counted, kept in its place in a group, passed on.
template <class... Arguments>
rcnResult_t pass(Kind kind, std::size_t count, rcnDataType_t type, void* comm,
                 rcnResult_t (*forward)(Arguments...), std::type_identity_t<Arguments>... arguments) {
  switch (owner_of(comm)) {
    case Owner::kNobody:
      return refuse_call(comm);
    case Owner::kOwn:
      return answer_in_group([&]() -> Status {
        RCN_TRY(why_not_ready(own_slot(comm)));
        return make_error(Code::kInvalidUsage, "{} is not native yet: it needs the real NCCL",
                          kind_name(kind));
      });
    case Owner::kReal:
      break;
  }
  if (SidePin side(comm); side) [[unlikely]] {
    const bool known = static_cast<unsigned>(type) < rcnNumTypes;
    const std::uint64_t size = known ? reduce::element_size(static_cast<reduce::DataType>(type)) : 0;
    if (!inside_real()) side->forwarded.count(kind, count * size, Reason::kNotNative);
    if (group_is_open() && ThreadGroup::of_this_thread().holds(comm)) {
      ThreadGroup::of_this_thread().side_calls.push_back(
          {comm, false, {}, nullptr, [=] { return forward(arguments...); }});
      return rcnSuccess;
    }
  }
  return forward(arguments...);
}

}  // namespace rocenante::nccl
