// SPDX-License-Identifier: Apache-2.0
//
// Adapters that exist in this process alone, behind the table of verbs: queue pairs with their states,
// memory regions with their bounds and keys, packets that wait, get lost or are refused. Writes move when
// the sender polls, as late as a seed says, so that a payload that is reused too early is found out.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "lib/fabric/fabric.h"
#include "transports/verbs/api.h"

namespace rocenante::test {

// One port's view: what the adapter knows of itself.
struct FakeDevice {
  std::string name;
  fabric::Gid gid{};
  std::uint32_t gid_index = 0;
  ibv_mtu mtu = IBV_MTU_4096;
};

class FakeVerbs {
 public:
  // One at a time.
  FakeVerbs();
  ~FakeVerbs();
  FakeVerbs(const FakeVerbs&) = delete;
  FakeVerbs& operator=(const FakeVerbs&) = delete;

  // A host with a device for each of these ports. Hosts may have devices of the same name.
  void add_host(std::uint32_t host, const std::vector<fabric::Port>& ports);
  // Which host the calling thread is on.
  static void set_host(std::uint32_t host);

  static const VerbsApi& api();

  // Call number `call` of those that can fail, counted from 1, fails; 0: none does.
  void fail_call(std::uint64_t call, int error);
  std::uint64_t calls() const;
  std::int64_t alive() const;  // objects made and not destroyed

  // From now on nothing passes to or from this address.
  void cut(const fabric::Gid& gid);
  // As after a reset: every queue pair of this address is in error and says nothing.
  void reset(const fabric::Gid& gid);
  // Chance that a look at a queue pair moves nothing.
  void set_delay(std::uint32_t percent);

  // "INIT port 1", "RTR mtu 5 ...": the transitions of each queue pair, in the order of their making.
  std::vector<std::vector<std::string>> transitions() const;
  // The most requests that any queue pair has held, and how often a queue was found full or overrun.
  std::uint64_t most_queued() const;
  std::uint64_t overruns() const;
  std::uint64_t immediates() const;  // writes with immediate data that have arrived
  std::uint64_t writes_over(const fabric::Gid& gid) const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace rocenante::test
