// SPDX-License-Identifier: Apache-2.0
#include "lib/device/group_budget.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace rocenante {

Result<GroupShare> GroupBudget::take() {
  const std::lock_guard lock(mutex_);
  if (taken_ >= limits_.resident) {
    return make_error(Code::kInvalidUsage,
                      "all {} groups of launches that the device has for calls that wait for peers are "
                      "taken, by {} communicators and graphs of this process: destroy some first",
                      limits_.resident, shares_);
  }
  const std::uint32_t left = limits_.roomy > taken_ ? limits_.roomy - taken_ : 0;
  const std::uint32_t groups = std::min(limits_.most, std::bit_floor(std::max(left / 2, 1U)));
  taken_ += groups;
  ++shares_;
  return GroupShare(shared_from_this(), groups);
}

std::uint32_t GroupBudget::taken() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

GroupShare& GroupShare::operator=(GroupShare&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  budget_ = std::move(other.budget_);
  groups_ = other.groups_;
  return *this;
}

void GroupShare::give_back() {
  const std::shared_ptr<GroupBudget> budget = std::move(budget_);
  if (budget == nullptr) return;
  const std::lock_guard lock(budget->mutex_);
  budget->taken_ -= groups_;
  --budget->shares_;
}

}  // namespace rocenante
