// SPDX-License-Identifier: Apache-2.0
//
// One call as a launch on a device runs it: the rounds of OneShot by several groups of threads, doorbells
// for what a progress thread must carry, a deadline, and the device's half of the abort words. The text of
// a CTA on the GPU and of a group of threads in the tests.
//
//   Env    as in round.h, and clock_ns(): nanoseconds of a clock that all groups of the device share;
//          claim(word, value): a compare-and-swap of 0 by `value` at the device's own scope, true if it was
//          0
#pragma once

#include <cstdint>

#include "lib/protocol/abort_word.h"
#include "lib/protocol/doorbell.h"
#include "lib/protocol/one_shot.h"

namespace rocenante::protocol {

// What the device saw when it gave up, for the host to put into words.
struct FailureRecord {
  std::uint64_t epoch;     // of the round in progress
  std::uint64_t peer;      // the member waited for
  std::uint64_t seen;      // its signal at that time
  std::uint64_t tag;       // of the member's call, where one is carried; else 0
  std::uint64_t expected;  // of the own call
};

// What the host has heard of a peer.
enum PeerState : std::uint32_t {
  kPresent = 0,
  kGone = 1,    // no signal will come that has not come before the news
  kSilent = 2,  // no heartbeat for a time
};

// Words between host and device, in memory that both touch and nobody else does. A line has one writer.
struct DeviceWords {
  alignas(kLineBytes) std::uint64_t host_abort;  // host: the mirror of its abort word, stored with release
  std::uint32_t absent;  // host: how many peers are not present, stored with release after their states
  // device: the mirror of its own word, stored with release after the record
  alignas(kLineBytes) std::uint64_t device_abort;
  FailureRecord failure;
};

// A lane as a device drives it. Pointers are the device's addresses. Owns nothing.
struct DeviceLane {
  // `epoch`, `staged`, `finished` and `abort_word` are in the device's own memory; abort_word is
  // `own_abort`; may_sleep is false: a device wakes nobody.
  Lane lane;
  DoorbellRing* ring;        // in memory that host and device touch; null if every member is mapped
  std::uint64_t* own_abort;  // the device's abort word, its only read-modify-writer
  DeviceWords* words;
  const std::uint32_t* peer_states;  // [ranks] PeerState, in memory that both touch; the host writes
  std::uint64_t suspect_ns;          // how long a round waits for a silent peer
  std::uint64_t timeout_ns;          // of each round, from its last progress
  std::uint64_t first_timeout_ns;    // of the communicator's first round
};

// Hands the puts of a round to the progress thread. A launch ends before they have left: the slot is not
// staged again until every member has signalled the next round, which it does after this round's put has
// come.
template <class Env>
class DoorbellPort {
 public:
  RCN_HD DoorbellPort(Env& env, DoorbellRing* ring) : env_(env), ring_(ring) {}
  RCN_HD void post(const Lane& lane, std::uint64_t epoch, const Piece& piece) {
    if (!lane.all_mapped) ring_doorbell(env_, *ring_, epoch, PutDescriptor{piece.bytes, piece.tag});
  }
  RCN_HD bool drained() const { return true; }

 private:
  Env& env_;
  DoorbellRing* ring_;
};

// Takes the device's abort word, if nobody has, and tells the host why. One thread of a group.
template <class Env>
RCN_HD void raise_on_device(Env& env, const DeviceLane& device, AbortReason reason,
                            const FailureRecord& failure) {
  const std::uint64_t word = pack_abort({reason, static_cast<std::uint32_t>(failure.peer), failure.epoch});
  if (!env.claim(device.own_abort, word)) return;
  env.store_relaxed(&device.words->failure.epoch, failure.epoch);
  env.store_relaxed(&device.words->failure.peer, failure.peer);
  env.store_relaxed(&device.words->failure.seen, failure.seen);
  env.store_relaxed(&device.words->failure.tag, failure.tag);
  env.store_relaxed(&device.words->failure.expected, failure.expected);
  env.store_release(&device.words->device_abort, word);
}

template <class Env, class Group, class Combiner>
class DeviceCall {
 public:
  RCN_HD DeviceCall(Env& env, Group& group, const DeviceLane& device, Combiner& combiner,
                    std::uint32_t part, const Exchange& exchange)
      : env_(env),
        group_(group),
        device_(device),
        exchange_(exchange),
        port_(env, device.ring),
        rounds_(env, group, device.lane, port_, combiner, part, exchange) {}

