// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of communicators tell each other over them, so that new ones can be made: for several
// communicators of lib/comm that one thread holds at once, since their ranks may wait for each other.
// Collective over each.
#pragma once

#include <optional>
#include <vector>

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
Result<std::vector<SplitResult>> exchange_splits(const std::vector<SplitAsk>& asks);

// The id of the communicator that each grows into: the one rank that has it tells the others.
struct GrowAsk {
  Participant who;
  std::optional<UniqueId> id;
  int new_ranks;
};
// Empty where no rank has one. InvalidUsage where several have, or they do not agree on the number.
Result<std::vector<std::optional<UniqueId>>> exchange_grows(const std::vector<GrowAsk>& asks);

}  // namespace rocenante::nccl
