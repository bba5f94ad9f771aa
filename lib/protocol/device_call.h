// SPDX-License-Identifier: Apache-2.0
//
// One call as a launch on a device runs it: the rounds of CallRounds by several groups of threads,
// doorbells for what a progress thread must carry, a deadline, and the device's half of the abort words.
// The text of a CTA on the GPU and of a group of threads in the tests.
//
//   Env    as in round.h, and clock_ns(): nanoseconds of a clock that does not go backwards;
//          claim(word, value): a compare-and-swap of 0 by `value` at the device's own scope, true if it was
//          0; pause(): between two looks at a word
#pragma once

#include <cstdint>

#include "lib/protocol/abort_word.h"
#include "lib/protocol/call_rounds.h"
#include "lib/protocol/doorbell.h"

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
  std::uint64_t suspect_ns;          // how long a thread waits for a silent peer
  std::uint64_t timeout_ns;          // of each wait for a member
  std::uint64_t first_timeout_ns;    // the same in the communicator's first round
};

// Hands the puts of a round to the progress thread. A launch ends before they have left: the slot is not
// staged again until every member has signalled the next round, which it does after this round's put has
// come.
template <class Env>
class DoorbellPort {
 public:
  RCN_HD DoorbellPort(Env& env, DoorbellRing* ring) : env_(env), ring_(ring) {}
  RCN_HD void post(const Lane& lane, std::uint64_t epoch, const Piece& piece) {
    if (!lane.all_mapped) ring_doorbell(env_, *ring_, epoch, PutDescriptor{piece.carried, piece.tag});
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
  if constexpr (Env::kMutation == Mutation::kRecordLast)
    env.store_release(&device.words->device_abort, word);
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
  RCN_HD DeviceCall(Env& env, Group& group, const DeviceLane& device, Combiner& combiner, Part part,
                    const Exchange& exchange)
      : env_(env), group_(group), device_(device), combiner_(combiner), part_(part), exchange_(exchange) {}

  // Runs the call to its end: all threads of the group call it and get the same verdict. On a communicator
  // that has failed it touches nothing.
  RCN_HD Verdict run() {
    if (group_.broadcast(group_.id() == 0 && has_failed())) return Verdict::kAborted;
    // Objects of their own, none within another: then a compiler can keep all of them in registers.
    DoorbellPort<Env> port(env_, device_.ring);
    Rounds rounds(env_, group_, device_.lane, port, combiner_, part_, exchange_);
    return rounds.step(Watch(*this, rounds));  // no wait ends pending, and the port drains at once
  }

 private:
  using Rounds = CallRounds<Env, Group, DoorbellPort<Env>, Combiner>;

  // What a thread does while it waits: it looks on until there is a verdict, now and then at the clock and
  // at the host's abort word. It alone meets its own member's mismatch or deadline and tells the others
  // through the abort word, which frees them, before the group meets.
  class Watch {
   public:
    RCN_HD Watch(const DeviceCall& call, const Rounds& rounds) : call_(&call), rounds_(&rounds) {}

    RCN_HD bool operator()(Verdict verdict) {
      AbortReason reason = AbortReason::kNone;
      std::uint32_t peer = rounds_->missing();
      if (verdict == Verdict::kMismatch) reason = AbortReason::kMismatch;
      if (verdict == Verdict::kPending) {
        call_->env_.pause();
        if (++looks_ % looks_per_clock() == 0) reason = look_after(peer);
      }
      if (reason != AbortReason::kNone) call_->raise(reason, peer, rounds_->epoch());
      return verdict == Verdict::kPending;  // the next look finds an abort and gives the verdict
    }

   private:
    // Now and then: the host's abort word, what it has heard of the peers, and the deadline, which counts
    // from the last progress. The reason to give up, if there is one, and the peer that gives it.
    RCN_HD AbortReason look_after(std::uint32_t& peer) {
      const DeviceLane& device = call_->device_;
      Env& env = call_->env_;
      call_->adopt_host_abort();
      if (env.load_acquire(&device.words->absent) != 0 && call_->finds_one_gone(*rounds_, peer))
        return AbortReason::kPeerGone;
      const std::uint64_t now_ns = env.clock_ns();
      // The first time, progress, or a clock that went back.
      if (since_ns_ == 0 || peer != missing_ || now_ns < since_ns_) {
        missing_ = peer;
        since_ns_ = now_ns;
        return AbortReason::kNone;
      }
      const std::uint64_t waited_ns = now_ns - since_ns_;
      if (waited_ns >= (rounds_->epoch() == 1 ? device.first_timeout_ns : device.timeout_ns))
        return AbortReason::kDeadline;
      const bool silent =
          waited_ns >= device.suspect_ns && env.load_acquire(device.peer_states + peer) == kSilent;
      return silent ? AbortReason::kSuspect : AbortReason::kNone;
    }

    const DeviceCall* call_;
    const Rounds* rounds_;
    std::uint32_t looks_ = 0;
    std::uint64_t since_ns_ = 0;
    std::uint32_t missing_ = 0;
  };

  // An Env for which each look is a step of its own says less.
  RCN_HD static constexpr std::uint32_t looks_per_clock() {
    if constexpr (requires { Env::kLooksPerClock; }) return Env::kLooksPerClock;
    return 64;
  }

  // Relaxed: a word that is set says all there is to know here.
  RCN_HD bool has_failed() const {
    const std::uint64_t own = env_.load_relaxed(device_.own_abort);
    if constexpr (Env::kMutation == Mutation::kDeafEntry) return own != 0;
    const std::uint64_t host = env_.load_relaxed(&device_.words->host_abort);
    if constexpr (Env::kMutation != Mutation::kNoAdoption) {
      if (host != 0) (void)env_.claim(device_.own_abort, host);
    }
    return (host | own) != 0;
  }

  // The first cause of either side counts on the device as its own.
  RCN_HD void adopt_host_abort() const {
    const std::uint64_t word = env_.load_relaxed(&device_.words->host_abort);
    if (word != 0) (void)env_.claim(device_.own_abort, word);
  }

  // The state is acquired before the signals are: what the peer stored before it ended is seen then, so one
  // that has signalled and left harms nobody.
  RCN_HD bool finds_one_gone(const Rounds& rounds, std::uint32_t& gone) const {
    for (std::uint32_t peer = 0; peer < device_.lane.ranks; ++peer) {
      if (peer == device_.lane.rank) continue;
      if constexpr (Env::kMutation == Mutation::kStateAfterSignal) {
        if (!rounds.wants(peer)) continue;
      }
      if (env_.load_acquire(device_.peer_states + peer) != kGone) continue;
      if constexpr (Env::kMutation != Mutation::kStateAfterSignal) {
        if (!rounds.wants(peer)) continue;
      }
      gone = peer;
      return true;
    }
    return false;
  }

  RCN_HD void raise(AbortReason reason, std::uint32_t peer, std::uint64_t epoch) const {
    FailureRecord failure{epoch, peer, 0, 0, exchange_.tag};
    if (failure.peer < device_.lane.ranks && failure.peer != device_.lane.rank) {
      const PeerLink& link = device_.lane.peers[failure.peer];
      for (std::uint64_t parity = 0; parity < kParities; ++parity) {
        const std::uint64_t seen = env_.load_acquire(&link.inbound[parity]->epoch);
        if (seen > failure.seen) failure.seen = seen;
      }
      const std::uint64_t* const tag = tag_of<Env>(link, failure.epoch);
      if (tag != nullptr) failure.tag = env_.load_relaxed(tag);
    }
    raise_on_device(env_, device_, reason, failure);
  }

  Env& env_;
  Group& group_;
  const DeviceLane& device_;
  Combiner& combiner_;
  const Part part_;
  const Exchange& exchange_;
};

// How many groups share the rounds of a call: one for every `bytes_per_group` of a round, a power of two,
// at most `most`; one where the payload rides in the lines. Each rank decides for itself.
constexpr std::uint32_t groups_for(const Exchange& exchange, std::uint64_t bytes_per_group,
                                   std::uint32_t most) {
  if (exchange.in_line) return 1;
  const std::uint64_t bytes = exchange.bytes < exchange.piece_bytes ? exchange.bytes : exchange.piece_bytes;
  std::uint32_t groups = 1;
  while (groups * 2 <= most && groups * 2 <= kMostParts && groups * bytes_per_group < bytes) groups *= 2;
  return groups;
}

}  // namespace rocenante::protocol
