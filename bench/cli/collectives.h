// SPDX-License-Identifier: Apache-2.0
//
// The collectives that can be measured: names, sizes and factors of nccl-tests.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "rocenante/rocenante.h"

namespace rocenante::bench {

struct CollectiveInfo {
  const char* name;
  rcnColl_t value;
  bool reduces;
  bool has_root;
  bool sends_blocks;     // the send buffer holds a block for each rank
  bool receives_blocks;  // the receive buffer holds one from each
  bool has_in_place;

  // Blocks in the larger of the two buffers, whose bytes are a row's size.
  std::size_t blocks(int ranks) const {
    return sends_blocks || receives_blocks ? static_cast<std::size_t>(ranks) : 1;
  }
  // busbw / algbw.
  double bus_factor(int ranks) const;
};

std::span<const CollectiveInfo> all_collectives();
const CollectiveInfo* find_collective(std::string_view name);  // null if there is none

// One call; `op` and `root` as far as the collective has them.
struct CallArguments {
  const void* send;
  void* recv;
  std::size_t count;  // elements of a block
  rcnDataType_t type;
  rcnRedOp_t op;
  int root;
};
rcnResult_t call_collective(rcnColl_t collective, const CallArguments& arguments, rcnComm_t comm);

}  // namespace rocenante::bench
