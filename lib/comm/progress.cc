// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/progress.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/log.h"
#include "lib/comm/host_env.h"
#include "lib/net/fork.h"
#include "lib/net/keep_forever.h"
#include "lib/net/thread.h"
#include "lib/protocol/sleep.h"

namespace rocenante {
namespace {

constexpr std::uint32_t kLooksPerClock = 64;  // protocol rule 9

}  // namespace

// Shared by the table, until the thread is joined, and by the places on it. What is not atomic and not the
// thread's own is under the table's lock.
class ProgressThread {
 public:
  struct Entry {
    ProgressWork* work;
    std::uint64_t spin_ns;
    std::uint64_t nap_ns;
    bool crowded;
  };

  Status start(const fabric::Processors& processors);
  void run();
  // A CPU has something for the thread: a word that it looks at before it sleeps, then the flag.
  void wake();
  // The list has changed. Under the lock; the thread sees it at its next look.
  std::uint64_t note_change() {
    const std::uint64_t version = version_.load(std::memory_order_relaxed) + 1;
    version_.store(version, std::memory_order_release);
    return version;
  }

  std::thread thread;
  std::vector<Entry> works;
  std::condition_variable changed;
  std::uint64_t seen = 0;  // the last version that the thread works by
  bool must_stop = false;
  bool has_ended = false;  // the thread takes the lock no more

 private:
  bool take_list();
  bool look_at_all();
  void look_at(ProgressWork* work, bool* any);
  void drop(ProgressWork* work, Status status);
  void spin();
  void nap();

  HostEnv env_;
  std::atomic<std::uint64_t> version_{0};
  // The thread's own.
  std::vector<Entry> list_;
  std::uint64_t version_seen_ = 0;
  std::uint64_t spin_ns_ = 0;
  std::uint64_t nap_ns_ = 0;
  bool crowded_ = false;
  bool awake_ = true;
  std::uint64_t last_ns_ = 0;  // of the last operation, as far as the clock was read
  // In a line that changes only when the thread sleeps or has long had nothing to do, so that wake() costs
  // its caller no more than a fence.
  protocol::WakeLine line_{};
  std::uint32_t called_ = 0;
};

namespace {

// Static storage without destructors: works may outlive the unloading of this file's other objects.
struct Table {
  std::mutex mutex;
  std::map<const void*, std::shared_ptr<ProgressThread>>* threads = nullptr;  // null while there are none
  bool is_closed = false;
};
constinit Table table;

thread_local ProgressThread* own_thread = nullptr;

const net::ForkHooks kForkHooks = {
    [] { table.mutex.lock(); },
    [] { table.mutex.unlock(); },
    [] {
      // The threads are not here, and what they worked on may be half-changed: left alone for ever.
      net::keep_forever(std::exchange(table.threads, nullptr));
      own_thread = nullptr;
      table.mutex.unlock();
    },
};

// Threads that have ended, out of the table; joined when it goes out of scope, which is without the lock.
class Ended {
 public:
  Ended() = default;
  Ended(const Ended&) = delete;
  Ended& operator=(const Ended&) = delete;
  ~Ended() {
    for (const auto& thread : threads_) thread->thread.join();
  }

  // Under the lock.
  void take() {
    if (table.threads == nullptr) return;
    for (auto at = table.threads->begin(); at != table.threads->end();) {
      if (!at->second->has_ended) {
        ++at;
        continue;
      }
      threads_.push_back(at->second);
      at = table.threads->erase(at);
    }
    if (table.threads->empty()) delete std::exchange(table.threads, nullptr);
  }

 private:
  std::vector<std::shared_ptr<ProgressThread>> threads_;
};

struct StopAtUnload {
  StopAtUnload() { net::add_fork_hooks(&kForkHooks); }
  ~StopAtUnload() {
    std::vector<std::shared_ptr<ProgressThread>> running;
    {
      const std::lock_guard lock(table.mutex);
      table.is_closed = true;
      if (table.threads == nullptr) return;
      for (auto& [device, thread] : *table.threads) {
        thread->must_stop = true;
        thread->note_change();
        // exit() may have been called in a look: that thread cannot wait for itself.
        if (thread.get() != own_thread) running.push_back(thread);
      }
    }
    for (const auto& thread : running) {
      thread->wake();
      thread->thread.join();
    }
    if (own_thread == nullptr) delete std::exchange(table.threads, nullptr);
  }
};
const StopAtUnload stop_at_unload;

// The thread of a device, with one work more; started if there is none. Under the lock.
Result<std::shared_ptr<ProgressThread>> enlist(const void* device, const ProgressThread::Entry& entry,
                                               const fabric::Processors& processors) {
  if (table.is_closed) return make_error(Code::kInvalidUsage, "the library is being unloaded");
  if (table.threads == nullptr) table.threads = new std::map<const void*, std::shared_ptr<ProgressThread>>;
  std::shared_ptr<ProgressThread>& thread = (*table.threads)[device];
  if (thread != nullptr) {
    thread->works.push_back(entry);
    thread->note_change();
    return thread;
  }
  Status status = caught([&]() -> Status {
    thread = std::make_shared<ProgressThread>();
    thread->works.push_back(entry);
    return thread->start(processors);
  });
  if (status.ok()) return thread;
  table.threads->erase(device);
  if (table.threads->empty()) delete std::exchange(table.threads, nullptr);
  return status;
}

}  // namespace

// Under the lock.
Status ProgressThread::start(const fabric::Processors& processors) {
  RCN_ASSIGN(thread, net::start_quiet_thread("rcn-progress", [this] { run(); }));
  if (processors.empty()) return {};
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const std::uint32_t number : processors) CPU_SET(number, &set);
  const int error = ::pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
  // They were allowed a moment ago. A thread elsewhere is slower and no error.
  if (error != 0) log_warn(-1, "{}", system_error(error, "processors of the progress thread").text());
  return {};
}

