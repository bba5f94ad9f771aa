// SPDX-License-Identifier: Apache-2.0
//
// Communicators of the real library, and our side of them.
#pragma once

#include <memory>

#include "lib/comm/communicator.h"
#include "nccl_shim/libnccl/side_table.h"
#include "nccl_shim/libnccl/thread_group.h"

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

// Our side of a communicator that is about to be made from this id; null where it has none.
std::unique_ptr<SideEntry> prepare_side(const rcnUniqueId& id, int nranks, int rank, const void* config);

// Notes it under the handle that the real library has made, now or when the group has ended.
void adopt_side(void** handle, std::unique_ptr<SideEntry> entry);

// The same for communicators that one process has made at once, whose ids nobody saw.
void adopt_all(void** comms, int count);

// Our side of a communicator that the real library has split off, once it has. The parents' sides meet for
// it: a split is a call of every rank, as an eligible all-reduce is. In a group, or where the parent has no
// side, the new one has none.
void adopt_split(void* parent, int color, int key, void* made);

// Which of the two performs calls that are eligible; at the first of them the ranks' sides meet, in bounded
// time, and either all take part or none does.
SideEntry::Decision decide(SideEntry& entry);

// Ends our side. `aborting`: a call of ours in progress returns with an error first.
void end_side(void* comm, bool aborting);

// Who performs an all-reduce on a communicator that may have a side of ours.
enum class Route : std::uint8_t {
  kOurs,
  kReal,
  kCandidate,  // in a group: noted as one that may be ours
  kHeld,       // in a group: the real library's, after calls that may be ours
};
Route route_all_reduce(SideEntry& side, const CollectiveCall& call, void* comm);

}  // namespace rocenante::nccl
