// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "bench/cli/options.h"
#include "bench/cli/types.h"
#include "rocenante/rocenante.h"

namespace rocenante::bench {

// The library's text for its last error on this thread.
std::string library_error(rcnResult_t result, rcnComm_t comm);

// Throws RunError("WHAT: <library's text>") unless `result` is rcnSuccess.
void check_call(rcnResult_t result, const char* what, rcnComm_t comm = nullptr);

std::string library_version();

// This rank's communicator. Leaves in order with leave(), at once when destroyed without it.
class Communicator {
 public:
  // Joins. Throws UsageError if the library finds an argument unacceptable, RunError otherwise.
  Communicator(const rcnUniqueId& id, int ranks, int rank, const std::string& transport);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  void leave();

  rcnComm_t get() const { return comm_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Names of the transports to the peers, sorted and joined with '+'; "self" without peers.
  std::string transport_names() const;

  // Calls of a collective so far, by name of path.
  std::map<std::string, std::uint64_t> calls_by_path(rcnColl_t collective) const;

  // Combines small arrays of all ranks, in place. Also makes ranks meet.
  void all_max(std::uint64_t* values, std::size_t count);
  void all_sum(std::uint64_t* values, std::size_t count);

 private:
  rcnComm_t comm_ = nullptr;
  int ranks_;
  int rank_;
};

}  // namespace rocenante::bench
