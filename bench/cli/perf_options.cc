// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "bench/cli/options.h"
#include "bench/cli/text.h"

namespace rocenante::bench {

namespace {

constexpr std::uint64_t kMaxIterations = 1'000'000'000'000;
constexpr std::uint64_t kMaxChecks = 1'000'000;
constexpr std::uint64_t kMaxGraceS = 3600;

[[noreturn]] void refuse(const char* argument, const std::string& value, const std::string& allowed) {
  throw UsageError(text("%s '%s': %s", argument, value.c_str(), allowed.c_str()));
}

// The infos named in a comma-separated list, in its order, each once.
template <typename Info, typename Find, typename All>
std::vector<const Info*> parse_list(const char* argument, const std::string& value, Find find, All all) {
  std::vector<const Info*> chosen;
  const auto choose = [&chosen](const Info* info) {
    for (const Info* known : chosen) {
      if (known == info) return;
    }
    chosen.push_back(info);
  };
  for (const std::string& name : split(value, ',')) {
    if (name == "all") {
      for (const Info& info : all()) choose(&info);
    } else if (const Info* const info = find(name)) {
      choose(info);
    } else {
      std::vector<std::string> names;
      for (const Info& known : all()) names.emplace_back(known.name);
      refuse(argument, name, "must be a comma-separated list of: " + join(names, ", ") + ", all");
    }
  }
  return chosen;
}

// Opens `path` for writing as the run will do, but leaves a file that exists as it is.
void check_writable(const char* argument, const std::string& path) {
  // Opening a pipe and closing it again would be its reader's end.
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode)) return;
  const int existing = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (existing >= 0) {
    close(existing);
    return;
  }
  const int created =
      errno == ENOENT ? open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
  if (created < 0) {
    refuse(argument, path, text("must be a file that can be written: %s", std::strerror(errno)));
  }
  close(created);
  unlink(path.c_str());
}

int as_rank(const char* argument, const std::string& value, int world) {
  return static_cast<int>(parse_number(argument, value, 0, static_cast<std::uint64_t>(world) - 1));
}

void check_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) {
    refuse("--rendezvous", address, "must be HOST:PORT or [IPV6]:PORT");
  }
}

void check_launched(const PerfArguments& arguments, PerfOptions& options) {
  const std::vector<std::string> parts = split(arguments.launched, ':');
  if (parts.size() != 3) refuse("--launched", arguments.launched, "is for internal use only");
  options.ranks = static_cast<int>(parse_number("--launched", parts[2], 1, kMaxRanks));
  options.first_rank = as_rank("--launched", parts[0], options.ranks);
  options.launched =
      PerfOptions::Launched{static_cast<int>(parse_number("--launched", parts[1], 0, 1 << 20))};
}

// One rank of a world that somebody starts by hand.
void check_by_hand(const PerfArguments& arguments, PerfOptions& options) {
  if (!arguments.ranks.empty()) {
    refuse("--ranks", arguments.ranks, "not allowed together with --rank, --world and --rendezvous");
  }
  if (arguments.world.empty()) refuse("--world", "", "must be given together with --rank and --rendezvous");
  if (arguments.rank.empty()) refuse("--rank", "", "must be given together with --world and --rendezvous");
  if (arguments.rendezvous.empty()) {
    refuse("--rendezvous", "", "must be given together with --rank and --world, as HOST:PORT");
  }
  options.ranks = static_cast<int>(parse_number("--world", arguments.world, 1, kMaxRanks));
  options.first_rank = as_rank("--rank", arguments.rank, options.ranks);
}

// One process of a job that another tool started, with one rank or several.
void check_job(const PerfArguments& arguments, const Job& job, PerfOptions& options) {
  const std::string ranks = arguments.ranks.empty() ? "1" : arguments.ranks;
  const auto most = static_cast<std::uint64_t>(kMaxRanks / job.processes);
  options.ranks_here = static_cast<int>(parse_number("--ranks", ranks, 1, most));
  options.ranks = options.ranks_here * job.processes;
  options.first_rank = options.ranks_here * job.index;
  options.job = job;
  if (options.rendezvous.empty()) options.rendezvous = job.address;
  if (options.rendezvous.empty() && !job.one_host.value_or(true)) {
    throw UsageError(
        text("%s started processes on several hosts (%s): give --rendezvous HOST:PORT, an address of "
             "the first process's host, and the same ROCENANTE_SECRET to all",
             job.tool.c_str(), job.said.c_str()));
  }
}

