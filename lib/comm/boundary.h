// SPDX-License-Identifier: Apache-2.0
//
// What the library's C interfaces share: turning statuses and exceptions into result codes, reading the
// settings, and issuing a call.
#pragma once

#include <rocenante/rocenante.h>

#include <string_view>

#include "lib/base/config.h"
#include "lib/base/status.h"
#include "lib/comm/communicator.h"
#include "lib/comm/handle_table.h"
#include "lib/comm/thread_state.h"

namespace rocenante {

// Notes the text of an error as the calling thread's last.
inline rcnResult_t report(const Status& status) {
  if (status.ok()) return rcnSuccess;
  thread_state().last_error = status.text();
  return static_cast<rcnResult_t>(status.code());
}

// The name and meaning of a result code; never null, also for unknown codes.
const char* error_text(rcnResult_t result);

// Runs a function that returns Status; nothing thrown leaves the library.
template <class Function>
rcnResult_t guarded(Function&& function) noexcept {
  rcnResult_t result = rcnSuccess;
  const Status thrown = caught([&]() -> Status {
    result = report(function());
    return {};
  });
  return thrown.ok() ? result : report(thrown);
}

// The same for a function that a group may defer: its error makes the group fail.
template <class Function>
rcnResult_t guarded_in_group(Function&& function) noexcept {
  return guarded([&]() -> Status {
    Status status = function();
    if (!status.ok() && group_is_open()) [[unlikely]]
      CallGroup::of_this_thread().refuse(status);
    return status;
  });
}

// InvalidArgument naming the argument if it is null.
template <class T>
Status require(const T* pointer, const char* name) {
  return pointer != nullptr ? Status() : make_error(Code::kInvalidArgument, "{} is NULL", name);
}

// The settings of this moment, which from now on also decide what is logged; warns once of unknown ones.
Result<Config> load_settings(std::string_view options);

// Whether the numbers of an initialisation are possible at all.
Status check_rank(int nranks, int rank);
// The same for a type and an operator.
Status check_type_and_op(rcnDataType_t datatype, rcnRedOp_t op);

// The rest of submit() where a stream is given or needed.
Status submit_on_stream(Communicator& comm, void* handle, CollectiveCall call, void* stream);

// Performs a call on the communicator behind `handle`, enqueues it where its device has streams, or notes
// it if a group is open.
inline Status submit(void* handle, CollectiveCall call, void* stream) {
  ExclusiveUse use(handle);
  if (!use) [[unlikely]]
    return ExclusiveUse::refusal(handle);
  if (stream != nullptr || use->on_streams()) [[unlikely]]
    return submit_on_stream(*use, handle, call, stream);
  RCN_TRY(use->check(&call));
  if (call.count == 0) return use->async_error();
  if (!group_is_open()) return use->perform(call);
  CallGroup::of_this_thread().add(handle, call);
  return {};
}

}  // namespace rocenante
