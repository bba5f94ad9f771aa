// SPDX-License-Identifier: Apache-2.0
//
// What the library keeps per thread. Not thread_local objects: their destructors would pin the library, so
// that dlclose could not unload it while a thread that once called it lives.
#pragma once

#include <memory>
#include <string>

#include "lib/comm/group.h"

namespace rocenante {

struct ThreadState {
  std::string last_error;
  CallGroup group;
  // What an interface built on this one keeps per thread.
  std::shared_ptr<void> extension;
  // The list of all threads' states.
  ThreadState* next = nullptr;
  ThreadState* previous = nullptr;
};

namespace detail {
extern constinit thread_local ThreadState* current_thread;
}

// The calling thread's state, made on first use and freed when the thread ends or the library is unloaded.
ThreadState& thread_state();

// Whether the calling thread is between group start and end.
inline bool group_is_open() {
  const ThreadState* const state = detail::current_thread;
  return state != nullptr && state->group.open();
}

}  // namespace rocenante
