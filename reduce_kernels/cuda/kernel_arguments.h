// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "lib/protocol/device_call.h"
#include "reduce_kernels/device_combine.h"

namespace rocenante::reduce {

// Threads of a CTA.
inline constexpr std::uint32_t kMostThreads = 512;

// The one parameter of every kernel.
struct KernelArguments {
  const protocol::DeviceLane* lane;  // device address
  protocol::Exchange exchange;
  DeviceReduction reduction;
  std::uint32_t shift;  // log2 of the number of groups
};

}  // namespace rocenante::reduce
