// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/memory.h"

#include <sys/mman.h>
#include <unistd.h>

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

struct Books {
  std::mutex mutex;
  std::map<void*, std::size_t> allocations;
  std::map<std::uintptr_t, Registration> registrations;
  std::uintptr_t next_handle = 1;
};

// Never destroyed: memory may be freed while static objects go.
Books& books();
const net::ForkHooks kForkHooks = {
    [] { books().mutex.lock(); },
    [] { books().mutex.unlock(); },
    [] { books().mutex.unlock(); },
};
Books& books() {
  static Books* const instance = [] {
    net::add_fork_hooks(&kForkHooks);
    return new Books;
  }();
  return *instance;
}

void* as_handle(std::uintptr_t number) {
  // Not an address of anything: nobody may read through it.
  return reinterpret_cast<void*>(number << 4 | 1);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

Result<void*> allocate_host(std::size_t bytes) {
  if (bytes == 0) return static_cast<void*>(nullptr);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (bytes > SIZE_MAX - page) return make_error(Code::kSystemError, "out of memory: {} bytes", bytes);
  const std::size_t rounded = (bytes + page - 1) / page * page;
  void* const memory = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return errno_error("mmap of {} bytes for ncclMemAlloc", rounded);
  const std::lock_guard lock(books().mutex);
  books().allocations.emplace(memory, rounded);
  return memory;
}

bool free_host(void* pointer) {
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(books().mutex);
    const auto at = books().allocations.find(pointer);
    if (at == books().allocations.end()) return false;
    bytes = at->second;
    books().allocations.erase(at);
  }
  ::munmap(pointer, bytes);
  return true;
}

void* note_registration(void* comm, void* buffer, std::size_t bytes) {
  const std::lock_guard lock(books().mutex);
  const std::uintptr_t number = books().next_handle++;
  books().registrations.emplace(number, Registration{comm, buffer, bytes});
  return as_handle(number);
}

bool forget_registration(void* comm, void* handle) {
  const std::lock_guard lock(books().mutex);
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  const auto at = books().registrations.find(value >> 4);
  if (at == books().registrations.end() || at->second.comm != comm || as_handle(value >> 4) != handle) {
    return false;
  }
  books().registrations.erase(at);
  return true;
}

void forget_registrations(void* comm) {
  const std::lock_guard lock(books().mutex);
  std::erase_if(books().registrations, [&](const auto& entry) { return entry.second.comm == comm; });
}

}  // namespace rocenante::nccl
