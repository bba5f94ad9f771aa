// SPDX-License-Identifier: Apache-2.0
//
// Communicators of our own world that are made out of others. What is asked for is checked at once and
// done, in a group, at its end: of one parent in the order of the calls, as on every rank of it; those of
// different parents do not wait for each other. Blocking parents have it done when the call returns;
// non-blocking ones go on with it and are asked whether they have all, and a new communicator is ready when
// its handle is there.
#pragma once

#include <rocenante/rocenante.h>

#include <optional>
#include <vector>

#include "lib/comm/unique_id.h"
#include "nccl_shim/libnccl/own_table.h"
#include "nccl_shim/libnccl/own_world.h"

namespace rocenante::nccl {

struct Child {
  enum class Made : std::uint8_t {
    kSplit,   // collective over the parent
    kGrow,    // likewise; the new ranks initialise with the id
    kShrink,  // of the ranks that go on, without a word of the parent's
  };
  Made made_by;
  OwnSlot* parent;
  void** handle;
  bool blocking;
  int color = 0;                    // split
  int key = 0;                      // split
  std::vector<bool> left_out = {};  // shrink, by rank
  int ranks = 0;                    // grow
  std::optional<UniqueId> id = {};  // grow, on the rank that has it
  std::uint64_t driver = thread_number();
};

Status split(void* parent, int color, int key, void** made, const void* config);
// `flags`: 1 ends the parent's calls first, which then may have failed.
Status shrink(void* parent, const int* left_out, int count, void** made, const void* config, int flags);
Status grow(void* parent, int ranks, const rcnUniqueId* id, int rank, void** made, const void* config);
// The id that a communicator grows with.
Status make_grow_id(OwnSlot* slot, rcnUniqueId* id);

// Those of a group, together with initialisations that join some of them. The first error, or InProgress.
Status make_children(const std::vector<Child>& children, const std::vector<OwnInit>& joining);

}  // namespace rocenante::nccl