void ProgressThread::wake() {
  if (env_.load_relaxed(&called_) == 0) env_.store_release(&called_, std::uint32_t{1});
  env_.fence();
  protocol::notify_if_sleeping(env_, &line_);
}

void ProgressThread::run() {
  own_thread = this;
  // Else the kernel may add as much to a nap as the nap is long.
  ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  last_ns_ = monotonic_ns();
  while (take_list()) {
    while (version_.load(std::memory_order_acquire) == version_seen_) awake_ ? spin() : nap();
  }
}

// False to end.
bool ProgressThread::take_list() {
  const std::lock_guard lock(table.mutex);
  list_ = works;
  seen = version_seen_ = version_.load(std::memory_order_relaxed);
  spin_ns_ = 0;
  nap_ns_ = list_.empty() ? 0 : list_.front().nap_ns;
  crowded_ = false;
  for (const Entry& entry : list_) {
    nap_ns_ = std::min(nap_ns_, entry.nap_ns);
    spin_ns_ = std::max(spin_ns_, entry.spin_ns);
    crowded_ = crowded_ || entry.crowded;
  }
  has_ended = must_stop || list_.empty();
  changed.notify_all();
  return !has_ended;
}

bool ProgressThread::look_at_all() {
  bool any = false;
  for (const Entry& entry : list_) {
    look_at(entry.work, &any);
    // Whoever leaves from within a look is not waited for: what follows in the list may be gone.
    if (version_.load(std::memory_order_relaxed) != version_seen_) break;
  }
  return any;
}

void ProgressThread::look_at(ProgressWork* work, bool* any) {
  Status status = caught([&]() -> Status {
    if (work->look()) *any = true;
    return {};
  });
  if (!status.ok()) [[unlikely]]
    drop(work, std::move(status));
}

void ProgressThread::drop(ProgressWork* work, Status status) {
  {
    const std::lock_guard lock(table.mutex);
    if (std::erase_if(works, [&](const Entry& entry) { return entry.work == work; }) == 0) return;
    note_change();
  }
  // Whoever makes the work leave now waits until the list is taken anew, so it is still there.
  work->on_exception(std::move(status));
}

void ProgressThread::spin() {
  bool any = false;
  for (std::uint32_t look = 0; look < kLooksPerClock; ++look) {
    if (look_at_all()) {
      any = true;
    } else {
      cpu_pause();
    }
    if (version_.load(std::memory_order_relaxed) != version_seen_) break;
  }
  const std::uint64_t now = monotonic_ns();
  if (any) {
    last_ns_ = now;
  } else if (now - last_ns_ >= spin_ns_) {
    // What was called since counts from now on. So after wake() it spins for the time set, and twice that
    // at most.
    awake_ = env_.load_acquire(&called_) != 0;
    if (!awake_) return;
    env_.store_relaxed(&called_, std::uint32_t{0});
    last_ns_ = now;
  }
  if (crowded_) ::sched_yield();
}

void ProgressThread::nap() {
  protocol::sleep_unless(env_, &line_, nap_ns_, [&] {
    awake_ = look_at_all() || env_.load_acquire(&called_) != 0;
    return awake_ || version_.load(std::memory_order_acquire) != version_seen_;
  });
  if (!awake_) return;
  env_.store_relaxed(&called_, std::uint32_t{0});
  last_ns_ = monotonic_ns();
}

Result<ProgressPlace> Progress::add(const void* device, ProgressWork* work,
                                    const ProgressSettings& settings) {
  Ended ended;
  std::unique_lock lock(table.mutex);
  ended.take();
  RCN_ASSIGN(
      std::shared_ptr<ProgressThread> thread,
      enlist(device, {work, settings.spin_ns, settings.nap_ns, settings.crowded}, settings.processors));
  lock.unlock();
  thread->wake();
  return ProgressPlace(std::move(thread), work, net::fork_generation());
}

bool Progress::is_own_thread() {
  return own_thread != nullptr;
}

std::size_t Progress::threads() {
  const std::lock_guard lock(table.mutex);
  return table.threads == nullptr ? 0 : table.threads->size();
}

ProgressPlace& ProgressPlace::operator=(ProgressPlace&& other) noexcept {
  if (this == &other) return *this;
  leave();
  thread_ = std::move(other.thread_);
  work_ = other.work_;
  generation_ = other.generation_;
  return *this;
}

void ProgressPlace::wake() const {
  if (thread_ != nullptr && generation_ == net::fork_generation()) thread_->wake();
}

void ProgressPlace::leave() {
  const std::shared_ptr<ProgressThread> thread = std::move(thread_);
  if (thread == nullptr || generation_ != net::fork_generation()) return;
  Ended ended;
  std::unique_lock lock(table.mutex);
  std::erase_if(thread->works, [&](const ProgressThread::Entry& entry) { return entry.work == work_; });
  const std::uint64_t version = thread->note_change();
  if (thread.get() == own_thread) return;
  thread->wake();
  thread->changed.wait(lock, [&] { return thread->seen >= version || thread->has_ended; });
  ended.take();
}

}  // namespace rocenante
