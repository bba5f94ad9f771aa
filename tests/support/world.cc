// SPDX-License-Identifier: Apache-2.0
#include "tests/support/world.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <thread>

namespace rocenante::test {
namespace {

// All traffic of tests stays on loopback.
std::string with_defaults(const std::string& options) {
  return "ROCENANTE_SOCKET_IFNAME==lo;" + options;
}

std::string run_rank(int ranks, int rank, const rcnUniqueId& id, const std::string& options,
                     const std::function<std::string(Rank&)>& body) {
  const std::string text = with_defaults(options);
  rcnConfig_t config = RCN_CONFIG_INITIALIZER;
  config.options = text.c_str();
  rcnComm_t comm = nullptr;
  if (std::string error =
          failure(rcnCommInitRankConfig(&comm, ranks, id, rank, &config), "rcnCommInitRankConfig");
      !error.empty()) {
    return error;
  }
  Rank self(comm, rank, ranks);
  return body(self);
}

std::string make_id(rcnUniqueId* id) {
  ::setenv("ROCENANTE_SOCKET_IFNAME", "=lo", 1);
  return failure(rcnGetUniqueId(id), "rcnGetUniqueId");
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t bytes = ::read(fd, buffer.data(), buffer.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(bytes));
  }
}

}  // namespace

Rank::~Rank() {
  if (comm_ != nullptr) (void)rcnCommDestroy(comm_);
}

rcnComm_t Rank::release() {
  rcnComm_t const comm = comm_;
  comm_ = nullptr;
  return comm;
}

std::string failure(rcnResult_t result, const char* call) {
  if (result == rcnSuccess) return "";
  return std::string(call) + ": " + rcnGetErrorString(result) + ": " + rcnGetLastError(nullptr);
}

std::string run_threads(int ranks, const std::string& options,
                        const std::function<std::string(Rank&)>& body) {
  rcnUniqueId id;
  if (std::string error = make_id(&id); !error.empty()) return error;
  std::vector<std::string> results(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back(
        [&, rank] { results[static_cast<std::size_t>(rank)] = run_rank(ranks, rank, id, options, body); });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string& text = results[static_cast<std::size_t>(rank)];
    if (!text.empty()) return "rank " + std::to_string(rank) + ": " + text;
  }
  return "";
}

namespace {

// Where rank 0 leaves the id for the others. The parent must not make it: that starts a thread, and
// sanitizers' locks do not survive a fork while another thread holds them.
struct SharedId {
  enum State : int { kNone, kMade, kFailed };
  std::atomic<int> state{kNone};
  rcnUniqueId id;
};

std::string share_id(SharedId& shared, int rank, rcnUniqueId* id) {
  if (rank == 0) {
    const std::string error = make_id(&shared.id);
    *id = shared.id;
    shared.state = error.empty() ? SharedId::kMade : SharedId::kFailed;
    return error;
  }
  while (shared.state == SharedId::kNone) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  *id = shared.id;
  return shared.state == SharedId::kMade ? "" : "rank 0 could not make an id";
}

}  // namespace

std::vector<Process> start_processes(int ranks, const std::string& options,
                                     const std::function<std::string(Rank&)>& body,
                                     const std::function<void()>& prepare) {
  std::vector<Process> processes(static_cast<std::size_t>(ranks));
  void* const page =
      ::mmap(nullptr, sizeof(SharedId), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return processes;
  SharedId& shared = *new (page) SharedId;
  for (int rank = 0; rank < ranks; ++rank) {
    Process& process = processes[static_cast<std::size_t>(rank)];
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) continue;
    process.output = ends[0];
    process.pid = ::fork();
    if (process.pid != 0) {
      ::close(ends[1]);
      continue;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (prepare) prepare();
    rcnUniqueId id;
    std::string text = share_id(shared, rank, &id);
    if (text.empty()) text = run_rank(ranks, rank, id, options, body);
    [[maybe_unused]] const auto written = ::write(ends[1], text.data(), text.size());
    ::_exit(text.empty() ? 0 : 1);
  }
  ::munmap(page, sizeof(SharedId));
  return processes;
}

Ended wait_for(Process& process, std::chrono::seconds limit) {
  Ended ended;
  if (process.pid <= 0) {
    ended.text = "was never started";
    return ended;
  }
  // A pidfd is readable once the process has ended: no polling, no fixed sleep.
  const int handle = static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0u));
  pollfd wait{handle, POLLIN, 0};
  const int ready = ::poll(&wait, 1, static_cast<int>(std::chrono::milliseconds(limit).count()));
  ::close(handle);
  if (ready <= 0) ::kill(process.pid, SIGKILL);
  int status = 0;
  while (::waitpid(process.pid, &status, 0) < 0 && errno == EINTR) {
  }
  ended.text = ready <= 0 ? "did not end" : read_all(process.output);
  ::close(process.output);
  process = Process{};
  ended.exited = WIFEXITED(status);
  ended.code = ended.exited ? WEXITSTATUS(status) : 0;
  ended.signal = ended.exited ? 0 : WTERMSIG(status);
  return ended;
}

}  // namespace rocenante::test
