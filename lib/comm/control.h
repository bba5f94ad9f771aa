// SPDX-License-Identifier: Apache-2.0
//
// The control star: one connection from every rank to rank 0, over which ranks exchange their blobs at
// initialisation and afterwards tell each other of heartbeats, first causes, goodbyes and deaths. Rank 0
// relays. Never on the path of an operation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/config.h"
#include "lib/base/handle.h"
#include "lib/base/status.h"
#include "lib/comm/unique_id.h"
#include "lib/net/crypto.h"
#include "lib/net/deadline.h"

namespace rocenante {

inline constexpr std::uint32_t kMaxRanks = 1024;
inline constexpr std::size_t kLongestBlob = std::size_t{1} << 20;
// Longer texts of aborts are cut.
inline constexpr std::size_t kLongestControlText = 2048;

// Told by the monitor thread, for one star never concurrently. A callback may call any member of the star
// that is safe from any thread; it must not block, nor destroy the star or stop its events.
class ControlListener {
 public:
  virtual ~ControlListener() = default;
  // Evidence that `rank` died or left without a goodbye; at most once per rank, never after on_left.
  virtual void on_gone(std::uint32_t rank, std::string_view how) = 0;
  // `rank` said goodbye; at most once per rank.
  virtual void on_left(std::uint32_t rank) = 0;
  // The first cause of `from`, at most once per star: of several at about the same time, all ranks but
  // those that gave one hear the one that reached rank 0 first.
  virtual void on_abort(std::uint32_t from, std::uint64_t word, std::string_view text) = 0;
  // A control connection is lost to the network, or rank 0 has left and ended: nothing follows from it but
  // that the ranks behind it are no longer heard.
  virtual void on_control_lost(std::string_view how) = 0;
  // Every ROCENANTE_HEARTBEAT_S or so: for what nobody else tells.
  virtual void on_beat() {}
};

class StarCore;

// One rank's end of the star. Unless stated, members are for one thread at a time. After a fork the child's
// copy is dead: members return InvalidUsage or do nothing.
class ControlStar {
 public:
  // Meets the other ranks at the id's rendezvous and connects to rank 0. Collective. Waits some seconds
  // longer than `deadline` (three for the rendezvous, which knows who is missing; ten for connecting once
  // all met). InvalidArgument: a damaged id, bad rank or nranks. InvalidUsage: another rank has the same
  // rank number, another nranks or other agreed settings, or holds another secret. Timeout naming the
  // missing ranks. RemoteError: a rank went away meanwhile.
  static Result<std::unique_ptr<ControlStar>> join(const UniqueId& id, std::uint32_t rank,
                                                   std::uint32_t nranks, const Config& config,
                                                   net::Deadline deadline);

  // Leaves: what was said last (abort, goodbye) is flushed and the connections are closed in order, for
  // which it waits at most a second. When rank 0 has said goodbye, relaying goes on in the monitor thread
  // until all others have closed.
  ~ControlStar();
  ControlStar(const ControlStar&) = delete;
  ControlStar& operator=(const ControlStar&) = delete;

  // Every rank's blob, by rank. Blocking, collective, before start_events. Ranks other than 0 wait one
  // second longer than `deadline`, because rank 0 knows who is missing. InvalidArgument: the blob is longer
  // than kLongestBlob. RemoteError naming a rank that died or left, or the text of one that aborted.
  // Timeout naming the missing ranks. After an error the star is of no further use.
  Result<std::vector<std::string>> all_gather(std::string_view blob, net::Deadline deadline);

  // Hands the connections to the monitor thread. Once. `listener` must live until stop_events has returned.
  // What has happened since all_gather is told now.
  Status start_events(ControlListener* listener);
  // No callback runs after it has returned. Idempotent. Not from a callback.
  void stop_events();

  // Takes the readiness of `pidfd` as evidence of that rank's death (told after a moment, within which its
  // goodbye may still arrive). After start_events.
  Status watch_process(std::uint32_t rank, Fd pidfd);

  // Any thread; neither waits for the network. The first call of broadcast_abort wins; none is sent after
  // another rank's abort was heard.
  void broadcast_abort(std::uint64_t word, std::string_view text);
  void say_goodbye();

  // Waits until each rank in `from` (by rank; this one is ignored) has said goodbye or is gone. False when
  // the deadline passed or the control connection was lost first. Any thread but the monitor's.
  bool wait_for_goodbyes(const std::vector<bool>& from, net::Deadline deadline);

  // When the last sign of life of `rank` was heard, directly or through rank 0 (net::monotonic_ns); the
  // start of events at first, and renewed for all where rank 0 or this process itself made a pause. For
  // this rank, when its monitor last looked. Lock-free, any thread.
  std::uint64_t last_heard_ns(std::uint32_t rank) const;

  std::uint32_t rank() const;
  std::uint32_t nranks() const;
  // The communicator's key, for its other handshakes: the same on all ranks, unlike that of any other
  // communicator.
  const net::SecretKey& key() const { return key_; }

 private:
  ControlStar(std::shared_ptr<StarCore> core, const net::SecretKey& key);

  bool is_inherited() const;

  std::shared_ptr<StarCore> core_;
  std::uint64_t fork_generation_;
  net::SecretKey key_;
};

}  // namespace rocenante
