// SPDX-License-Identifier: Apache-2.0
//
// Stars for tests: over the loopback interface only, each rank a thread or a process.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lib/comm/control.h"
#include "lib/comm/rendezvous.h"
#include "lib/comm/rendezvous_messages.h"
#include "lib/net/handshake.h"

namespace rocenante::test {

using net::Deadline;

// Far beyond what anything takes, sanitizers and a busy machine included: reached only by a hang.
inline Deadline patience() {
  return Deadline::after_s(60);
}

// Loopback, fast heartbeats; `more` wins.
inline Config star_config(const std::string& more = {}) {
  Result<Config> config = Config::load(
      "ROCENANTE_SOCKET_IFNAME=lo;ROCENANTE_HEARTBEAT_S=0.05;ROCENANTE_INIT_TIMEOUT_S=60;" + more);
  if (!config.ok()) throw std::runtime_error(config.status().text());
  return config.take();
}

// Remembers what it was told; waits for it.
class Recorder final : public ControlListener {
 public:
  void on_gone(std::uint32_t rank, std::string_view how) override {
    note([&] { gone_[rank] = how; });
  }
  void on_left(std::uint32_t rank) override {
    note([&] { left_.insert(rank); });
  }
  void on_abort(std::uint32_t from, std::uint64_t word, std::string_view text) override {
    note([&] {
      ++aborts_;
      abort_ = {from, word, std::string(text)};
    });
  }
  void on_control_lost(std::string_view how) override {
    note([&] { lost_ = how; });
  }

  struct Abort {
    std::uint32_t from = 0;
    std::uint64_t word = 0;
    std::string text;
  };
  bool wait_gone(std::uint32_t rank) {
    return wait([&] { return gone_.contains(rank); });
  }
  bool wait_left(std::uint32_t rank) {
    return wait([&] { return left_.contains(rank); });
  }
  bool wait_abort() {
    return wait([&] { return aborts_ != 0; });
  }
  bool wait_lost() {
    return wait([&] { return !lost_.empty(); });
  }
  std::map<std::uint32_t, std::string> gone() const { return locked(gone_); }
  std::set<std::uint32_t> left() const { return locked(left_); }
  Abort abort() const { return locked(abort_); }
  int aborts() const { return locked(aborts_); }
  std::string lost() const { return locked(lost_); }

 private:
  template <class Change>
  void note(Change change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), condition);
  }
  template <class T>
  T locked(const T& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint32_t, std::string> gone_;
  std::set<std::uint32_t> left_;
  int aborts_ = 0;
  Abort abort_;
  std::string lost_;
};

// Runs `body(rank)` in a thread each; returns when all have.
inline void as_threads(std::uint32_t nranks, const std::function<void(std::uint32_t)>& body) {
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < nranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

using Star = std::unique_ptr<ControlStar>;

// A whole star within this process; ranks whose join failed are null and have their status.
struct Stars {
  std::vector<Star> stars;
  std::vector<Status> statuses;
  bool all_ok() const {
    for (const Star& star : stars) {
      if (star == nullptr) return false;
    }
    return true;
  }
};
inline Stars join_all(const UniqueId& id, std::uint32_t nranks, const Config& config) {
  Stars result;
  result.stars.resize(nranks);
  result.statuses.resize(nranks);
  as_threads(nranks, [&](std::uint32_t rank) {
    Result<Star> star = ControlStar::join(id, rank, nranks, config, patience());
    result.statuses[rank] = star.status();
    if (star.ok()) result.stars[rank] = star.take();
  });
  return result;
}

// An address nobody listens at.
inline std::string free_address() {
  const auto listener = net::listen_at(net::parse_address("127.0.0.1:0").value().address);
  if (!listener.ok()) throw std::runtime_error(listener.status().text());
  return net::local_address(listener.value().get()).value().text();
}

// Joins without the rest of a rank: authenticated, but free to misbehave afterwards. Empty on failure.
inline net::SocketFd bare_join(const UniqueId& id, std::uint32_t rank, std::uint32_t nranks,
                               const Config& config) {
  const UniqueIdContents contents = decode_unique_id(id).take();
  net::SocketFd fd = net::connect_to(contents.rendezvous, patience()).take();
  if (!net::handshake_client(fd.get(), contents.secret, {kJoinPurpose, rank, ""}, patience()).ok())
    return {};
  JoinMessage message;
  message.version = build_version();
  message.rank = rank;
  message.nranks = nranks;
  message.agreed_settings = config.agreed_text();
  message.host = "bare";
  message.pid = 1;
  const std::string frame =
      net::encode_frame(static_cast<std::uint16_t>(RootMessage::kJoin), encode_join(message));
  if (!net::send_all(fd.get(), frame, patience(), "root").ok()) return {};
  return fd;
}

// A forked process that runs `body` and exits with its result, without the parent's destructors; killed
// and reaped at the latest when this is destroyed.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::_exit(body());
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  ~Child() {
    if (pid_ <= 0) return;
    kill(SIGKILL);
    wait();
  }
  void kill(int signal) { ::kill(pid_, signal); }
  pid_t pid() const { return pid_; }
  // The exit code, or minus the signal's number.
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

// Ends the rendezvous of earlier tests and waits for other threads to end, so that a child inherits nothing
// from them that a leak checker would find.
inline void be_alone() {
  stop_all_rendezvous();
  const Deadline deadline = patience();
  for (;;) {
    std::size_t threads = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
      ++threads;
    if (threads == 1 || deadline.passed()) return;
    std::this_thread::yield();
  }
}

// Between processes: who writes a byte, who waits for one.
class Pipe {
 public:
  Pipe() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    read_ = Fd(fds[0]);
    write_ = Fd(fds[1]);
  }
  void signal() { [[maybe_unused]] const auto written = ::write(write_.get(), "x", 1); }
  bool wait(int count = 1) {
    char byte = 0;
    for (int i = 0; i < count; ++i) {
      if (::read(read_.get(), &byte, 1) != 1) return false;
    }
    return true;
  }

 private:
  Fd read_;
  Fd write_;
};

inline Fd open_process(pid_t pid) {
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace rocenante::test
