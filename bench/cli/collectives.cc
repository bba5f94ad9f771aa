// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/collectives.h"

namespace rocenante::bench {

namespace {

constexpr CollectiveInfo kCollectives[] = {
    {"all_reduce", rcnCollAllReduce, true, false, false, false, true},
    {"all_gather", rcnCollAllGather, false, false, false, true, true},
    {"reduce_scatter", rcnCollReduceScatter, true, false, true, false, true},
    {"broadcast", rcnCollBroadcast, false, true, false, false, true},
    {"reduce", rcnCollReduce, true, true, false, false, true},
    {"alltoall", rcnCollAlltoAll, false, false, true, true, false},
};

}  // namespace

double CollectiveInfo::bus_factor(int ranks) const {
  if (has_root) return 1.0;
  const double share = (ranks - 1.0) / ranks;
  return value == rcnCollAllReduce ? 2.0 * share : share;
}

std::span<const CollectiveInfo> all_collectives() {
  return kCollectives;
}

const CollectiveInfo* find_collective(std::string_view name) {
  for (const CollectiveInfo& info : kCollectives) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

rcnResult_t call_collective(rcnColl_t collective, const CallArguments& a, rcnComm_t comm) {
  switch (collective) {
    case rcnCollAllGather:
      return rcnAllGather(a.send, a.recv, a.count, a.type, comm, nullptr);
    case rcnCollReduceScatter:
      return rcnReduceScatter(a.send, a.recv, a.count, a.type, a.op, comm, nullptr);
    case rcnCollBroadcast:
      return rcnBroadcast(a.send, a.recv, a.count, a.type, a.root, comm, nullptr);
    case rcnCollReduce:
      return rcnReduce(a.send, a.recv, a.count, a.type, a.op, a.root, comm, nullptr);
    case rcnCollAlltoAll:
      return rcnAlltoAll(a.send, a.recv, a.count, a.type, comm, nullptr);
    default:
      return rcnAllReduce(a.send, a.recv, a.count, a.type, a.op, comm, nullptr);
  }
}

}  // namespace rocenante::bench
