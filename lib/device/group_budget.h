// SPDX-License-Identifier: Apache-2.0
//
// How many groups (CTAs) of waiting launches a device has at the same time. A group that waits for a peer
// does not make room for others, so those of all communicators of a device must be resident together: else
// one that came late could be kept out by those that wait for what its own rank is to send.
//
// Calls of one communicator run one after the other (stream_calls.h), so each communicator has a share of
// groups, taken when it is made and kept for its life and that of its graphs. Each rank's shares are its
// own affair: ranks whose launches have different numbers of groups work together.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "lib/base/status.h"

namespace rocenante {

struct GroupLimits {
  std::uint32_t most = 1;      // of one communicator, a power of two
  std::uint32_t roomy = 1;     // of all together, as long as anybody gets more than one
  std::uint32_t resident = 1;  // of all together
};

class GroupBudget;

// A communicator's groups, a power of two; given back when destroyed. Any thread, at any time.
class GroupShare {
 public:
  GroupShare() = default;
  GroupShare(GroupShare&& other) noexcept = default;
  GroupShare& operator=(GroupShare&& other) noexcept;
  ~GroupShare() { give_back(); }

  std::uint32_t groups() const { return groups_; }

 private:
  friend class GroupBudget;
  GroupShare(std::shared_ptr<GroupBudget> budget, std::uint32_t groups)
      : budget_(std::move(budget)), groups_(groups) {}
  void give_back();

  std::shared_ptr<GroupBudget> budget_;
  std::uint32_t groups_ = 1;  // without a budget: of launches that wait for nobody
};

// One for each device. Any thread.
class GroupBudget : public std::enable_shared_from_this<GroupBudget> {
 public:
  explicit GroupBudget(const GroupLimits& limits) : limits_(limits) {}

  // Half of what is left of the roomy groups, at most `most`, at least one. InvalidUsage when all that are
  // resident together are taken.
  Result<GroupShare> take();
  std::uint32_t taken() const;

 private:
  friend class GroupShare;

  const GroupLimits limits_;
  mutable std::mutex mutex_;
  std::uint32_t taken_ = 0;
  std::uint32_t shares_ = 0;
};

}  // namespace rocenante
