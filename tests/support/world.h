// SPDX-License-Identifier: Apache-2.0
//
// Worlds of ranks for tests, through the public C API: as threads of this process or as forked processes.
#pragma once

#include <rocenante/rocenante.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace rocenante::test {

// A rank's communicator, destroyed at the end unless release() was called.
class Rank {
 public:
  Rank(rcnComm_t comm, int rank, int ranks) : comm_(comm), rank_(rank), ranks_(ranks) {}
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  rcnComm_t comm() const { return comm_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  rcnComm_t release();

 private:
  rcnComm_t comm_;
  int rank_;
  int ranks_;
};

// A text naming the call and the library's words unless `result` is rcnSuccess; "" if it is.
std::string failure(rcnResult_t result, const char* call);

// Runs `body` on `ranks` threads, each with its own communicator of one world. Returns the first text a
// body or its initialisation returned; "" when all returned "". `options` as rcnConfig_t::options.
std::string run_threads(int ranks, const std::string& options,
                        const std::function<std::string(Rank&)>& body);

// One forked process that runs one rank.
struct Process {
  pid_t pid = -1;
  int output = -1;  // what the body returned, readable once the process has ended
};

// How a process ended and what its body returned.
struct Ended {
  bool exited = false;  // false: killed by `signal`
  int code = 0;
  int signal = 0;
  std::string text;
};

// Starts `ranks` processes; each makes its communicator and runs `body`, then leaves: with code 0 if the
// body returned "", else 1. How it leaves is the body's: a body that releases its rank and calls _exit
// never returns. `prepare` runs in each process before it has called the library.
std::vector<Process> start_processes(int ranks, const std::string& options,
                                     const std::function<std::string(Rank&)>& body,
                                     const std::function<void()>& prepare = {});
// Waits for one; kills it when `limit` passes (signal 9, text "did not end").
Ended wait_for(Process& process, std::chrono::seconds limit);

}  // namespace rocenante::test
