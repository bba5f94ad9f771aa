// SPDX-License-Identifier: Apache-2.0
//
// Which processors a thread that serves an adapter should run on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rocenante::fabric {

// Numbers of processors, ascending, each once.
using Processors = std::vector<std::uint32_t>;

// "0-3,8", as sysfs writes it; false, and nothing changed, for anything else. Empty text is an empty list.
bool parse_processors(std::string_view text, Processors* processors);

// Those that the calling thread may run on.
Processors allowed_processors();

// Of `allowed`, those that are `near` (all, if none is), and of these the biggest, where the tree at
// `sysfs` says that processors differ.
Processors best_processors(const std::string& sysfs, const Processors& allowed, const Processors& near);

}  // namespace rocenante::fabric
