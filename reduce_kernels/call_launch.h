// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "lib/protocol/device_call.h"
#include "reduce_kernels/reduce.h"

namespace rocenante {

// One all-reduce as a launch. Everything that can change from call to call is here, by value, and so frozen
// by a capture; everything else is in the lane, and the epoch in the device's memory, so that a replay
// needs nothing from the host.
struct CallLaunch {
  const protocol::DeviceLane* lane = nullptr;  // device address
  protocol::Exchange exchange{};
  reduce::DataType type{};
  reduce::Operator op{};
  bool scaled = false;  // pre-multiplied sum by `scalar`
  std::array<unsigned char, 8> scalar{};
  std::uint32_t ranks = 1;
  std::uint32_t groups = 1;  // the most that may share a round: a launch takes as many as it has work for
};

}  // namespace rocenante
