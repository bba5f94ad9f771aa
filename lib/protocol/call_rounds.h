// SPDX-License-Identifier: Apache-2.0
//
// A call as a resumable sequence of rounds. Each thread of each group holds its own CallRounds and calls
// step() until it is not kPending. A piece of the call takes
//   one round  every member's contribution, or its slice for that member, goes to every member, which
//              combines them itself
//   two        where the exchange gathers: members get and combine one slice each, and then everybody's
//
// In the second, the combiner has written this rank's slice straight into the slot of the gathering round,
// e+1. It may: it waited for every member's signal of e, so none reads that slot's last use, e-1, any more;
// and the other groups of its rank have staged e, so they have combined e-1. For the rest the rounds are
// like any others (rule 2).
//
//   Port       post(lane, epoch, piece): hands the round's puts to whatever carries them to unmapped
//              members; drained(): true once the NIC has read all own puts
//   Combiner   what the threads of a group do together: stage(env, group, to, from, bytes) writes the
//              staged form of the contribution; reads_slot(piece): whether the own contribution is read
//              back from the slot; combine(group, piece, begin, end, source) writes [begin, end) of
//              piece.output from source(rank), where that rank's bytes of the piece begin. One with kSlices
//              stages slices slice_stride(piece.carried) apart where the exchange is sliced; its source of
//              the own rank is then the whole contribution. A piece that is not sliced, of an exchange that
//              gathers, is what the members have made of their slices
#pragma once

#include <cstdint>

#include "lib/protocol/round.h"

namespace rocenante::protocol {

// What one call moves, in units of its rounds.
struct Exchange {
  const void* input;
  void* output;
  std::uint64_t bytes;
  std::uint64_t piece_bytes;  // most bytes of one round; a multiple of 16, at most a slot
  std::uint64_t tag;
  // `bytes` fit a signal line and every rank agreed to put them there. One group: in place, another might
  // combine over the input before the last has published it.
  bool in_line;
  // Members read `input` itself, so the call ends only when all have said that they are done. A mapped
  // member reads from the start of the buffer: then one piece. Never in place, never by a combiner
  // that reads its slot.
  bool closing_round;
  // Puts read `input` itself and are done when the port has drained; nobody maps our slots. Of no concern
  // to the members. Never in place, never by a combiner
  // that reads its slot.
  bool puts_from_input = false;
  // Every member gets a slice of each piece rather than all. A slice ends where slice_of() says, or, in
  // lines, at the members' equal shares.
  bool sliced = false;
  // After such a round another one gathers what each member has made of its slice. `sliced`, and nothing of
  // in_line and closing_round.
  bool gathers = false;
};

// What a thread does between two looks at the signals that it waits for, as a function of the last look's
// verdict, which is not kReady: true if it shall look again before its group learns the verdict. This one
// leaves waiting to the caller of step().
struct NoPatience {
  RCN_HD bool operator()(Verdict) const { return false; }
};

template <class Env, class Group, class Port, class Combiner>
class CallRounds {
 public:
  // All arguments outlive the object. A call begins when the one before it has ended in every thread of
  // every group of the rank (a kernel boundary, a join): only then does the lane's epoch stand at the last
  // completed round for all of them.
  RCN_HD CallRounds(Env& env, Group& group, const Lane& lane, Port& port, Combiner& combiner, Part part,
                    const Exchange& exchange)
      : env_(env),
        group_(group),
        lane_(lane),
        port_(port),
        combiner_(combiner),
        exchange_(exchange),
        part_(part),
        epoch_(env.load_relaxed(lane.epoch)) {}

  // kPending: call again. kReady: the output is there and the input may be reused. kAborted, kMismatch: the
  // round in progress has written and published nothing further and the epoch has not advanced (failure
  // rule 3); or, if draining(), all rounds are completed and the abort ended the wait for the own puts.
  // The same for all threads of a group; between the groups of a rank the worst verdict counts.
  // Each wait begins with a copy of `patience`.
  template <class Patience = NoPatience>
  RCN_HD Verdict step(const Patience& patience = Patience()) {
    for (;;) {
      switch (phase_) {
        case Phase::kBegin:
          begin_round();
          phase_ = Phase::kWait;
          break;
        case Phase::kWait: {
          const Verdict verdict = wait(patience);
          if (verdict != Verdict::kReady) return verdict;
          finish_round();
          break;
        }
        case Phase::kDrain: {
          const Verdict verdict = drain();
          if (verdict != Verdict::kReady) return verdict;
          phase_ = Phase::kDone;
          return Verdict::kReady;
        }
        case Phase::kDone:
          return Verdict::kReady;
      }
    }
  }

