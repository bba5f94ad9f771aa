// SPDX-License-Identifier: Apache-2.0
#include "lib/fabric/processors.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace rocenante::fabric {
namespace {

constexpr std::uint32_t kMostProcessors = CPU_SETSIZE;

// How much work a processor does at its best, on the kernel's scale of 1024 for the biggest of the machine;
// where all are alike the kernel says nothing, and neither does this.
std::uint32_t capacity_of(const std::string& sysfs, std::uint32_t processor) {
  std::ifstream file(std::filesystem::path(sysfs) / "devices/system/cpu" /
                     ("cpu" + std::to_string(processor)) / "cpu_capacity");
  std::uint32_t capacity = 0;
  file >> capacity;
  return file ? capacity : 0;
}

// Reads a number at the beginning of `text` and takes it off.
bool take_number(std::string_view* text, std::uint32_t* number) {
  const auto [next, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc() || *number >= kMostProcessors) return false;
  text->remove_prefix(static_cast<std::size_t>(next - text->data()));
  return true;
}

}  // namespace

bool parse_processors(std::string_view text, Processors* processors) {
  Processors found;
  while (!text.empty()) {
    std::uint32_t first = 0;
    if (!take_number(&text, &first)) return false;
    std::uint32_t last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      if (!take_number(&text, &last) || last < first) return false;
    }
    for (std::uint32_t number = first; number <= last; ++number) found.push_back(number);
    if (text.empty()) break;
    if (!text.starts_with(',') || text.size() == 1) return false;
    text.remove_prefix(1);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  *processors = std::move(found);
  return true;
}

Processors allowed_processors() {
  Processors allowed;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return allowed;
  for (std::uint32_t number = 0; number < kMostProcessors; ++number) {
    if (CPU_ISSET(number, &set)) allowed.push_back(number);
  }
  return allowed;
}

Processors best_processors(const std::string& sysfs, const Processors& allowed, const Processors& near) {
  Processors chosen;
  std::set_intersection(allowed.begin(), allowed.end(), near.begin(), near.end(),
                        std::back_inserter(chosen));
  if (chosen.empty()) chosen = allowed;
  std::uint32_t most = 0;
  for (const std::uint32_t number : chosen) most = std::max(most, capacity_of(sysfs, number));
  std::erase_if(chosen, [&](std::uint32_t number) { return capacity_of(sysfs, number) < most; });
  return chosen;
}

}  // namespace rocenante::fabric
