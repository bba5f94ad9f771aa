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
#include <thread>
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
  std::uint32_t host = 0;
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
  // Of a libibverbs that knows no dma-bufs.
  static const VerbsApi& old_api();

  // Call number `call` of those that can fail, counted from 1, fails; 0: none does.
  void fail_call(std::uint64_t call, int error);
  std::uint64_t calls() const;
  std::int64_t alive() const;  // objects made and not destroyed

  // From now on nothing passes to or from this address.
  void cut(const fabric::Gid& gid);
  // As after a reset: every queue pair of this address is in error and says nothing.
  void reset(const fabric::Gid& gid);
  // The adapters of this address cannot register dma-bufs.
  void forbid_dma_bufs(const fabric::Gid& gid);
  // What is written to dma-bufs arrives there, in its order, at some time after the writer was told that it
  // has and after what came behind it for host memory.
  void delay_dma_bufs();
  // Of what this host's adapters have written nothing arrives meanwhile.
  void hold_dma_bufs(std::uint32_t host, bool holds);
  // Until it is told otherwise nothing leaves this address.
  void stall(const fabric::Gid& gid, bool stalls);
  // Chance that a look at a queue pair moves nothing.
  void set_delay(std::uint32_t percent);

  // "INIT port 1", "RTR mtu 5 ...": the transitions of each queue pair, in the order of their making.
  std::vector<std::vector<std::string>> transitions() const;
  // The most requests that any queue pair has held, and how often a queue was found full or overrun.
  std::uint64_t most_queued() const;
  std::uint64_t overruns() const;
  std::uint64_t arms() const;        // how often a completion queue was asked for an event
  std::uint64_t events() const;      // and gave one
  std::uint64_t immediates() const;  // writes with immediate data that have arrived
  std::uint64_t writes_over(const fabric::Gid& gid) const;
  // Writes to dma-bufs, and those to other memory of more than a word.
  std::uint64_t dma_buf_writes() const;
  std::uint64_t long_host_writes() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
  std::thread bridge_;  // what lies between adapters and devices, where it is slow
};

}  // namespace rocenante::test