  RCN_HD std::uint64_t epoch() const { return epoch_; }  // of the round in progress
  RCN_HD bool draining() const { return phase_ == Phase::kDrain; }
  // A member that this thread waits for, or `ranks`.
  RCN_HD std::uint32_t missing() const { return wait_.next < lane_.ranks ? wait_.next : lane_.ranks; }
  // Whether the round in progress still wants something of member `peer`, whoever waits for it: of a
  // payload that comes over several rails every line counts. False where the member makes another call.
  RCN_HD bool wants(std::uint32_t peer) const {
    WaitState state{peer};
    return poll(env_, lane_, epoch_, piece(), state, lane_.ranks) == Verdict::kPending;
  }

 private:
  enum class Phase : std::uint8_t { kBegin, kWait, kDrain, kDone };

  static constexpr bool kSlices = requires { requires Combiner::kSlices; };

  RCN_HD bool closing() const { return done_ == exchange_.bytes && exchange_.bytes != 0; }

  // What the round in progress moves. A group of threads with few registers makes it whenever it looks at
  // it.
  RCN_HD decltype(auto) piece() const {
    if constexpr (requires { typename Group::FewRegisters; }) {
      return make_piece();
    } else {
      return (piece_);
    }
  }

  RCN_HD Piece make_piece() const {
    const std::uint64_t left = exchange_.bytes - done_;
    Piece piece{static_cast<const unsigned char*>(exchange_.input) + done_,
                static_cast<unsigned char*>(exchange_.output) + done_,
                left < exchange_.piece_bytes ? left : exchange_.piece_bytes,
                exchange_.tag,
                exchange_.in_line && !closing(),
                exchange_.puts_from_input};
    if constexpr (kSlices) {
      if (exchange_.sliced) slice(piece);
    }
    return piece;
  }

  RCN_HD void slice(Piece& piece) const {
    piece.carried = slice_of(piece.bytes, lane_.ranks);
    piece.sliced = !gathering_;
    // Puts are all of one length, so they may reach beyond the input, but not there.
    piece.from_input =
        piece.from_input && piece.sliced && piece.carried * lane_.ranks == piece.bytes && !piece.in_line;
    const std::uint64_t gathering = Env::kMutation == Mutation::kSameSlot ? epoch_ : epoch_ + 1;
    if (exchange_.gathers && piece.sliced) piece.output = lane_.send[parity_of<Env>(gathering)];
  }

  // Of a round of the call.
  RCN_HD std::uint64_t most_bytes() const {
    return exchange_.bytes < exchange_.piece_bytes ? exchange_.bytes : exchange_.piece_bytes;
  }

  // Lets the piece's input be what the own contribution is read from, now that it is staged.
  RCN_HD void take_own(Piece& piece) const {
    if (combiner_.reads_slot(piece)) piece.input = lane_.send[parity_of<Env>(epoch_)];
  }

  RCN_HD void begin_round() {
    ++epoch_;
    wait_ = WaitState{group_.id()};
    piece_ = make_piece();
    const bool read_in_place = exchange_.closing_round;
    // Nobody reads the slot of a payload that rides in every member's line, except a combiner its own.
    const bool unread = piece_.from_input || (kSlices && gathering_) ||
                        (piece_.in_line && lane_.all_mapped && !combiner_.reads_slot(piece_));
    if (piece_.bytes != 0 && !read_in_place && !unread) stage_part(piece_);
    take_own(piece_);
    if (!all_staged()) return;
    if (lane_.tags_slots && group_.id() == 0) tag_slot();
    publish(env_, group_, lane_, epoch_, piece_);
    if (group_.id() == 0) port_.post(lane_, epoch_, piece_);
  }

