// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace rocenante::bench {

// What another tool (mpirun, mpiexec, srun, torchrun) says of the job whose processes it started.
struct Job {
  int index = 0;  // of this process
  int processes = 1;
  std::string tool;              // its name, for messages
  std::string said;              // "RANK '1', WORLD_SIZE '2'", for messages
  std::optional<bool> one_host;  // are all processes on this host? Not every tool says
  std::string name;              // the same in all of its processes on this host, and in no other job's
  std::string address;           // torchrun only: HOST:PORT where ranks can meet
};

// The value of an environment variable; nullptr if there is none.
using GetVariable = std::function<const char*(const char*)>;

// The job this process is in, if another tool started it. docs/multi-node.md has the rules. Throws
// UsageError naming variable and value where variables are missing, senseless or contradict each other.
std::optional<Job> find_job(const GetVariable& variable);

}  // namespace rocenante::bench
