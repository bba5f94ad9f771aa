// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/rendezvous.h"

#include <sys/eventfd.h>

#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "lib/comm/rendezvous_root.h"
#include "lib/net/fork.h"
#include "lib/net/keep_forever.h"
#include "lib/net/thread.h"

namespace rocenante {
namespace {

struct RunningRoot {
  std::thread thread;
  net::SocketFd wake;
  net::SocketAddress address;
  std::unique_ptr<RendezvousRoot> root;
};
using RunningRoots = std::list<RunningRoot>;

// Static storage without destructors; the list is freed by stop_all_rendezvous.
struct RootTable {
  std::mutex mutex;
  RunningRoots* roots = nullptr;
  bool is_closed = false;  // the library is being unloaded
};
constinit RootTable table;

const net::ForkHooks kForkHooks = {
    [] { table.mutex.lock(); },
    [] { table.mutex.unlock(); },
    [] {
      // The threads are not here; their handles and descriptors may not be touched.
      net::keep_forever(std::exchange(table.roots, nullptr));
      table.mutex.unlock();
    },
};

// Wakes and joins the roots that `which` selects, without holding the lock while waiting.
template <class Which>
void stop_roots(Which which) {
  RunningRoots stopped;
  {
    const std::lock_guard lock(table.mutex);
    if (table.roots == nullptr) return;
    for (auto at = table.roots->begin(); at != table.roots->end();) {
      const auto next = std::next(at);
      if (which(*at)) stopped.splice(stopped.end(), *table.roots, at);
      at = next;
    }
  }
  for (RunningRoot& one : stopped) ::eventfd_write(one.wake.get(), 1);
  for (RunningRoot& one : stopped) one.thread.join();
}

struct StopAtUnload {
  StopAtUnload() { net::add_fork_hooks(&kForkHooks); }
  ~StopAtUnload() {
    {
      const std::lock_guard lock(table.mutex);
      table.is_closed = true;
    }
    stop_all_rendezvous();
  }
};
const StopAtUnload stop_at_unload;

}  // namespace

Status start_rendezvous(net::SocketFd listener, const UniqueIdContents& id, std::uint64_t init_timeout_ns) {
  stop_roots([](const RunningRoot& one) { return one.root->is_over(); });
  RunningRoot one;
  one.wake = net::open_socket([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!one.wake) return errno_error("eventfd for a rendezvous");
  one.address = id.rendezvous;
  one.root = std::make_unique<RendezvousRoot>(std::move(listener), one.wake.get(), id, init_timeout_ns);

  const std::lock_guard lock(table.mutex);
  if (table.is_closed) return make_error(Code::kInvalidUsage, "the library is being unloaded");
  if (table.roots == nullptr) table.roots = new RunningRoots;
  RCN_ASSIGN(one.thread, net::start_quiet_thread("rcn-root", [root = one.root.get()] { root->run(); }));
  table.roots->push_back(std::move(one));
  return {};
}

void stop_finished_rendezvous(const net::SocketAddress& address) {
  stop_roots([&](const RunningRoot& one) {
    return one.root->is_over() || (one.address.port() == address.port() && one.root->has_failed());
  });
}

void stop_rendezvous(const net::SocketAddress& address) {
  stop_roots([&](const RunningRoot& one) { return one.root->is_over() || one.address == address; });
}

void stop_all_rendezvous() {
  stop_roots([](const RunningRoot&) { return true; });
  const std::lock_guard lock(table.mutex);
  if (table.roots == nullptr || !table.roots->empty()) return;
  delete table.roots;
  table.roots = nullptr;
}

}  // namespace rocenante
