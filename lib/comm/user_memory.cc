// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/user_memory.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "lib/device/device.h"
#include "lib/device/registry.h"
#include "lib/net/fork.h"
#include "lib/protocol/layout.h"

namespace rocenante {
namespace {

constinit std::mutex mutex;
[[maybe_unused]] const bool kHooked = net::lock_across_fork<mutex>();

struct Books {
  std::map<void*, std::shared_ptr<void>> allocations;
};

// Never destroyed: memory may be freed while static objects go.
Books& books() {
  static Books* const instance = new Books;
  return *instance;
}

}  // namespace

Result<void*> allocate_user_memory(const Config& config, std::size_t bytes) {
  if (bytes == 0) return static_cast<void*>(nullptr);
  if (bytes > SIZE_MAX - protocol::kPageBytes) {
    return make_error(Code::kSystemError, "out of memory: {} bytes", bytes);
  }
  RCN_ASSIGN(const std::shared_ptr<Device> device, open_device(config.text(Key::kDevice)));
  RCN_ASSIGN(std::shared_ptr<void> memory, device->allocate_for_user(bytes));
  void* const address = memory.get();
  const std::lock_guard lock(mutex);
  books().allocations.emplace(address, std::move(memory));
  return address;
}

bool free_user_memory(void* pointer) {
  std::shared_ptr<void> memory;  // goes after the lock
  const std::lock_guard lock(mutex);
  const auto at = books().allocations.find(pointer);
  if (at == books().allocations.end()) return false;
  memory = std::move(at->second);
  books().allocations.erase(at);
  return true;
}

}  // namespace rocenante
