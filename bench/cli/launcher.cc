// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/launcher.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "bench/cli/communicator.h"
#include "bench/cli/text.h"

namespace rocenante::bench {

namespace {

using Clock = std::chrono::steady_clock;

// How long ranks get to end on SIGTERM before SIGKILL.
constexpr std::chrono::seconds kEndTime{2};

struct Rank {
  int number;
  pid_t pid;
  bool running;
};

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&set, number);
  return set;
}

// The id goes to the ranks in memory that only inherited descriptors name: arguments and environment of a
// process can be read by others.
int id_in_memory(const rcnUniqueId& id) {
  const int fd = memfd_create("rocenante-id", MFD_CLOEXEC);
  if (fd < 0) throw RunError(text("memfd_create failed: %s", std::strerror(errno)));
  if (pwrite(fd, id.internal, sizeof(id.internal), 0) != static_cast<ssize_t>(sizeof(id.internal))) {
    const int error = errno;
    close(fd);
    throw RunError(text("writing the id failed: %s", std::strerror(error)));
  }
  return fd;
}

// The processor of a rank: those we may run on are dealt in turn. Where there are fewer than ranks, the
// kernel left alone may keep three ranks on one processor and one on the next for as long as a run lasts.
bool choose_processor(int rank, cpu_set_t* only) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return false;
  int turn = rank % CPU_COUNT(&usable);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable) || turn-- != 0) continue;
    CPU_ZERO(only);
    CPU_SET(cpu, only);
    return true;
  }
  return false;
}

class Launcher {
 public:
  explicit Launcher(const LaunchPlan& plan) : plan_(plan) {
    // An ignored SIGCHLD is inherited over exec and would hide the ranks' ends.
    std::signal(SIGCHLD, SIG_DFL);
    // The thread that serves the id takes no signals.
    watched_ = watched_signals();
    sigprocmask(SIG_BLOCK, &watched_, &before_);
  }