  // Runs the call to its end: all threads of the group call it and get the same verdict. On a communicator
  // that has failed it touches nothing.
  RCN_HD Verdict run() {
    if (group_.broadcast(group_.id() == 0 && has_failed())) return Verdict::kAborted;
    note_progress();
    Verdict verdict;
    for (std::uint32_t look = 1; (verdict = rounds_.step()) == Verdict::kPending; ++look) {
      if (group_.id() == 0 && look % kLooksPerClock == 0) look_after();
    }
    if (verdict == Verdict::kMismatch && group_.id() == 0) raise(AbortReason::kMismatch, rounds_.missing());
    return verdict;
  }

 private:
  static constexpr std::uint32_t kLooksPerClock = 64;

  RCN_HD bool has_failed() {
    adopt_host_abort();
    return env_.load_acquire(device_.own_abort) != 0;
  }

  // The first cause of either side counts on the device as its own.
  RCN_HD void adopt_host_abort() {
    const std::uint64_t word = env_.load_acquire(&device_.words->host_abort);
    if (word != 0) (void)env_.claim(device_.own_abort, word);
  }

  RCN_HD void note_progress() {
    epoch_ = rounds_.epoch();
    missing_ = rounds_.missing();
    since_ns_ = env_.clock_ns();
  }

  // Now and then: the host's abort word, what it has heard of the peers, and the deadline, which counts
  // from the last progress. The next look at the signals finds the own word and gives the verdict.
  RCN_HD void look_after() {
    adopt_host_abort();
    if (env_.load_acquire(&device_.words->absent) != 0) look_for_the_gone();
    if (epoch_ != rounds_.epoch() || missing_ != rounds_.missing()) return note_progress();
    const std::uint64_t waited = env_.clock_ns() - since_ns_;
    if (waited >= (epoch_ == 1 ? device_.first_timeout_ns : device_.timeout_ns)) {
      raise(AbortReason::kDeadline, missing_);
    } else if (waited >= device_.suspect_ns && missing_ < device_.lane.ranks &&
               env_.load_acquire(device_.peer_states + missing_) == kSilent) {
      raise(AbortReason::kSuspect, missing_);
    }
  }

  // The state is acquired before the signal is: what the peer stored before it ended is seen then, so one
  // that has signalled and left harms nobody.
  RCN_HD void look_for_the_gone() {
    const std::uint64_t epoch = rounds_.epoch();
    for (std::uint32_t peer = 0; peer < device_.lane.ranks; ++peer) {
      if (peer == device_.lane.rank || env_.load_acquire(device_.peer_states + peer) != kGone) continue;
      if (env_.load_acquire(&device_.lane.peers[peer].inbound[line_of<Env>(epoch)]->epoch) >= epoch)
        continue;
      return raise(AbortReason::kPeerGone, peer);
    }
  }

  RCN_HD void raise(AbortReason reason, std::uint32_t peer) {
    FailureRecord failure{rounds_.epoch(), peer, 0, 0, exchange_.tag};
    if (failure.peer < device_.lane.ranks && failure.peer != device_.lane.rank) {
      const PeerLink& link = device_.lane.peers[failure.peer];
      failure.seen = env_.load_acquire(&link.inbound[line_of<Env>(failure.epoch)]->epoch);
      const std::uint64_t* const tag = tag_of<Env>(link, failure.epoch);
      if (tag != nullptr) failure.tag = env_.load_relaxed(tag);
    }
    raise_on_device(env_, device_, reason, failure);
  }

  Env& env_;
  Group& group_;
  const DeviceLane& device_;
  const Exchange& exchange_;
  DoorbellPort<Env> port_;
  OneShot<Env, Group, DoorbellPort<Env>, Combiner> rounds_;
  std::uint64_t epoch_ = 0;
  std::uint32_t missing_ = 0;
  std::uint64_t since_ns_ = 0;
};

}  // namespace rocenante::protocol
