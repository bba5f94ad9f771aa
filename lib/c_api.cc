// SPDX-License-Identifier: Apache-2.0
//
// The C API: the only exports of librocenante.so.
#include <rocenante/rocenante.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "lib/base/config.h"
#include "lib/comm/boundary.h"
#include "lib/comm/call_text.h"
#include "lib/comm/describe.h"
#include "lib/comm/group.h"
#include "lib/comm/handle_table.h"
#include "lib/comm/thread_state.h"
#include "lib/comm/user_memory.h"

using rocenante::CallGroup;
using rocenante::check_type_and_op;
using rocenante::Code;
using rocenante::Collective;
using rocenante::CollectiveCall;
using rocenante::Config;
using rocenante::ExclusiveUse;
using rocenante::guarded;
using rocenante::guarded_in_group;
using rocenante::make_error;
using rocenante::PinnedUse;
using rocenante::require;
using rocenante::Result;
using rocenante::Status;

static_assert(sizeof(rcnUniqueId) == sizeof(rocenante::UniqueId));
static_assert(rcnNumColls == rocenante::kNumCollectives);
static_assert(rcnCollAlltoAll == static_cast<int>(Collective::kAllToAll));

namespace {

std::string& last_error() {
  return rocenante::thread_state().last_error;
}

rocenante::UniqueId to_internal(const rcnUniqueId& id) {
  rocenante::UniqueId result;
  std::memcpy(result.bytes.data(), id.internal, sizeof id.internal);
  return result;
}

void to_public(const rocenante::UniqueId& id, rcnUniqueId* result) {
  std::memcpy(result->internal, id.bytes.data(), sizeof result->internal);
}

Result<Config> load_config(const rcnConfig_t* config) {
  std::string options;
  if (config != nullptr) {
    if (config->size < sizeof(rcnConfig_t)) {
      return make_error(
          Code::kInvalidArgument,
          "config->size is {}, expected at least {}: initialise it with RCN_CONFIG_INITIALIZER",
          config->size, sizeof(rcnConfig_t));
    }
    if (config->options != nullptr) options = config->options;
  }
  return rocenante::load_settings(options);
}

Status init_rank(rcnComm_t* comm, int nranks, const rcnUniqueId& id, int rank, const rcnConfig_t* config) {
  RCN_TRY(require(comm, "comm"));
  RCN_TRY(rocenante::check_rank(nranks, rank));
  if (auto decoded = rocenante::decode_unique_id(to_internal(id)); !decoded.ok()) return decoded.status();
  RCN_ASSIGN(Config loaded, load_config(config));
  rocenante::PendingInit init{reinterpret_cast<void**>(comm), to_internal(id),
                              static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(nranks),
                              std::move(loaded)};
  if (!rocenante::group_is_open()) return rocenante::initialise(init);
  CallGroup::of_this_thread().add(std::move(init));
  return {};
}

Status all_reduce(const void* sendbuff, void* recvbuff, std::size_t count, rcnDataType_t datatype,
                  rcnRedOp_t op, rcnComm_t comm, void* stream) {
  RCN_TRY(check_type_and_op(datatype, op));
  const CollectiveCall call{sendbuff, recvbuff, count, static_cast<rocenante::reduce::DataType>(datatype),
                            static_cast<std::uint32_t>(op)};
  return rocenante::submit(comm, call, stream);
}

// One of the others; `op` is rcnSum and `root` 0 where the collective has none.
rcnResult_t collective(Collective which, const void* sendbuff, void* recvbuff, std::size_t count,
                       rcnDataType_t datatype, rcnRedOp_t op, int root, rcnComm_t comm, void* stream) {
  return guarded_in_group([&]() -> Status {
    RCN_TRY(check_type_and_op(datatype, op));
    const CollectiveCall call{sendbuff,
                              recvbuff,
                              count,
                              static_cast<rocenante::reduce::DataType>(datatype),
                              static_cast<std::uint32_t>(op),
                              {},
                              which,
                              static_cast<std::uint32_t>(root)};
    return rocenante::submit(comm, call, stream);
  });
}

Status get_stats(rcnComm_t comm, rcnCommStats_t* stats) {
  RCN_TRY(require(stats, "stats"));
  if (stats->size < sizeof(rcnCommStats_t)) {
    return make_error(
        Code::kInvalidArgument,
        "stats->size is {}, expected at least {}: initialise it with RCN_COMM_STATS_INITIALIZER",
        stats->size, sizeof(rcnCommStats_t));
  }
  if (stats->entries == nullptr && stats->capacity != 0) {
    return make_error(Code::kInvalidArgument, "stats->entries is NULL with capacity {}", stats->capacity);
  }
  RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(comm));
  std::size_t found = 0;
  use->counters().for_each([&](std::uint32_t collective, std::uint32_t size_class, std::uint32_t path,
                               std::uint64_t calls, std::uint64_t bytes) {
    if (found < stats->capacity) stats->entries[found] = {collective, size_class, path, 0, calls, bytes};
    ++found;
  });
  stats->count = found;
  return {};
}

}  // namespace

