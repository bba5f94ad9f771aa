// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "bench/cli/communicator.h"
#include "bench/cli/launcher.h"
#include "bench/cli/options.h"
#include "bench/cli/perf.h"
#include "bench/cli/text.h"

namespace rocenante::bench {
namespace {

int run_info(bool config) {
  const char* const topic = config ? "config" : "info";
  std::size_t length = 0;
  check_call(rcnDescribe(topic, nullptr, 0, &length), "rcnDescribe");
  std::string out(length + 1, '\0');
  check_call(rcnDescribe(topic, out.data(), out.size(), &length), "rcnDescribe");
  out.resize(std::min(length, out.size() - 1));
  std::fwrite(out.data(), 1, out.size(), stdout);
  if (out.empty() || out.back() != '\n') std::fputc('\n', stdout);
  if (std::fflush(stdout) != 0) throw RunError("standard output cannot be written");
  return kExitOk;
}

int run_perf(const PerfArguments& arguments, int argc, char** argv) {
  const PerfOptions options = check_perf_arguments(arguments);
  if (options.launched) {
    // The launcher executes /proc/self/exe, which would be the process's name in ps and top.
    prctl(PR_SET_NAME, "rocenante");
    return run_rank(options, read_launched_id(options.launched->id_fd), options.launched->rank);
  }
  if (options.rendezvous) {
    const int rank = options.rendezvous->rank;
    rcnUniqueId id;
    check_call(rcnGetUniqueIdAt(&id, options.rendezvous->address.c_str(), rank == 0 ? 1 : 0),
               "--rendezvous");
    return run_rank(options, id, rank);
  }
  return launch(LaunchPlan{options.ranks, options.bind, options.grace_s,
                           std::vector<std::string>(argv + 1, argv + argc)});
}

// Ranks say who they are: their messages come out of one terminal.
std::string speaker(const PerfArguments& arguments) {
  if (!arguments.launched.empty()) return "rank " + split(arguments.launched, ':').front() + ": ";
  if (!arguments.rank.empty()) return "rank " + arguments.rank + ": ";
  return "";
}

// Opens what the caller closed, so that no file of ours gets its number; the wrong way round, so that using
// it is an error.
bool have_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return false;
  }
  return true;
}

int run(int argc, char** argv) {
  Command command;
  try {
    command = parse_command_line(argc, argv);
    switch (command.kind) {
      case Command::Kind::kPerf:
        return run_perf(command.perf, argc, argv);
      case Command::Kind::kInfo:
        return run_info(command.info_config);
      case Command::Kind::kNone:
        break;
    }
    return kExitOk;
  } catch (const UsageError& error) {
    // All launched ranks find the same fault; one of them says so.
    const std::string& launched = command.perf.launched;
    if (launched.empty() || launched.starts_with("0:"))
      std::fprintf(stderr, "rocenante: %s\n", error.what());
    return kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rocenante: %s%s\n", speaker(command.perf).c_str(), error.what());
    return kExitFailed;
  }
}

}  // namespace
}  // namespace rocenante::bench

int main(int argc, char** argv) {
  if (!rocenante::bench::have_standard_descriptors()) return rocenante::bench::kExitFailed;
  return rocenante::bench::run(argc, argv);
}