  RCN_HD void tag_slot() {
    unsigned char* const slot = lane_.send[parity_of<Env>(epoch_)];
    env_.store_relaxed(slot_tag(slot), piece_.tag);
    if constexpr (kSlices) {
      if (!piece_.sliced) return;
      for (std::uint32_t member = 1; member < lane_.ranks; ++member)
        env_.store_relaxed(slot_tag(slot + member * slice_stride(piece_.carried)), piece_.tag);
    }
  }

  RCN_HD bool all_staged() {
    if constexpr (Env::kMutation == Mutation::kOneStageCounter ||
                  Env::kMutation == Mutation::kSharedCounter)
      return last_to_arrive(env_, group_, lane_, part_, lane_.staged, epoch_);
    return last_to_arrive(env_, group_, lane_, part_, lane_.staged + epoch_ % kParities,
                          parity_round(epoch_));
  }

  RCN_HD bool all_finished() {
    if constexpr (Env::kMutation == Mutation::kSharedCounter)
      return last_to_arrive(env_, group_, lane_, part_, lane_.staged, epoch_);
    return last_to_arrive(env_, group_, lane_, part_, lane_.finished + epoch_ % kParities,
                          parity_round(epoch_));
  }

  RCN_HD void stage_part(const Piece& piece) {
    std::uint64_t begin, end;
    share_of(part_, most_bytes(), piece.bytes, begin, end);
    combiner_.stage(env_, group_, lane_.send[parity_of<Env>(epoch_)] + begin,
                    static_cast<const unsigned char*>(piece.input) + begin, end - begin);
  }

  // Each thread waits for its share of the members. The verdict is the worst, and uniform before any other
  // barrier (failure rule 2).
  template <class Patience>
  RCN_HD Verdict wait(Patience patience) {
    Verdict verdict = poll(env_, lane_, epoch_, piece(), wait_, group_.size());
    while (verdict != Verdict::kReady && patience(verdict))
      verdict = poll(env_, lane_, epoch_, piece(), wait_, group_.size());
    verdict = group_.worst(verdict);
    if constexpr (Env::kMutation == Mutation::kAdvanceOnAbort) {
      if (verdict == Verdict::kAborted && group_.id() == 0) advance(env_, lane_, epoch_);
    }
    return verdict;
  }

  // Thread 0 has posted what its group has. A transport that failed never drains, so this wait, too, ends
  // by an abort (failure rule 1).
  RCN_HD Verdict drain() {
    Verdict verdict = Verdict::kReady;
    if (group_.id() == 0 && !port_.drained()) {
      verdict = Verdict::kPending;
      if constexpr (Env::kMutation != Mutation::kDeafDrain) {
        if (env_.load_acquire(lane_.abort_word) != 0) verdict = Verdict::kAborted;
      }
    }
    return group_.worst(verdict);
  }

  RCN_HD void combine_part(Piece piece) {
    take_own(piece);
    std::uint64_t begin, end;
    share_of(part_, most_bytes(), piece.bytes, begin, end);
    if (begin == end) return;
    combiner_.combine(group_, piece, begin, end, [this, &piece](std::uint32_t rank) {
      return payload_of<Env>(lane_, epoch_, rank, piece);
    });
  }

  RCN_HD void finish_round() {
    const Piece& piece = this->piece();
    if (piece.bytes != 0) combine_part(piece);
    if (all_finished() && group_.id() == 0) advance(env_, lane_, epoch_);
    if constexpr (kSlices) {
      gathering_ = exchange_.gathers && !gathering_;
      if (gathering_) {
        phase_ = Phase::kBegin;
        return;
      }
    }
    const bool was_closing = closing();
    done_ += piece.bytes;
    bool close = exchange_.closing_round && closing() && !was_closing;
    if constexpr (Env::kMutation == Mutation::kNoClosingRound) close = false;
    phase_ = done_ < exchange_.bytes || close ? Phase::kBegin : Phase::kDrain;
  }

  Env& env_;
  Group& group_;
  const Lane& lane_;
  Port& port_;
  Combiner& combiner_;
  const Exchange& exchange_;
  const Part part_;
  Piece piece_{};
  Phase phase_ = Phase::kBegin;
  bool gathering_ = false;  // the round in progress is a piece's second
  WaitState wait_;
  std::uint64_t epoch_;
  std::uint64_t done_ = 0;
};

}  // namespace rocenante::protocol
