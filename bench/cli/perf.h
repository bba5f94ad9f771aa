// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/cli/options.h"
#include "rocenante/rocenante.h"

namespace rocenante::bench {

// Runs `perf` as one rank and returns the exit code. Collective over the ranks; rank 0 alone writes
// reports. Throws RunError or UsageError.
int run_rank(const PerfOptions& options, const rcnUniqueId& id, int rank);

}  // namespace rocenante::bench
