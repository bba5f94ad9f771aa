// SPDX-License-Identifier: Apache-2.0
//
// What happens to our sockets when the process forks: the child drops every one, so that the death of the
// parent is still seen by its peers and the child never speaks for it.
//
// A dropped descriptor's number stays taken (by an idle eventfd), so that objects the child inherited may
// be destroyed, or leaked, without closing a descriptor that somebody else has opened since.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "lib/base/handle.h"

namespace rocenante::net {

// Counts the forks between the first process and this one. An object that notes it when it is made can tell
// later whether it was inherited. Any thread; one plain load.
namespace detail {
extern std::atomic<std::uint64_t> generation;
}
// Relaxed: it changes only inside fork(), in the only thread of the new process.
inline std::uint64_t fork_generation() {
  return detail::generation.load(std::memory_order_relaxed);
}

// Called around fork() by the forking thread: prepare locks, parent and child unlock. Ones added later are
// prepared first; all come before this file's own lock. `hooks` must have static storage; at most
// kMaxForkHooks, checked by an assertion.
struct ForkHooks {
  void (*prepare)();
  void (*parent)();
  void (*child)();
};
inline constexpr int kMaxForkHooks = 32;
void add_fork_hooks(const ForkHooks* hooks);

// The hooks of a table that a child finds as it was, its lock free. The mutex has static storage and is
// there before anything else is (constinit).
template <std::mutex& kMutex>
inline constexpr ForkHooks kLockedAcrossFork = {
    [] { kMutex.lock(); },
    [] { kMutex.unlock(); },
    [] { kMutex.unlock(); },
};

// Registers `hooks`, once: initialises a constant of the file whose state they keep, so that it happens
// when the library is loaded. Registering waits for a fork under way. At a first use that would be under
// the guard of a static object, which the child then finds taken for ever.
inline bool hook_at_load(const ForkHooks* hooks) {
  add_fork_hooks(hooks);
  return true;
}
template <std::mutex& kMutex>
bool lock_across_fork() {
  return hook_at_load(&kLockedAcrossFork<kMutex>);
}

// Sockets, eventfds, epoll instances that a child of fork() must not share.
struct SocketFdTraits {
  using Value = int;
  static Value empty() { return -1; }
  static void release(Value fd);
};
using SocketFd = Owned<SocketFdTraits>;

namespace detail {
void lock_descriptors();
void unlock_descriptors();
void note_descriptor(int fd);
}  // namespace detail

// Runs OPEN, which returns a descriptor or -1 with errno set (kept), and notes the result as one that
// children drop. Both are one step as seen by fork(), so OPEN must not block.
template <class Open>
SocketFd open_socket(Open open) {
  detail::lock_descriptors();
  const int fd = above_standard(open());
  if (fd >= 0) detail::note_descriptor(fd);
  detail::unlock_descriptors();
  return SocketFd(fd);
}

}  // namespace rocenante::net
