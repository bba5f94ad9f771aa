// SPDX-License-Identifier: Apache-2.0
//
// A launch of the simulated device: DeviceCall by groups of threads.
#pragma once

#include "lib/device/stream_device.h"
#include "tests/support/sim_pool.h"

namespace rocenante::test {

// Runs a call with `threads` threads in each group and returns when all have ended; the worst verdict.
protocol::Verdict run_launch(SimPool& pool, const CallLaunch& call, std::uint32_t threads,
                             std::uint64_t bytes_per_group);

}  // namespace rocenante::test
