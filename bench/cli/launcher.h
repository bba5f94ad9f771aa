// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "rocenante/rocenante.h"

namespace rocenante::bench {

struct LaunchPlan {
  int first_rank = 0;
  int ranks = 1;  // to start here
  int world = 1;  // all, here and elsewhere
  rcnUniqueId id{};
  bool bind = true;                    // each rank to a processor of its own, where there are enough
  unsigned grace_s = 30;               // how long ranks may live on after one of them failed
  std::vector<std::string> arguments;  // of every rank's process: the command and what follows it
};

// Starts this program once per rank, with "--launched RANK:FD:WORLD" added, and waits for all of them.
// Ranks end when this process does, however it does. Returns the exit code: kExitOk, kExitWrong or
// kExitUsage if that is the worst that ranks returned, kExitFailed if any failed otherwise. Throws RunError
// if ranks cannot be started. If this process is told to end by a signal, the ranks are too, and it then
// ends by that signal.
int launch(const LaunchPlan& plan);

// The id that the launcher left in the file descriptor named by --launched.
rcnUniqueId read_launched_id(int fd);

}  // namespace rocenante::bench
