// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/boundary.h"

#include <string>

#include "lib/base/log.h"

namespace rocenante {
namespace {

constexpr int kMostRanks = static_cast<int>(reduce::kMaxInputs);

void warn_once_of_unknown_variables() {
  static const bool done = [] {
    for (const std::string& name : unknown_variables()) {
      log_warn(-1, "{} is not a setting of this version: ignored (docs/configuration.md)", name);
    }
    return true;
  }();
  (void)done;
}

}  // namespace

const char* error_text(rcnResult_t result) {
  switch (result) {
    case rcnSuccess:
      return "no error";
    case rcnUnhandledCudaError:
      return "unhandled CUDA error";
    case rcnSystemError:
      return "unhandled system error";
    case rcnInternalError:
      return "internal error";
    case rcnInvalidArgument:
      return "invalid argument";
    case rcnInvalidUsage:
      return "invalid usage";
    case rcnRemoteError:
      return "remote process exited or there was a network error";
    case rcnInProgress:
      return "operation in progress";
    case rcnTimeout:
      return "timeout";
    case rcnNumResults:
      break;
  }
  return "unknown result code";
}

Result<Config> load_settings(std::string_view options) {
  RCN_ASSIGN(Config loaded, Config::load(options));
  LogLevel level;
  if (parse_log_level(loaded.text(Key::kDebug), &level)) set_log_level(level);
  warn_once_of_unknown_variables();
  return loaded;
}

Status check_rank(int nranks, int rank) {
  if (nranks < 1 || nranks > kMostRanks) {
    return make_error(Code::kInvalidArgument, "nranks is {}: expected 1 to {}", nranks, kMostRanks);
  }
  if (rank < 0 || rank >= nranks) {
    return make_error(Code::kInvalidArgument, "rank is {}: expected 0 to {}", rank, nranks - 1);
  }
  return {};
}

Status check_type_and_op(rcnDataType_t datatype, rcnRedOp_t op) {
  const int type = static_cast<int>(datatype);
  if (type < 0 || type >= rcnNumTypes) {
    return make_error(Code::kInvalidArgument, "datatype is {}: expected 0 to {}", type, rcnNumTypes - 1);
  }
  if (static_cast<int>(op) < 0) {
    return make_error(Code::kInvalidArgument,
                      "op is {}: expected 0 to {} or an operator of this communicator",
                      static_cast<int>(op), rcnNumOps - 1);
  }
  return {};
}

Status submit_on_stream(Communicator& comm, void* handle, CollectiveCall call, void* stream) {
  RCN_TRY(comm.check_stream(stream));
  RCN_TRY(comm.check(&call));
  RCN_TRY(comm.check_on_device(call));
  if (call.count == 0) return comm.async_error();
  if (!group_is_open()) return comm.enqueue(call, stream);
  CallGroup::of_this_thread().add(handle, call, stream);
  return {};
}

}  // namespace rocenante