void check_start(const PerfArguments& arguments, const GetVariable& variable, PerfOptions& options) {
  if (arguments.launcher != "auto" && arguments.launcher != "none") {
    refuse("--launcher", arguments.launcher, "must be auto or none");
  }
  if (!arguments.launched.empty()) return check_launched(arguments, options);
  options.rendezvous = arguments.rendezvous;
  if (!arguments.rendezvous.empty()) check_address(arguments.rendezvous);
  const bool by_hand = !arguments.rank.empty() || !arguments.world.empty();
  std::optional<Job> job;
  if (!by_hand && arguments.launcher == "auto") job = find_job(variable);
  if (job) return check_job(arguments, *job, options);
  if (by_hand || !arguments.rendezvous.empty()) return check_by_hand(arguments, options);
  const std::string ranks = arguments.ranks.empty() ? "2" : arguments.ranks;
  options.ranks = static_cast<int>(parse_number("--ranks", ranks, 1, kMaxRanks));
  options.ranks_here = options.ranks;
}

}  // namespace

PerfOptions check_perf_arguments(const PerfArguments& arguments, const GetVariable& variable) {
  PerfOptions options;
  options.collective = find_collective(arguments.collective);
  if (options.collective == nullptr) {
    std::vector<std::string> known;
    for (const CollectiveInfo& info : all_collectives()) known.emplace_back(info.name);
    refuse("COLLECTIVE", arguments.collective, "must be one of: " + join(known, ", "));
  }
  if (const char* const device = variable("ROCENANTE_DEVICE");
      device != nullptr && std::string_view(device) == "cuda") {
    refuse("ROCENANTE_DEVICE", device,
           "must be auto or host: the buffers measured here are in host memory");
  }
  options.min_bytes = parse_size("--minbytes", arguments.min_bytes);
  options.max_bytes = parse_size("--maxbytes", arguments.max_bytes);
  if (options.min_bytes > options.max_bytes) {
    refuse("--minbytes", arguments.min_bytes,
           "must not be larger than --maxbytes '" + arguments.max_bytes + "'");
  }
  options.step_factor = parse_number("--stepfactor", arguments.step_factor, 2, 1 << 20);
  options.step_bytes = parse_size("--stepbytes", arguments.step_bytes);
  if (options.step_bytes != 0 && arguments.step_factor_given) {
    refuse("--stepbytes", arguments.step_bytes, "must be 0 or absent together with --stepfactor");
  }
  options.iters = parse_number("--iters", arguments.iters, 1, kMaxIterations);
  options.warmup_iters = parse_number("--warmup_iters", arguments.warmup_iters, 0, kMaxIterations);
  options.checks = parse_number("--check", arguments.check, 0, kMaxChecks);
  options.types = parse_list<TypeInfo>("--datatype", arguments.type, find_type, all_types);
  options.ops = parse_list<OpInfo>("--op", arguments.op, find_op, all_ops);
  if (!options.collective->reduces) {
    if (arguments.op != PerfArguments{}.op)
      refuse("--op", arguments.op, text("must be absent: %s reduces nothing", options.collective->name));
    options.ops = {&no_op()};
  }
  options.fresh = arguments.fresh;
  if (arguments.bind != "core" && arguments.bind != "none") {
    refuse("--bind", arguments.bind, "must be core or none");
  }
  options.bind = arguments.bind == "core";
  options.grace_s = static_cast<unsigned>(parse_number("--grace", arguments.grace, 0, kMaxGraceS));
  check_start(arguments, variable, options);
  options.root = as_rank("--root", arguments.root, options.ranks);
  if (!options.collective->has_root && options.root != 0)
    refuse("--root", arguments.root, text("must be absent: %s has no root", options.collective->name));

  // The name itself is the library's to judge; what could end this setting and begin another is not.
  if (arguments.transport.find_first_of("=;\n \t") != std::string::npos) {
    refuse("--transport", arguments.transport, "must be one word, a value of ROCENANTE_TRANSPORT");
  }
  options.transport = arguments.transport;
  options.json = arguments.json;
  options.plot = arguments.plot;
  if (!options.plot.empty() && options.plot == options.json) {
    refuse("--plot", options.plot, "must be another file than --json");
  }
  // A launched rank would find what its launcher has found already.
  if (options.first_rank == 0 && !options.launched) {
    if (!options.json.empty() && options.json != "-") check_writable("--json", options.json);
    if (!options.plot.empty()) check_writable("--plot", options.plot);
  }
  return options;
}

std::optional<std::uint64_t> next_size(const PerfOptions& options, std::uint64_t bytes) {
  // Sizes are at most kMaxSize and factors at most 2^20: nothing overflows.
  const std::uint64_t next = options.step_bytes != 0 ? bytes + options.step_bytes
                             : bytes == 0            ? 1
                                                     : bytes * options.step_factor;
  if (next > options.max_bytes) return std::nullopt;
  return next;
}

}  // namespace rocenante::bench
