// SPDX-License-Identifier: Apache-2.0
//
// One collective call, and what its buffers hold.
#pragma once

#include <array>
#include <cstdint>

#include "lib/base/status.h"
#include "lib/comm/stats.h"
#include "reduce_kernels/reduce.h"

namespace rocenante {

// What a pre-multiplied sum multiplies by; bytes of the call's type.
using Scalar = std::array<unsigned char, 8>;

// A call; ready to run once Communicator::check has seen it.
struct CollectiveCall {
  const void* input = nullptr;
  void* output = nullptr;
  // Elements of one block: each rank sends or receives so many, or so many to and from each other rank.
  std::uint64_t count = 0;
  reduce::DataType type = reduce::DataType::kFloat32;
  std::uint32_t op = 0;  // rcnRedOp_t, custom ones included; 0 for a collective that reduces nothing
  Scalar scalar{};       // of a custom operator: set by check, so that the operator may go at once
  Collective collective = Collective::kAllReduce;
  std::uint32_t root = 0;  // of a broadcast or a reduce, else 0
};

constexpr bool has_root(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce;
}
constexpr bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce;
}
// Whether the send buffer holds a block for each rank, the receive buffer one from each.
constexpr bool sends_blocks(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
}
constexpr bool receives_blocks(Collective collective) {
  return collective == Collective::kAllGather || collective == Collective::kAllToAll;
}

// Root and buffers of a call of `rank` among `ranks`: InvalidArgument naming what is not allowed.
Status check_buffers(const CollectiveCall& call, std::uint32_t rank, std::uint32_t ranks);

}  // namespace rocenante
