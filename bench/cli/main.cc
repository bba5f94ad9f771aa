// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "bench/cli/communicator.h"
#include "bench/cli/launcher.h"
#include "bench/cli/meeting.h"
#include "bench/cli/options.h"
#include "bench/cli/perf.h"
#include "bench/cli/run.h"
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

// How long processes of a job wait for each other, as ranks do; the library judges the setting.
std::chrono::nanoseconds meeting_timeout() {
  constexpr double kDefaultS = 120;
  const char* const setting = std::getenv("ROCENANTE_INIT_TIMEOUT_S");
  const double seconds = setting == nullptr ? 0 : std::strtod(setting, nullptr);
  const std::chrono::duration<double> timeout(seconds > 0 && seconds < 1e8 ? seconds : kDefaultS);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(timeout);
}

// The id that all ranks of this run have, here and elsewhere.
rcnUniqueId make_id(const PerfOptions& options) {
  const bool is_first = options.first_rank == 0;
  rcnUniqueId id;
  if (!options.rendezvous.empty()) {
    check_call(rcnGetUniqueIdAt(&id, options.rendezvous.c_str(), is_first ? 1 : 0),
               ("cannot meet at " + options.rendezvous).c_str());
  } else if (options.job && options.job->processes > 1) {
    const Job& job = *options.job;
    id = meet(MeetingPlan{job.name, job.index, job.processes, options.ranks_here, meeting_timeout()});
  } else {
    check_call(rcnGetUniqueId(&id), "cannot start the ranks' rendezvous");
  }
  return id;
}

// Processes of one terminal say who they are; `speaker` becomes how.
int run_perf(const PerfArguments& arguments, int argc, char** argv, std::string* speaker) {
  const PerfOptions options =
      check_perf_arguments(arguments, [](const char* name) { return std::getenv(name); });
  const bool starts_all = !options.launched && !options.job && options.rendezvous.empty();
  if (!starts_all) *speaker = text("rank %d: ", options.first_rank);
  if (options.launched) {
    // The launcher executes /proc/self/exe, which would be the process's name in ps and top.
    prctl(PR_SET_NAME, "rocenante");
    return run_rank(options, read_launched_id(options.launched->id_fd), options.first_rank);
  }
  const rcnUniqueId id = make_id(options);
  if (!starts_all && options.ranks_here == 1) return run_rank(options, id, options.first_rank);
  LaunchPlan plan;
  plan.first_rank = options.first_rank;
  plan.ranks = options.ranks_here;
  plan.world = options.ranks;
  plan.id = id;
  // Another tool's processes on this host would choose the same processors; binding is that tool's.
  plan.bind = options.bind && starts_all;
  plan.grace_s = options.grace_s;
  plan.arguments.assign(argv + 1, argv + argc);
  return launch(plan);
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
  std::string speaker;
  try {
    command = parse_command_line(argc, argv);
    switch (command.kind) {
      case Command::Kind::kPerf:
        return run_perf(command.perf, argc, argv, &speaker);
      case Command::Kind::kInfo:
        return run_info(command.info_config);
      case Command::Kind::kRun:
        run_command(command.run);
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
    std::fprintf(stderr, "rocenante: %s%s\n", speaker.c_str(), error.what());
    return kExitFailed;
  }
}

}  // namespace
}  // namespace rocenante::bench

int main(int argc, char** argv) {
  if (!rocenante::bench::have_standard_descriptors()) return rocenante::bench::kExitFailed;
  return rocenante::bench::run(argc, argv);
}
