// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

namespace rocenante::nccl {

// Children, told by their `parent`, as lists of those of one parent, each in the order of the calls.
template <class Child>
std::vector<std::vector<Child>> by_parent(const std::vector<Child>& children) {
  std::vector<std::vector<Child>> families;
  for (const Child& child : children) {
    const auto family = std::find_if(families.begin(), families.end(), [&](const std::vector<Child>& each) {
      return each.front().parent == child.parent;
    });
    if (family == families.end()) {
      families.push_back({child});
    } else {
      family->push_back(child);
    }
  }
  return families;
}

}  // namespace rocenante::nccl
