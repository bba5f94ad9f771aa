// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/communicator.h"

#include <set>

#include "bench/cli/text.h"

namespace rocenante::bench {

std::string library_error(rcnResult_t result, rcnComm_t comm) {
  const char* const last = rcnGetLastError(comm);
  return last[0] != '\0' ? last : rcnGetErrorString(result);
}

void check_call(rcnResult_t result, const char* what, rcnComm_t comm) {
  if (result == rcnSuccess) return;
  throw RunError(text("%s: %s", what, library_error(result, comm).c_str()));
}

std::string library_version() {
  int code = 0;
  check_call(rcnGetVersion(&code), "rcnGetVersion");
  return version_name(code);
}

Communicator::Communicator(const rcnUniqueId& id, int ranks, int rank, const std::string& transport)
    : ranks_(ranks), rank_(rank) {
  rcnConfig_t config = RCN_CONFIG_INITIALIZER;
  const std::string options = "ROCENANTE_TRANSPORT=" + transport;
  if (!transport.empty()) config.options = options.c_str();
  const rcnResult_t result = rcnCommInitRankConfig(&comm_, ranks, id, rank, &config);
  if (result == rcnInvalidArgument && !transport.empty()) {
    throw UsageError(
        text("--transport '%s': %s", transport.c_str(), library_error(result, nullptr).c_str()));
  }
  check_call(result, "cannot join the communicator");
}

Communicator::~Communicator() {
  if (comm_ != nullptr) rcnCommAbort(comm_);
}

void Communicator::leave() {
  const rcnComm_t comm = comm_;
  comm_ = nullptr;
  check_call(rcnCommDestroy(comm), "cannot leave the communicator");
}

std::string Communicator::transport_names() const {
  std::set<std::string> names;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_ && ranks_ > 1) continue;
    const char* name = nullptr;
    check_call(rcnCommGetTransport(comm_, peer, &name), "rcnCommGetTransport", comm_);
    names.insert(name);
  }
  return join(std::vector<std::string>(names.begin(), names.end()), "+");
}

std::map<std::string, std::uint64_t> Communicator::calls_by_path(rcnColl_t collective) const {
  rcnCommStats_t stats = RCN_COMM_STATS_INITIALIZER;
  check_call(rcnCommGetStats(comm_, &stats), "rcnCommGetStats", comm_);
  std::vector<rcnStatsEntry_t> entries(stats.count);
  stats.entries = entries.data();
  stats.capacity = entries.size();
  check_call(rcnCommGetStats(comm_, &stats), "rcnCommGetStats", comm_);
  if (stats.count < entries.size()) entries.resize(stats.count);
  std::map<std::string, std::uint64_t> calls;
  for (const rcnStatsEntry_t& entry : entries) {
    if (entry.collective == static_cast<std::uint32_t>(collective))
      calls[rcnPathName(entry.path)] += entry.calls;
  }
  return calls;
}

void Communicator::all_max(std::uint64_t* values, std::size_t count) {
  check_call(rcnAllReduce(values, values, count, rcnUint64, rcnMax, comm_, nullptr),
             "cannot collect the ranks' results", comm_);
}

void Communicator::all_sum(std::uint64_t* values, std::size_t count) {
  check_call(rcnAllReduce(values, values, count, rcnUint64, rcnSum, comm_, nullptr),
             "cannot collect the ranks' results", comm_);
}

}  // namespace rocenante::bench
