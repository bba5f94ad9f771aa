// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a communicator of lib/comm tell each other over it, so that a new one can be made.
// Collective over it: who holds several ranks of one world has a thread for each.
#pragma once

#include <optional>

#include "lib/base/config.h"
#include "lib/base/status.h"
#include "lib/comm/unique_id.h"

namespace rocenante::nccl {

struct Participant {
  void* core;
  int rank;
  int ranks;
  const Config* config;
};

struct SplitAsk {
  Participant who;
  int color;
  int key;
};
// An id to meet at, a place and how many there are; no ranks without a colour.
struct SplitResult {
  UniqueId id;
  int rank = 0;
  int ranks = 0;
};
Result<SplitResult> exchange_split(const SplitAsk& ask);

// The id of the communicator that it grows into: the one rank that has it tells the others.
struct GrowAsk {
  Participant who;
  std::optional<UniqueId> id;
  int new_ranks;
};
// Empty where no rank has one. InvalidUsage where several have, or they do not agree on the number.
Result<std::optional<UniqueId>> exchange_grow(const GrowAsk& ask);

}  // namespace rocenante::nccl
