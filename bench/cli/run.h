// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace rocenante::bench {

// What the user wrote after `run`.
struct RunArguments {
  std::string device;    // empty: as the environment says
  std::string fallback;  // the same
  std::string nccl;      // the real library
  bool quiet = false;
  std::vector<std::string> command;
};

// Becomes the command, with libnccl.so.2 of this project where it looks for NCCL. Returns only by throwing:
// UsageError without a command, RunError where the library is not beside this program or the command cannot
// be run.
[[noreturn]] void run_command(const RunArguments& arguments);

}  // namespace rocenante::bench
