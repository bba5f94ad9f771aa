// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/cli/collectives.h"
#include "bench/cli/environment.h"
#include "bench/cli/run.h"
#include "bench/cli/types.h"

namespace rocenante::bench {

inline constexpr int kMaxRanks = 1024;

// What the user wrote after `perf`, as text: unset options hold their default.
struct PerfArguments {
  std::string collective;
  std::string min_bytes = "8";
  std::string max_bytes = "64M";
  std::string step_factor = "2";
  std::string step_bytes = "0";
  std::string iters = "20";
  std::string warmup_iters = "5";
  std::string check = "1";
  std::string type = "float";
  std::string op = "sum";
  std::string root = "0";
  std::string ranks;
  std::string transport;
  bool fresh = false;
  std::string json;
  std::string plot;
  std::string grace = "30";
  std::string bind = "core";
  std::string rank;
  std::string world;
  std::string rendezvous;
  std::string launcher = "auto";
  std::string launched;  // internal: "RANK:FD:WORLD" tells a process that this program started who it is
  bool step_factor_given = false;
};

// The same, checked.
struct PerfOptions {
  const CollectiveInfo* collective = &all_collectives().front();
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = 0;
  std::uint64_t step_factor = 2;
  std::uint64_t step_bytes = 0;  // 0: multiply by step_factor
  std::uint64_t iters = 0;
  std::uint64_t warmup_iters = 0;
  std::uint64_t checks = 0;  // checked calls per measurement
  std::vector<const TypeInfo*> types;
  std::vector<const OpInfo*> ops;
  int root = 0;
  int ranks = 1;       // of the whole world
  int first_rank = 0;  // the first that this process starts or is
  int ranks_here = 1;
  std::string transport;  // empty: the library's choice
  bool fresh = false;
  std::string json;  // empty: none, "-": standard output
  std::string plot;
  bool bind = true;
  unsigned grace_s = 30;

  // How the ranks learn of each other. `launched`: this process is a rank, and the descriptor holds the id.
  // Otherwise this process is one of those that other tools started, and they meet at the address or, as
  // processes of `job` on this host, without one; or, with neither, it starts all ranks.
  struct Launched {
    int id_fd;
  };
  std::optional<Launched> launched;
  std::string rendezvous;  // HOST:PORT, or empty
  std::optional<Job> job;
};

// Throws UsageError naming the argument or environment variable, its value and what is allowed. Opens the
// report files for writing, so that a run is not done for nothing.
PerfOptions check_perf_arguments(const PerfArguments& arguments, const GetVariable& variable);

// The size after `bytes` in the sweep; none after the last.
std::optional<std::uint64_t> next_size(const PerfOptions& options, std::uint64_t bytes);

struct Command {
  enum class Kind { kNone, kPerf, kInfo, kRun };
  Kind kind = Kind::kNone;  // kNone: help or version was printed
  PerfArguments perf;
  bool info_config = false;
  RunArguments run;
};

// Reads the command line. Throws UsageError. Prints help and version itself.
Command parse_command_line(int argc, char** argv);

}  // namespace rocenante::bench
