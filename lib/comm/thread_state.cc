// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/thread_state.h"

#include <pthread.h>

#include <memory>
#include <mutex>
#include <vector>

#include "lib/net/fork.h"

namespace rocenante {

constinit thread_local ThreadState* detail::current_thread = nullptr;

namespace {

constinit std::mutex table_mutex;

// Every thread's state, so that unloading can free those of threads that live on. Static storage without
// destructors: an application may call us while its own static objects go, after StopAtUnload.
struct Table {
  ThreadState* first = nullptr;
  pthread_key_t key{};
  bool has_key = false;
};
constinit Table table;

// Under the lock. Whoever takes one out frees it without the lock: what a thread leaves behind, as
// communicators of an open group, goes by way of other tables.
std::unique_ptr<ThreadState> unlink(ThreadState* state) {
  (state->previous == nullptr ? table.first : state->previous->next) = state->next;
  if (state->next != nullptr) state->next->previous = state->previous;
  return std::unique_ptr<ThreadState>(state);
}

void free_at_thread_end(void* state) {
  std::unique_ptr<ThreadState> freed;  // after the lock
  const std::lock_guard lock(table_mutex);
  detail::current_thread = nullptr;
  freed = unlink(static_cast<ThreadState*>(state));
}

struct StopAtUnload {
  StopAtUnload() {
    table.has_key = ::pthread_key_create(&table.key, free_at_thread_end) == 0;
    net::add_fork_hooks(&net::kLockedAcrossFork<table_mutex>);
  }
  ~StopAtUnload() {
    std::vector<std::unique_ptr<ThreadState>> freed;  // after the lock
    const std::lock_guard lock(table_mutex);
    if (table.has_key) ::pthread_key_delete(table.key);
    table.has_key = false;
    detail::current_thread = nullptr;
    while (table.first != nullptr) freed.push_back(unlink(table.first));
  }
};
const StopAtUnload stop_at_unload;

ThreadState* make_state() {
  auto* const state = new ThreadState;
  const std::lock_guard lock(table_mutex);
  state->next = table.first;
  if (state->next != nullptr) state->next->previous = state;
  table.first = state;
  // Without a key (none left, or the process is ending) the state stays until the library goes.
  if (table.has_key) (void)::pthread_setspecific(table.key, state);
  return state;
}

}  // namespace

ThreadState& thread_state() {
  if (detail::current_thread == nullptr) detail::current_thread = make_state();
  return *detail::current_thread;
}

CallGroup& CallGroup::of_this_thread() {
  return thread_state().group;
}

}  // namespace rocenante