extern "C" {

rcnResult_t rcnGetVersion(int* version) {
  return guarded([&]() -> Status {
    RCN_TRY(require(version, "version"));
    *version = RCN_VERSION_CODE;
    return {};
  });
}

const char* rcnGetErrorString(rcnResult_t result) {
  return rocenante::error_text(result);
}

const char* rcnGetLastError(rcnComm_t comm) {
  if (comm != nullptr) {
    const rcnResult_t found = guarded([&]() -> Status {
      RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(comm));
      const Status error = use->async_error();
      if (!error.ok()) last_error() = error.text();
      return {};
    });
    (void)found;  // a dead handle has left its own text
  }
  return last_error().c_str();
}

const char* rcnPathName(uint32_t path) {
  return path < rocenante::kNumPaths ? rocenante::path_name(static_cast<rocenante::Path>(path)) : "unknown";
}

rcnResult_t rcnGetUniqueId(rcnUniqueId* id) {
  return guarded([&]() -> Status {
    RCN_TRY(require(id, "id"));
    RCN_ASSIGN(const Config config, load_config(nullptr));
    RCN_ASSIGN(const rocenante::UniqueId made, rocenante::create_unique_id(config));
    to_public(made, id);
    return {};
  });
}

rcnResult_t rcnGetUniqueIdAt(rcnUniqueId* id, const char* address, int serve) {
  return guarded([&]() -> Status {
    RCN_TRY(require(id, "id"));
    RCN_TRY(require(address, "address"));
    RCN_ASSIGN(const Config config, load_config(nullptr));
    RCN_ASSIGN(const rocenante::UniqueId made, rocenante::unique_id_at(address, serve != 0, config));
    to_public(made, id);
    return {};
  });
}

rcnResult_t rcnCommInitRank(rcnComm_t* comm, int nranks, rcnUniqueId id, int rank) {
  return guarded_in_group([&] { return init_rank(comm, nranks, id, rank, nullptr); });
}

rcnResult_t rcnCommInitRankConfig(rcnComm_t* comm, int nranks, rcnUniqueId id, int rank,
                                  const rcnConfig_t* config) {
  return guarded_in_group([&] { return init_rank(comm, nranks, id, rank, config); });
}

rcnResult_t rcnCommDestroy(rcnComm_t comm) {
  return guarded([&] { return rocenante::close_communicator(comm, false); });
}

rcnResult_t rcnCommAbort(rcnComm_t comm) {
  return guarded([&] { return rocenante::close_communicator(comm, true); });
}

rcnResult_t rcnCommCount(rcnComm_t comm, int* count) {
  return guarded([&]() -> Status {
    RCN_TRY(require(count, "count"));
    RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(comm));
    *count = static_cast<int>(use->ranks());
    return {};
  });
}

rcnResult_t rcnCommUserRank(rcnComm_t comm, int* rank) {
  return guarded([&]() -> Status {
    RCN_TRY(require(rank, "rank"));
    RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(comm));
    *rank = static_cast<int>(use->rank());
    return {};
  });
}

rcnResult_t rcnCommGetAsyncError(rcnComm_t comm, rcnResult_t* async_error) {
  return guarded([&]() -> Status {
    RCN_TRY(require(async_error, "async_error"));
    RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(comm));
    *async_error = static_cast<rcnResult_t>(use->async_error().code());
    return {};
  });
}

rcnResult_t rcnCommGetStats(rcnComm_t comm, rcnCommStats_t* stats) {
  return guarded([&] { return get_stats(comm, stats); });
}

rcnResult_t rcnCommGetTransport(rcnComm_t comm, int peer, const char** name) {
  return guarded([&]() -> Status {
    RCN_TRY(require(name, "name"));
    RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(comm));
    if (peer < 0 || static_cast<std::uint32_t>(peer) >= use->ranks()) {
      return make_error(Code::kInvalidArgument, "peer is {}: expected 0 to {}", peer, use->ranks() - 1);
    }
    *name = use->transport_name(static_cast<std::uint32_t>(peer));
    return {};
  });
}

