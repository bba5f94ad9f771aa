// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "rocenante/rocenante.h"

namespace rocenante::bench {

struct MeetingPlan {
  std::string job;  // what the processes have in common and nobody else has
  int index = 0;    // of this process
  int processes = 1;
  int ranks_each = 1;  // must be the same in all
  std::chrono::nanoseconds timeout{};
};

// Makes one id known to all processes of a job on this host: that of index 0 makes it and hands it out at a
// Unix socket named by user and job. Both ends see that the other is of the same user. Throws RunError,
// naming who did not come or cannot be reached.
rcnUniqueId meet(const MeetingPlan& plan);

}  // namespace rocenante::bench
