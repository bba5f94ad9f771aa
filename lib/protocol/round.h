// SPDX-License-Identifier: Apache-2.0
//
// One round: stage, publish, wait for every signal, combine, advance. One text for CPU, GPU and the
// interleaving model, templated over
//   Env    load_acquire, load_relaxed, store_release, store_relaxed, fetch_add, copy, fence, wait, notify,
//          acquire_from_nic (orders what follows after the acquire of a word that a NIC wrote), pull (a
//          hint that a cache line will be read); every access to memory that somebody else also touches
//          goes through it, so that the model can take each as a step
//   Group  the threads that work on a round together: id, size, sync, broadcast (thread 0's value) and
//          worst (of all threads' verdicts)
//
// Why two parities and no credits are enough (protocol rules 2 and 3): a member signals epoch e+1 only
// after it has combined e, and a round completes only with every member's signal. So whoever stages e+2, in
// the slot of e, has seen every member's e+1 and nobody reads e any more.
#pragma once

#include <cstdint>

#include "lib/protocol/layout.h"
#include "lib/protocol/mutation.h"
#include "lib/protocol/sleep.h"

namespace rocenante::protocol {

// From the best to the worst: what a group makes of its threads' verdicts is the last of them.
enum class Verdict : std::uint8_t { kReady, kPending, kAborted, kMismatch };

// How one member of the round group is reached. Pointers are valid in the address space of whoever drives
// the round.
struct PeerLink {
  SignalLine* outbound[kParities];  // our lines in its inbox; null where a transport carries the signal
  const SignalLine* inbound[kParities];    // its lines in ours; one, or `rails` in a row if not mapped
  const unsigned char* source[kParities];  // its payload: its mapped send slots, or our receive slots
  WakeLine* wake;                          // its wake line; null where it cannot be mapped
  const std::uint64_t* tag[kParities];  // not mapped: where its call's tag is; null where none is carried
  std::uint32_t rails;                  // not mapped: the most lines that carry one round
};

// Counts arrivals of the groups that share a round. Monotonic like everything else: after its round k it
// stands at k * kMostParts, so it is never reset. A round's groups add equal weights, and a group that is
// alone stores the sum, so that calls of one lane may have different numbers of groups. (A counter that
// tells the last by a remainder alone does not do: after an abort a group may go on to the next round and
// complete what another has left undone.)
//
// A group waits for the members, not for the groups beside it: it may have combined e, and arrive as staged
// for e+1, before another group of its rank has staged e. Hence a counter of stagings for each parity.
// No group stages two rounds ahead of another, because no member completes e+1 without the signal that the
// late group still holds back. Likewise a group may have finished e+1 before another has finished e, but
// not e+2: that takes the members' signals of e+2, which they send after this rank's of e+1, for which
// every group has finished e. Hence a counter of finishes for each parity, too, and the lane's epoch never
// runs ahead of a round that somebody has left undone.
struct alignas(kLineBytes) ArrivalCounter {
  std::uint64_t count;
};

// Groups that share a round: a power of two, at most kMostParts.
inline constexpr std::uint64_t kMostParts = 64;

// Which of the groups that share the rounds of a call one is. Their number is kept as its logarithm: a
// device divides slowly.
struct Part {
  std::uint32_t index = 0;
  std::uint32_t shift = 0;

