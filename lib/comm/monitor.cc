// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/monitor.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/log.h"
#include "lib/net/deadline.h"
#include "lib/net/fork.h"
#include "lib/net/keep_forever.h"
#include "lib/net/thread.h"

namespace rocenante {
namespace {

using net::Deadline;

constexpr int kEventsAtOnce = 64;
constexpr unsigned kIndexBits = 16;
constexpr std::uint64_t kWakeTag = 0;  // no client has number 0

std::uint64_t tag_of(Monitor::ClientId id, std::uint32_t index) {
  return id << kIndexBits | index;
}

struct Watch {
  std::thread thread;
  net::SocketFd epoll;
  net::SocketFd wake;
  std::map<Monitor::ClientId, std::shared_ptr<MonitorClient>> clients;
  bool must_stop = false;
  bool has_ended = false;  // the thread takes the lock no more
};

// Static storage without destructors: stars may outlive the unloading of this file's other objects.
struct Table {
  std::mutex mutex;
  Watch* watch = nullptr;
  Monitor::ClientId last_id = 0;  // never used twice, so a late event cannot meet another client
  bool is_closed = false;
};
constinit Table table;

thread_local bool is_monitor = false;

const net::ForkHooks kForkHooks = {
    [] { table.mutex.lock(); },
    [] { table.mutex.unlock(); },
    [] {
      // The thread is not here, and what it worked on may be half-changed: left alone for ever.
      net::keep_forever(std::exchange(table.watch, nullptr));
      table.mutex.unlock();
    },
};

std::shared_ptr<MonitorClient> find_client(Watch* watch, Monitor::ClientId id) {
  const std::lock_guard lock(table.mutex);
  const auto at = watch->clients.find(id);
  return at == watch->clients.end() ? nullptr : at->second;
}

void drain_wake(const Watch& watch) {
  eventfd_t count = 0;
  (void)::eventfd_read(watch.wake.get(), &count);
}

void dispatch(Watch* watch, const epoll_event& event) {
  if (event.data.u64 == kWakeTag) return drain_wake(*watch);
  const std::shared_ptr<MonitorClient> client = find_client(watch, event.data.u64 >> kIndexBits);
  if (client == nullptr) return;
  const std::uint64_t index = event.data.u64 & ((std::uint64_t{1} << kIndexBits) - 1);
  client->on_ready(static_cast<std::uint32_t>(index), event.events);
}

// Serves whoever is due, lets go of the finished, and says when to look again; false to end.
bool look_around(Watch* watch, Deadline* next) {
  std::vector<std::shared_ptr<MonitorClient>> due;
  std::vector<std::shared_ptr<MonitorClient>> finished;  // destroyed after the lock is released
  const std::uint64_t now = net::monotonic_ns();
  const auto collect = [&] {
    for (auto at = watch->clients.begin(); at != watch->clients.end();) {
      if (at->second->is_finished()) {
        finished.push_back(std::move(at->second));
        at = watch->clients.erase(at);
        continue;
      }
      if (at->second->due_ns() <= now) due.push_back(at->second);
      ++at;
    }
  };
  {
    const std::lock_guard lock(table.mutex);
    collect();
  }
  for (const auto& client : due) client->on_time(now);
  due.clear();

  const std::lock_guard lock(table.mutex);
  *next = Deadline::never();
  for (const auto& [id, client] : watch->clients) {
    if (client->is_finished()) *next = Deadline::at_ns(now);
    *next = next->sooner(Deadline::at_ns(client->due_ns()));
  }
  if (!watch->must_stop && !watch->clients.empty()) return true;
  watch->has_ended = true;
  return false;
}

void run(Watch* watch) {
  is_monitor = true;
  std::array<epoll_event, kEventsAtOnce> events;
  Deadline next = Deadline::never();
  while (look_around(watch, &next)) {
    const int count = ::epoll_wait(watch->epoll.get(), events.data(), kEventsAtOnce, next.poll_ms());
    for (int i = 0; i < count; ++i) dispatch(watch, events[static_cast<std::size_t>(i)]);
  }
}

// Under the lock.
Status start(Watch* watch) {
  watch->epoll = net::open_socket([] { return ::epoll_create1(EPOLL_CLOEXEC); });
  watch->wake = net::open_socket([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!watch->epoll || !watch->wake) return errno_error("epoll or eventfd for the control connections");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeTag;
  if (::epoll_ctl(watch->epoll.get(), EPOLL_CTL_ADD, watch->wake.get(), &event) != 0) {
    return errno_error("epoll_ctl");
  }
  RCN_ASSIGN(watch->thread, net::start_quiet_thread("rcn-monitor", [watch] { run(watch); }));
  return {};
}

// Under the lock: the thread has ended by itself, or is about to return.
void bury() {
  table.watch->thread.join();
  delete std::exchange(table.watch, nullptr);
}

struct StopAtUnload {
  StopAtUnload() { net::add_fork_hooks(&kForkHooks); }
  ~StopAtUnload() {
    {
      const std::lock_guard lock(table.mutex);
      table.is_closed = true;
      if (table.watch == nullptr) return;
      table.watch->must_stop = true;
      (void)::eventfd_write(table.watch->wake.get(), 1);
    }
    // exit() may have been called in a callback: that thread cannot wait for itself.
    if (is_monitor) return;
    table.watch->thread.join();
    delete std::exchange(table.watch, nullptr);
  }
};
const StopAtUnload stop_at_unload;

Status control(int operation, Monitor::ClientId id, std::uint32_t index, int fd, std::uint32_t events) {
  const std::lock_guard lock(table.mutex);
  if (table.watch == nullptr || !table.watch->clients.contains(id)) {
    return make_error(Code::kInvalidUsage, "the monitor thread has ended");
  }
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag_of(id, index);
  if (::epoll_ctl(table.watch->epoll.get(), operation, fd, &event) != 0) return errno_error("epoll_ctl");
  return {};
}

}  // namespace

Result<Monitor::ClientId> Monitor::add(std::shared_ptr<MonitorClient> client) {
  const std::lock_guard lock(table.mutex);
  if (table.is_closed) return make_error(Code::kInvalidUsage, "the library is being unloaded");
  if (table.watch != nullptr && table.watch->has_ended) bury();
  const ClientId id = ++table.last_id;
  if (table.watch != nullptr) {
    table.watch->clients.emplace(id, std::move(client));
    (void)::eventfd_write(table.watch->wake.get(), 1);
    return id;
  }
  auto fresh = std::make_unique<Watch>();
  fresh->clients.emplace(id, std::move(client));
  RCN_TRY(start(fresh.get()));
  table.watch = fresh.release();
  return id;
}

Status Monitor::watch(ClientId id, std::uint32_t index, int fd, std::uint32_t events) {
  return control(EPOLL_CTL_ADD, id, index, fd, events);
}

void Monitor::change(ClientId id, std::uint32_t index, int fd, std::uint32_t events) {
  (void)control(EPOLL_CTL_MOD, id, index, fd, events);
}

void Monitor::forget(ClientId id, int fd) {
  (void)control(EPOLL_CTL_DEL, id, 0, fd, 0);
}

void Monitor::wake() {
  const std::lock_guard lock(table.mutex);
  if (table.watch != nullptr) (void)::eventfd_write(table.watch->wake.get(), 1);
}

bool Monitor::is_own_thread() {
  return is_monitor;
}

}  // namespace rocenante
