// SPDX-License-Identifier: Apache-2.0
#include "lib/net/fork.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <mutex>

namespace rocenante::net {

constinit std::atomic<std::uint64_t> detail::generation{0};

namespace {

// Descriptor numbers are handed out lowest first, so the bitmap covers any process that holds fewer than a
// million; a higher one is simply inherited. Static storage without destructors: objects with static
// storage elsewhere may still close sockets while the library is being unloaded.
constexpr int kMaxDescriptors = 1 << 20;
constexpr int kBitsPerWord = 64;

struct Descriptors {
  std::mutex mutex;
  std::array<std::uint64_t, kMaxDescriptors / kBitsPerWord> noted{};
  int end = 0;  // every noted number is below
};
constinit Descriptors descriptors;

struct Hooks {
  std::mutex mutex;
  std::array<const ForkHooks*, kMaxForkHooks> hooks{};
  int count = 0;
};
constinit Hooks hook_table;

bool is_noted(int fd) {
  return (descriptors.noted[static_cast<std::size_t>(fd / kBitsPerWord)] >> (fd % kBitsPerWord) & 1) != 0;
}

void prepare() {
  hook_table.mutex.lock();
  for (int i = hook_table.count - 1; i >= 0; --i) hook_table.hooks[static_cast<std::size_t>(i)]->prepare();
  descriptors.mutex.lock();
}

void in_parent() {
  descriptors.mutex.unlock();
  for (int i = 0; i < hook_table.count; ++i) hook_table.hooks[static_cast<std::size_t>(i)]->parent();
  hook_table.mutex.unlock();
}

// Replaces each noted descriptor by one idle eventfd. The first is closed before the eventfd is made, which
// therefore finds a free number even in a process that has used up its limit.
void drop_descriptors() {
  int source = -1;
  for (int fd = 0; fd < descriptors.end; ++fd) {
    if (!is_noted(fd)) continue;
    if (source >= 0) {
      ::dup3(source, fd, O_CLOEXEC);
      continue;
    }
    ::close(fd);
    const int idle = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (idle < 0) continue;
    if (idle != fd) {
      ::dup3(idle, fd, O_CLOEXEC);
      ::close(idle);
    }
    source = fd;
  }
}

void in_child() {
  // Relaxed: the child has one thread; threads it starts later are ordered after by their creation.
  detail::generation.fetch_add(1, std::memory_order_relaxed);
  drop_descriptors();
  descriptors.mutex.unlock();
  for (int i = 0; i < hook_table.count; ++i) hook_table.hooks[static_cast<std::size_t>(i)]->child();
  hook_table.mutex.unlock();
}

// When the library is loaded, so that no object can be older than the handlers. The C library forgets
// them when the library is unloaded.
[[maybe_unused]] const int registered = ::pthread_atfork(prepare, in_parent, in_child);

}  // namespace

void add_fork_hooks(const ForkHooks* hooks) {
  const std::lock_guard lock(hook_table.mutex);
  assert(hook_table.count < kMaxForkHooks);
  hook_table.hooks[static_cast<std::size_t>(hook_table.count++)] = hooks;
}

void SocketFdTraits::release(int fd) {
  const std::lock_guard lock(descriptors.mutex);
  if (fd < kMaxDescriptors) {
    descriptors.noted[static_cast<std::size_t>(fd / kBitsPerWord)] &=
        ~(std::uint64_t{1} << (fd % kBitsPerWord));
  }
  ::close(fd);
}

namespace detail {

void lock_descriptors() {
  descriptors.mutex.lock();
}

void unlock_descriptors() {
  descriptors.mutex.unlock();
}

void note_descriptor(int fd) {
  if (fd >= kMaxDescriptors) return;
  descriptors.noted[static_cast<std::size_t>(fd / kBitsPerWord)] |= std::uint64_t{1} << (fd % kBitsPerWord);
  descriptors.end = std::max(descriptors.end, fd + 1);
}

}  // namespace detail
}  // namespace rocenante::net
