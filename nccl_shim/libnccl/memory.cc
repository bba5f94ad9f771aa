// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/memory.h"

#include <cstdint>
#include <map>
#include <mutex>

#include "lib/net/fork.h"

namespace rocenante::nccl {
namespace {

struct Registration {
  void* comm;
  void* buffer;
  std::size_t bytes;
};

constinit std::mutex mutex;
[[maybe_unused]] const bool kHooked = net::lock_across_fork<mutex>();

struct Books {
  std::map<std::uintptr_t, Registration> registrations;
  std::uintptr_t next_handle = 1;
};

// Never destroyed: buffers may be deregistered while static objects go.
Books& books() {
  static Books* const instance = new Books;
  return *instance;
}

void* as_handle(std::uintptr_t number) {
  // Not an address of anything: nobody may read through it.
  return reinterpret_cast<void*>(number << 4 | 1);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

void* note_registration(void* comm, void* buffer, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  const std::uintptr_t number = books().next_handle++;
  books().registrations.emplace(number, Registration{comm, buffer, bytes});
  return as_handle(number);
}

bool forget_registration(void* comm, void* handle) {
  const std::lock_guard lock(mutex);
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  const auto at = books().registrations.find(value >> 4);
  if (at == books().registrations.end() || at->second.comm != comm || as_handle(value >> 4) != handle) {
    return false;
  }
  books().registrations.erase(at);
  return true;
}

void forget_registrations(void* comm) {
  const std::lock_guard lock(mutex);
  std::erase_if(books().registrations, [&](const auto& entry) { return entry.second.comm == comm; });
}

}  // namespace rocenante::nccl
