// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/background.h"

#include <mutex>
#include <utility>

#include "lib/net/fork.h"
#include "lib/net/keep_forever.h"
#include "lib/net/thread.h"

namespace rocenante::nccl {
namespace {

// Without destructors: handles may be given up while static objects go.
constinit std::mutex mutex;
constinit Background* first = nullptr;
constinit bool is_unloading = false;

const net::ForkHooks kForkHooks = {
    [] { mutex.lock(); },
    [] { mutex.unlock(); },
    [] {
      // The threads are not here.
      first = nullptr;
      mutex.unlock();
    },
};

[[maybe_unused]] const bool kHooked = net::hook_at_load(&kForkHooks);

}  // namespace

// Made at the first work, so that it is destroyed before what that uses.
class BackgroundAtUnload {
 public:
  ~BackgroundAtUnload() {
    const std::lock_guard lock(mutex);
    is_unloading = true;
    for (Background* each = first; each != nullptr; each = each->next_) each->cancel();
    for (Background* each = first; each != nullptr; each = each->next_) {
      if (each->thread_.joinable()) each->thread_.join();
    }
  }
};

Status Background::start(std::function<void()> work) {
  static const BackgroundAtUnload at_unload;
  std::thread before;
  {
    const std::lock_guard lock(mutex);
    if (is_linked_) before = std::move(thread_);
  }
  if (before.joinable()) before.join();
  const std::lock_guard lock(mutex);
  if (!is_linked_) link();
  if (is_stopped_ || is_unloading) {
    unlink();
    return make_error(Code::kInvalidUsage, "the {}",
                      is_stopped_ ? "communicator is being destroyed" : "library is being unloaded");
  }
  RCN_ASSIGN(thread_, net::start_quiet_thread("rcn-setup", std::move(work)));
  return {};
}

void Background::stop() {
  cancel();
  is_stopped_ = true;
  if (!is_linked_) return;
  std::thread thread;
  {
    const std::lock_guard lock(mutex);
    if (!is_linked_) return;
    if (fork_generation_ != net::fork_generation()) {
      is_linked_ = false;
      return net::keep_forever(std::move(thread_));
    }
    unlink();
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
}

void Background::link() {
  fork_generation_ = net::fork_generation();
  is_linked_ = true;
  previous_ = nullptr;
  next_ = first;
  if (next_ != nullptr) next_->previous_ = this;
  first = this;
}

void Background::unlink() {
  is_linked_ = false;
  if (next_ != nullptr) next_->previous_ = previous_;
  (previous_ == nullptr ? first : previous_->next_) = next_;
}

}  // namespace rocenante::nccl
