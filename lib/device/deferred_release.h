// SPDX-License-Identifier: Apache-2.0
//
// Resources whose release makes a device wait for all of its work: unregistering host memory, freeing
// device memory. A kernel of ours may be waiting for a peer that waits for this very thread, and a graph
// that holds one may be replayed at any moment by whoever owns it, so the rule is: nothing is released
// while anything is left that a launch of this process could use.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

namespace rocenante {

// Destroying it releases the resource.
class Deferred {
 public:
  virtual ~Deferred() = default;
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

 protected:
  Deferred() = default;

 private:
  friend class DeferredRelease;
  std::unique_ptr<Deferred> next_;
};

// Counts what launches may use and keeps what they no longer use until the count is zero. Any thread.
class DeferredRelease {
 public:
  // From now on there is one more thing that a launch may use. Waits for a release in progress.
  void hold();
  // There is one less. Releases nothing: this may be called where no call of the device is allowed.
  void let_go();
  // The resource is no longer used and goes when nothing is held. Allocates and releases nothing either.
  void give(std::unique_ptr<Deferred> resource);
  // Releases what was given if nothing is held. Not where calls of the device are not allowed.
  void collect();

  std::uint64_t held() const;
  std::uint64_t waiting() const;

 private:
  mutable std::mutex mutex_;
  std::unique_ptr<Deferred> first_;
  std::uint64_t held_ = 0;
  std::uint64_t waiting_ = 0;
};

}  // namespace rocenante
