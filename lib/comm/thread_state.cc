// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/thread_state.h"

#include <pthread.h>

#include <mutex>

namespace rocenante {

constinit thread_local ThreadState* detail::current_thread = nullptr;

namespace {

// Every thread's state, so that unloading can free those of threads that live on. Static storage without
// destructors: an application may call us while its own static objects go, after StopAtUnload.
struct Table {
  std::mutex mutex;
  ThreadState* first = nullptr;
  pthread_key_t key{};
  bool has_key = false;
};
constinit Table table;

// Under the lock.
void unlink_and_free(ThreadState* state) {
  (state->previous == nullptr ? table.first : state->previous->next) = state->next;
  if (state->next != nullptr) state->next->previous = state->previous;
  delete state;
}

void free_at_thread_end(void* state) {
  const std::lock_guard lock(table.mutex);
  detail::current_thread = nullptr;
  unlink_and_free(static_cast<ThreadState*>(state));
}

struct StopAtUnload {
  StopAtUnload() { table.has_key = ::pthread_key_create(&table.key, free_at_thread_end) == 0; }
  ~StopAtUnload() {
    const std::lock_guard lock(table.mutex);
    if (table.has_key) ::pthread_key_delete(table.key);
    table.has_key = false;
    detail::current_thread = nullptr;
    while (table.first != nullptr) unlink_and_free(table.first);
  }
};
const StopAtUnload stop_at_unload;

ThreadState* make_state() {
  auto* const state = new ThreadState;
  const std::lock_guard lock(table.mutex);
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