rcnResult_t rcnMemAlloc(void** ptr, size_t size) {
  return guarded([&]() -> Status {
    RCN_TRY(require(ptr, "ptr"));
    RCN_ASSIGN(const Config config, load_config(nullptr));
    RCN_ASSIGN(*ptr, rocenante::allocate_user_memory(config, size));
    return {};
  });
}

rcnResult_t rcnMemFree(void* ptr) {
  return guarded([&]() -> Status {
    if (ptr == nullptr || rocenante::free_user_memory(ptr)) return {};
    return make_error(Code::kInvalidArgument, "ptr is {}: rcnMemAlloc did not give it", ptr);
  });
}

rcnResult_t rcnRedOpCreatePreMulSum(rcnRedOp_t* op, void* scalar, rcnDataType_t datatype,
                                    rcnScalarResidence_t residence, rcnComm_t comm) {
  return guarded([&]() -> Status {
    RCN_TRY(require(op, "op"));
    RCN_TRY(require(scalar, "scalar"));
    RCN_TRY(check_type_and_op(datatype, rcnSum));
    if (residence != rcnScalarHostImmediate) {
      return make_error(Code::kInvalidArgument,
                        "residence is {}: only rcnScalarHostImmediate (1) is supported",
                        static_cast<int>(residence));
    }
    ExclusiveUse use(comm);
    if (!use) [[unlikely]]
      return ExclusiveUse::refusal(comm);
    RCN_ASSIGN(const std::uint32_t made,
               use->create_pre_mul_sum(static_cast<rocenante::reduce::DataType>(datatype), scalar));
    *op = static_cast<rcnRedOp_t>(made);
    return {};
  });
}

rcnResult_t rcnRedOpDestroy(rcnRedOp_t op, rcnComm_t comm) {
  return guarded([&]() -> Status {
    ExclusiveUse use(comm);
    if (!use) [[unlikely]]
      return ExclusiveUse::refusal(comm);
    return use->destroy_operator(static_cast<std::uint32_t>(op));
  });
}

rcnResult_t rcnAllReduce(const void* sendbuff, void* recvbuff, size_t count, rcnDataType_t datatype,
                         rcnRedOp_t op, rcnComm_t comm, void* stream) {
  return guarded_in_group(
      [&] { return all_reduce(sendbuff, recvbuff, count, datatype, op, comm, stream); });
}

rcnResult_t rcnAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, rcnDataType_t datatype,
                         rcnComm_t comm, void* stream) {
  return collective(Collective::kAllGather, sendbuff, recvbuff, sendcount, datatype, rcnSum, 0, comm,
                    stream);
}

rcnResult_t rcnReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, rcnDataType_t datatype,
                             rcnRedOp_t op, rcnComm_t comm, void* stream) {
  return collective(Collective::kReduceScatter, sendbuff, recvbuff, recvcount, datatype, op, 0, comm,
                    stream);
}

rcnResult_t rcnBroadcast(const void* sendbuff, void* recvbuff, size_t count, rcnDataType_t datatype,
                         int root, rcnComm_t comm, void* stream) {
  return collective(Collective::kBroadcast, sendbuff, recvbuff, count, datatype, rcnSum, root, comm,
                    stream);
}

rcnResult_t rcnReduce(const void* sendbuff, void* recvbuff, size_t count, rcnDataType_t datatype,
                      rcnRedOp_t op, int root, rcnComm_t comm, void* stream) {
  return collective(Collective::kReduce, sendbuff, recvbuff, count, datatype, op, root, comm, stream);
}

rcnResult_t rcnAlltoAll(const void* sendbuff, void* recvbuff, size_t count, rcnDataType_t datatype,
                        rcnComm_t comm, void* stream) {
  return collective(Collective::kAllToAll, sendbuff, recvbuff, count, datatype, rcnSum, 0, comm, stream);
}

rcnResult_t rcnGroupStart(void) {
  return guarded([]() -> Status {
    CallGroup::of_this_thread().start();
    return {};
  });
}

rcnResult_t rcnGroupEnd(void) {
  return guarded([] { return CallGroup::of_this_thread().end(); });
}

rcnResult_t rcnDescribe(const char* topic, char* buffer, size_t capacity, size_t* length) {
  return guarded([&]() -> Status {
    RCN_TRY(require(topic, "topic"));
    RCN_TRY(require(length, "length"));
    if (capacity != 0) RCN_TRY(require(buffer, "buffer"));
    RCN_ASSIGN(const std::string text, rocenante::describe(topic));
    if (capacity != 0) {
      const std::size_t copied = std::min(text.size(), capacity - 1);
      std::memcpy(buffer, text.data(), copied);
      buffer[copied] = '\0';
    }
    *length = text.size();
    return {};
  });
}

}  // extern "C"
