// SPDX-License-Identifier: Apache-2.0
//
// Communicators of the real library, and our side of them.
#pragma once

#include <rocenante/rocenante.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lib/comm/communicator.h"
#include "nccl_shim/libnccl/side_table.h"

namespace rocenante::nccl {

// While it lives, calls that the real library makes to us on this thread go straight back to it.
class InsideReal {
 public:
  InsideReal();
  ~InsideReal();
  InsideReal(const InsideReal&) = delete;
  InsideReal& operator=(const InsideReal&) = delete;
};
bool inside_real();

// Gives a real id our rendezvous and secret, in the tail that the real library leaves zero. Nothing where
// our side cannot take part or the tail is not zero; an error costs us our side, not the client the id.
void extend_id(rcnUniqueId* id);

// Puts our part into the tail of a real id. InvalidUsage where that is taken.
Status fill_tail(rcnUniqueId* id, const UniqueId& ours);
// Our part of a real id, as if our own world had made it; an error if there is none in it.
Result<UniqueId> side_id(const rcnUniqueId& id);

// Our side of a communicator that is about to be made from this id; null where it has none.
std::unique_ptr<SideEntry> prepare_side(const rcnUniqueId& id, int nranks, int rank, const void* config);

// Notes it under the handle that the real library has made, now or when the group has ended. True where the
// communicator is non-blocking and its side has yet to meet: its client is told that it goes on.
bool adopt_side(void** handle, std::unique_ptr<SideEntry> entry);
bool adopt_now(void** handle, std::unique_ptr<SideEntry> entry);

// The same for communicators that one process has made at once, whose ids nobody saw.
void adopt_all(void** comms, int count, const int* devices);

// A call on a communicator with a side of ours for which the real library makes another out of it.
struct RealChild {
  enum class Made : std::uint8_t { kSplit, kGrow, kShrink };
  Made made_by;
  void* parent;
  void** handle;
  bool blocking;                    // the new communicator
  int color = 0;                    // split
  int key = 0;                      // split
  std::vector<bool> left_out = {};  // shrink, by rank
  int ranks = 0;                    // grow
  std::optional<UniqueId> id = {};  // grow, on the rank that has it
  std::uint64_t driver = thread_number();
};
// What is to be followed of it, before the real library is called; empty where there is nothing.
std::optional<RealChild> note_split(void* parent, int color, int key, void** made, const void* config);
std::optional<RealChild> note_shrink(void* parent, const int* left_out, int count, void** made,
                                     const void* config);
std::optional<RealChild> note_grow(void* parent, int ranks, const rcnUniqueId* id, void** made,
                                   const void* config);
// Our sides of those that the real library has made, or is making, together: of one parent in the order of
// the calls, of different parents independently. The sides of a split's parents meet for it: a split is a
// call of every rank, as an eligible collective is. True if some parents are non-blocking: their sides
// follow when they are asked whether the real library is done.
bool follow_children(const std::vector<RealChild>& children);
// As extend_id, for the id that a communicator with a side of ours grows with.
void extend_grow_id(void* parent, rcnUniqueId* id);

// What our side has yet to do when the real library has finished a call that it only began. Any thread;
// what was there before is done first.
void wait_with(SideEntry& entry, std::function<void()> todo);
// For a question whether a communicator is done, to which the real library says yes: whether our side is
// not. Begins what is waiting.
bool side_goes_on(void* comm);
// Whether it has still to finish what a call has begun, and what a call is told then.
bool is_busy(const void* comm);
Status busy_error(const void* comm);

// Makes our side of one the calling thread's to drive, or that of `driver`; nothing where there is none.
void set_driver(const SideEntry& side, std::uint64_t driver);

// Which of the two performs calls that are eligible; at the first of them the ranks' sides meet, in bounded
// time, and either all take part or none does.
SideEntry::Decision decide(SideEntry& entry);
// Those of several communicators that have not met, all at once: they may wait for each other.
void decide_all(const std::vector<void*>& comms);

// Our side takes no further part, and a call of ours in progress returns with an error: for a communicator
// that lives on without its calls.
void abandon_side(void* comm);

// Ends our side. `aborting`: a call of ours in progress returns with an error first.
void end_side(void* comm, bool aborting);

// What a call moves, as its limit counts: the larger of its buffers. At most 2^64 - 1.
std::uint64_t message_bytes(const CollectiveCall& call, int ranks);
// Why a call is the real library's; kNotTakingPart where the call itself is no reason.
Reason why_not_ours(const SideEntry& side, const CollectiveCall& call);

// Who performs a call on a communicator that may have a side of ours.
enum class Route : std::uint8_t {
  kOurs,
  kReal,
  kCandidate,  // in a group: noted as one that may be ours
  kHeld,       // in a group: the real library's, after calls that may be ours
  kTooEarly,   // what a call before has begun is not finished
};
Route route(SideEntry& side, const CollectiveCall& call, void* comm);

}  // namespace rocenante::nccl
