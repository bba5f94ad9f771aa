// SPDX-License-Identifier: Apache-2.0
#include "lib/device/deferred_release.h"

#include <utility>

namespace rocenante {

void DeferredRelease::hold() {
  const std::lock_guard lock(mutex_);
  ++held_;
}

void DeferredRelease::let_go() {
  const std::lock_guard lock(mutex_);
  --held_;
}

void DeferredRelease::give(std::unique_ptr<Deferred> resource) {
  const std::lock_guard lock(mutex_);
  resource->next_ = std::move(first_);
  first_ = std::move(resource);
  ++waiting_;
}

void DeferredRelease::collect() {
  // Under the lock: whoever wants to hold something, in order to launch, waits until the last release is
  // over. Nobody who must not wait is here, since what they hold would be counted.
  const std::lock_guard lock(mutex_);
  if (held_ != 0) return;
  while (first_ != nullptr) {
    const std::unique_ptr<Deferred> resource = std::move(first_);
    first_ = std::move(resource->next_);
    --waiting_;
  }
}

std::uint64_t DeferredRelease::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

std::uint64_t DeferredRelease::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

}  // namespace rocenante