  ~Launcher() {
    for (const Rank& rank : ranks_) {
      if (rank.running) kill(rank.pid, SIGKILL);
    }
    for (const Rank& rank : ranks_) {
      if (rank.running) waitpid(rank.pid, nullptr, 0);
    }
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  int run() {
    const int fd = id_in_memory(plan_.id);
    for (int place = 0; place < plan_.ranks; ++place) start(place, fd);
    close(fd);
    while (alive() != 0) step();
    return exit_code_;
  }

  // The signal that ended the run, or 0.
  int ended_by() const { return ended_by_; }

 private:
  void start(int place, int fd) {
    const int rank = plan_.first_rank + place;
    std::vector<std::string> words = {"rocenante", plan_.arguments.front(), "--launched",
                                      text("%d:%d:%d", rank, fd, plan_.world)};
    words.insert(words.end(), plan_.arguments.begin() + 1, plan_.arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);

    const pid_t self = getpid();
    cpu_set_t only;
    const bool bound = plan_.bind && choose_processor(rank, &only);
    const pid_t pid = fork();
    if (pid < 0) throw RunError(text("cannot start rank %d: fork: %s", rank, std::strerror(errno)));
    if (pid == 0) {
      // Only async-signal-safe calls from here on: the id's thread may hold any lock.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != self) _exit(kExitFailed);
      fcntl(fd, F_SETFD, 0);
      // Two ranks that wait for each other on one processor would be timed by the scheduler, not by us.
      if (bound) sched_setaffinity(0, sizeof only, &only);
      sigprocmask(SIG_SETMASK, &before_, nullptr);
      execv("/proc/self/exe", argv.data());
      static constexpr char kMessage[] = "rocenante: cannot execute /proc/self/exe\n";
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
      _exit(kExitFailed);
    }
    ranks_.push_back(Rank{rank, pid, true});
  }

  std::size_t alive() const {
    return static_cast<std::size_t>(
        std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; }));
  }

  // Waits for one event and acts on it.
  void step() {
    const int number = wait_for_signal();
    if (number > 0 && number != SIGCHLD) {
      if (ended_by_ == 0) ended_by_ = number;
      end_ranks(SIGTERM);
      set_deadline(kEndTime);
    }
    for (Rank& rank : ranks_) {
      int status = 0;
      if (!rank.running || waitpid(rank.pid, &status, WNOHANG) != rank.pid) continue;
      rank.running = false;
      ended(rank, status);
    }
    if (deadline_set_ && Clock::now() >= deadline_ && alive() != 0) {
      if (ended_by_ == 0) say_killed();
      end_ranks(SIGKILL);
      deadline_ += std::chrono::hours(1);  // they cannot refuse
    }
  }

  int wait_for_signal() const {
    if (!deadline_set_) return sigwaitinfo(&watched_, nullptr);
    const auto left = std::max(Clock::duration::zero(), deadline_ - Clock::now());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    timespec timeout{};
    timeout.tv_sec = seconds.count();
    timeout.tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(left - seconds).count();
    return sigtimedwait(&watched_, nullptr, &timeout);
  }

  void ended(const Rank& rank, int status) {
    if (WIFEXITED(status)) {
      const int code = WEXITSTATUS(status);
      exit_code_ = std::max(exit_code_, std::min(code, kExitFailed));
      if (code == kExitOk) return;
      if (code >= kExitFailed && ended_by_ == 0) {
        std::fprintf(stderr, "rocenante: rank %d (process %d) failed with exit code %d\n", rank.number,
                     static_cast<int>(rank.pid), code);
      }
    } else {
      const int number = WTERMSIG(status);
      exit_code_ = kExitFailed;
      if (rank.number == 0 && number == SIGPIPE && ended_by_ == 0) {
        // Whoever read the table has seen enough; that is nobody's failure.
        ended_by_ = SIGPIPE;
        end_ranks(SIGKILL);
      } else if (ended_by_ == 0 && !killed_) {
        std::fprintf(stderr, "rocenante: rank %d (process %d) was killed by signal %d (%s)\n", rank.number,
                     static_cast<int>(rank.pid), number, strsignal(number));
      }
    }
    if (!deadline_set_) set_deadline(std::chrono::seconds(plan_.grace_s));
  }

  void say_killed() {
    killed_ = true;
    std::vector<std::string> numbers;
    for (const Rank& rank : ranks_) {
      if (rank.running) numbers.push_back(text("%d", rank.number));
    }
    std::fprintf(stderr, "rocenante: killing rank%s %s, still running %u s after the first failure\n",
                 numbers.size() == 1 ? "" : "s", join(numbers, ", ").c_str(), plan_.grace_s);
  }

  void end_ranks(int number) const {
    for (const Rank& rank : ranks_) {
      if (rank.running) kill(rank.pid, number);
    }
  }

  void set_deadline(Clock::duration from_now) {
    deadline_ = Clock::now() + from_now;
    deadline_set_ = true;
  }

  const LaunchPlan& plan_;
  sigset_t watched_{};
  sigset_t before_{};
  std::vector<Rank> ranks_;
  Clock::time_point deadline_;
  bool deadline_set_ = false;
  bool killed_ = false;
  int ended_by_ = 0;
  int exit_code_ = kExitOk;
};

}  // namespace

int launch(const LaunchPlan& plan) {
  int ended_by = 0;
  int exit_code = kExitOk;
  {
    Launcher launcher(plan);
    exit_code = launcher.run();
    ended_by = launcher.ended_by();
  }
  if (ended_by != 0) {
    std::signal(ended_by, SIG_DFL);
    std::raise(ended_by);
  }
  return exit_code;
}

rcnUniqueId read_launched_id(int fd) {
  rcnUniqueId id;
  const ssize_t length = pread(fd, id.internal, sizeof(id.internal), 0);
  close(fd);
  if (length != static_cast<ssize_t>(sizeof(id.internal))) {
    throw UsageError(
        text("--launched: descriptor %d holds no id; the option is for internal use only", fd));
  }
  return id;
}

}  // namespace rocenante::bench