  RCN_HD constexpr std::uint32_t count() const { return 1u << shift; }
};

RCN_HD constexpr Part part_of(std::uint32_t index, std::uint32_t count) {
  Part part{index, 0};
  while (part.count() < count) ++part.shift;
  return part;
}

// Plain handle of a lane; owns nothing. The memory it points to outlives every round on it.
struct Lane {
  std::uint32_t rank;
  std::uint32_t ranks;
  std::uint64_t striped_bytes;  // payloads of at least so many bytes take all rails of a carried member
  bool all_mapped;              // every member has an outbound line
  bool tags_slots;              // a carrier brings the tag that stands before a slot
  bool may_sleep;               // members may sleep on their wake lines
  PeerLink* peers;              // [ranks]; the own entry is unused
  unsigned char* send[kParities];
  std::uint64_t* epoch;             // last completed round; private memory
  const std::uint64_t* abort_word;  // private memory
  ArrivalCounter* staged;           // [kParities]; null where no round is ever shared by several groups
  ArrivalCounter* finished;         // [kParities], the same
};

// What of a call one round moves.
struct Piece {
  const void* input;  // own contribution
  void* output;
  std::uint64_t bytes;
  std::uint64_t tag;              // equal on all ranks
  bool in_line;                   // the payload rides in the signal lines of mapped peers
  bool from_input = false;        // puts are read from `input`, not from the slot
  std::uint64_t carried = bytes;  // what of it a put takes to a member: all, or a slice
  bool sliced = false;            // each member gets its own slice (slice_of), no more
};

// Progress of one thread's wait for its share of the members, kept by the caller between polls.
struct WaitState {
  std::uint32_t next = 0;  // those of its share below this one have signalled
  std::uint32_t rail = 0;
};

template <class Env>
RCN_HD constexpr std::uint64_t parity_of(std::uint64_t epoch) {
  if constexpr (Env::kMutation == Mutation::kOneParity) return 0;
  return epoch & 1;
}

template <class Env>
RCN_HD constexpr std::uint64_t line_of(std::uint64_t epoch) {
  if constexpr (Env::kMutation == Mutation::kOneSignalLine || Env::kMutation == Mutation::kEquality)
    return 0;
  return parity_of<Env>(epoch);
}

// How many lines of a carried member announce `bytes` of its payload, and so over how many rails it goes. A
// payload on one rail is announced by the first line, whichever rail it takes.
RCN_HD inline std::uint32_t lines_of(const Lane& lane, const PeerLink& link, std::uint64_t bytes) {
  return bytes >= lane.striped_bytes ? link.rails : 1;
}

// Where the tag of what a member has published in `epoch` is; null where its carrier brings none.
template <class Env>
RCN_HD const std::uint64_t* tag_of(const PeerLink& link, std::uint64_t epoch) {
  if (link.outbound[0] != nullptr) return &link.inbound[line_of<Env>(epoch)]->tag;
  return link.tag[parity_of<Env>(epoch)];
}

// How many rounds the counters of the parity of `epoch` have counted, with this one.
RCN_HD constexpr std::uint64_t parity_round(std::uint64_t epoch) {
  return (epoch + 1) / kParities;
}

// True for exactly one of a round's groups: the last to arrive in the counter's round `round`, which then
// sees what the others did before they arrived (acquire-release on the counter).
template <class Env, class Group>
RCN_HD bool last_to_arrive(Env& env, Group& group, const Lane& lane, Part part, ArrivalCounter* counter,
                           std::uint64_t round) {
  group.sync();
  const bool alone = part.shift == 0;
  if (alone && lane.staged == nullptr) return true;
  bool last = alone;
  if (group.id() == 0) {
    if (alone) {
      env.store_relaxed(&counter->count, round * kMostParts);
    } else {
      const std::uint64_t weight = kMostParts >> part.shift;
      const std::uint64_t before = env.fetch_add(&counter->count, weight);
      last = before + weight == round * kMostParts;
      if constexpr (Env::kMutation == Mutation::kEarlyPublish) last = before == (round - 1) * kMostParts;
    }
  }
  return alone || group.broadcast(last);
}

// Share `index` of `count` of [begin, end), cut at multiples of 16 bytes from `begin`; may be empty.
RCN_HD inline void range_of(std::uint32_t index, std::uint32_t count, std::uint64_t begin,
                            std::uint64_t end, std::uint64_t& from, std::uint64_t& to) {
  if (count == 1) {  // the host's case: an 8-byte call would feel the division
    from = begin;
    to = end;
    return;
  }
  const std::uint64_t share = round_up((end - begin + count - 1) / count, 16);
  from = begin + share * index < end ? begin + share * index : end;
  to = end - from < share ? end : from + share;
}

// The share of one of the groups that share a round of `bytes`, in a call whose rounds have at most `most`:
// cut at the same places in all of them. A group that is ahead stages a later round while another still
// reads its own share of the slot.
RCN_HD inline void share_of(Part part, std::uint64_t most, std::uint64_t bytes, std::uint64_t& from,
                            std::uint64_t& to) {
  if (part.shift == 0) {
    from = 0;
    to = bytes;
    return;
  }
  const std::uint64_t share = round_up((most + part.count() - 1) >> part.shift, 16);
  from = share * part.index < bytes ? share * part.index : bytes;
  to = bytes - from < share ? bytes : from + share;
}

// The member `distance` places after this one. Everybody starts with the next, so that not all turn to rank
// 0 at once.
RCN_HD inline std::uint32_t member_at(const Lane& lane, std::uint32_t distance) {
  const std::uint32_t member = lane.rank + distance;
  return member < lane.ranks ? member : member - lane.ranks;
}

// Wakes the members among this thread's share that sleep, after it has published to them.
template <class Env, class Group>
RCN_HD void wake_members(Env& env, const Group& group, const Lane& lane) {
  if (!lane.may_sleep) return;
  if constexpr (Env::kMutation != Mutation::kNoFence) env.fence();  // one for all flags; see sleep.h
  for (std::uint32_t i = 1 + group.id(); i < lane.ranks; i += group.size()) {
    WakeLine* const wake = lane.peers[member_at(lane, i)].wake;
    if (wake != nullptr) notify_if_sleeping(env, wake);
  }
}

// Tells every mapped member that this rank's payload of `epoch` is there: payload, then signal (rule 4).
// Called by all threads of one group, each for its share of the members, after everything staged for the
// epoch. Members without an outbound line are the transports' (rule 1).
template <class Env, class Group>
RCN_HD void publish(Env& env, const Group& group, const Lane& lane, std::uint64_t epoch,
                    const Piece& piece) {
  const std::uint64_t line = line_of<Env>(epoch);
  for (std::uint32_t i = 1 + group.id(); i < lane.ranks; i += group.size()) {
    SignalLine* const signal = lane.peers[member_at(lane, i)].outbound[line];
    if (signal == nullptr) continue;
    if constexpr (Env::kMutation == Mutation::kSignalFirst) env.store_release(&signal->epoch, epoch);
    if (piece.in_line) env.copy(signal->payload + inline_offset(piece.bytes), piece.input, piece.bytes);
    env.store_relaxed(&signal->tag, piece.tag);
    env.store_release(&signal->epoch, epoch);
  }
  // A device's Env has no notify(): a device wakes nobody.
  if constexpr (requires(std::uint32_t * word) { env.notify(word); }) wake_members(env, group, lane);
}

// One look at the signals of `epoch` by one of `threads` threads: at those of member `state.next` and every
// `threads`-th one after it. kReady once all of these are there; `state.next` then is at least `ranks`.
// Otherwise it is a member that is still missing. An abort is seen only while something is missing: a round
// past its verdict finishes (failure rule 3).
template <class Env>
RCN_HD Verdict poll(Env& env, const Lane& lane, std::uint64_t epoch, const Piece& piece, WaitState& state,
                    std::uint32_t threads) {
  const std::uint64_t line = line_of<Env>(epoch);
  while (state.next < lane.ranks) {
    const std::uint32_t peer = state.next;
    if (peer != lane.rank) {
      const PeerLink& link = lane.peers[peer];
      const bool mapped = link.outbound[line] != nullptr;
      const std::uint32_t lines = mapped ? 1 : lines_of(lane, link, piece.carried);  // stores take no rails
      while (state.rail < lines) {
        const SignalLine* const signal = link.inbound[line] + state.rail;
        // The payload's part of the line's other half travels while the epoch does, not after it.
        if (mapped && piece.in_line && inline_offset(piece.bytes) < kLineBytes / 2) env.pull(signal);
        std::uint64_t seen;
        if constexpr (Env::kMutation == Mutation::kRelaxedSignal) {
          seen = env.load_relaxed(&signal->epoch);
        } else {
          seen = env.load_acquire(&signal->epoch);
        }
        bool there = seen >= epoch;
        if constexpr (Env::kMutation == Mutation::kEquality ||
                      Env::kMutation == Mutation::kEqualityTwoLines)
          there = seen == epoch;
        if (!there) return env.load_acquire(lane.abort_word) != 0 ? Verdict::kAborted : Verdict::kPending;
        if (!mapped) env.acquire_from_nic();
        // With the first line: who makes another call may send fewer.
        const std::uint64_t* const tag = state.rail == 0 ? tag_of<Env>(link, epoch) : nullptr;
        if (tag != nullptr && env.load_relaxed(tag) != piece.tag) return Verdict::kMismatch;
        ++state.rail;
      }
    }
    state.rail = 0;
    state.next += threads;
  }
  return Verdict::kReady;
}

// Where this rank reads what member `peer` has for it in `epoch`. The own contribution is read where the
// caller has it, whole.
template <class Env>
RCN_HD const unsigned char* payload_of(const Lane& lane, std::uint64_t epoch, std::uint32_t peer,
                                       const Piece& piece) {
  if (peer == lane.rank) return static_cast<const unsigned char*>(piece.input);
  const PeerLink& link = lane.peers[peer];
  const bool mapped = link.outbound[0] != nullptr;
  if (piece.in_line && mapped) {
    const unsigned char* const payload =
        link.inbound[line_of<Env>(epoch)]->payload + inline_offset(piece.bytes);
    return piece.sliced ? payload + lane.rank * (piece.bytes / lane.ranks)
                        : payload;  // as they stand there
  }
  const unsigned char* const payload = link.source[parity_of<Env>(epoch)];
  return piece.sliced && mapped ? payload + lane.rank * slice_stride(piece.carried) : payload;
}

// Marks `epoch` as completed. Called by one thread after every group has combined. From here on the slots
// of `epoch` belong to epoch + 2, and the next publish tells the members so.
template <class Env>
RCN_HD void advance(Env& env, const Lane& lane, std::uint64_t epoch) {
  env.store_relaxed(lane.epoch, epoch);
}

}  // namespace rocenante::protocol
