// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lib/comm/progress.h"

namespace rocenante {
namespace {

std::string listing(const fabric::Processors& processors) {
  std::string text;
  for (const std::uint32_t number : processors)
    text += fmt::format("{}{}", text.empty() ? "" : ",", number);
  return text;
}

// Those that the user names.
Result<fabric::Processors> named(const std::string& setting, const fabric::Processors& allowed) {
  fabric::Processors wanted;
  if (setting.empty() || !fabric::parse_processors(setting, &wanted)) {
    return make_error(Code::kInvalidArgument,
                      "ROCENANTE_PROGRESS_CPUS is '{}': expected auto, off or a list of processors such as "
                      "0-3,8",
                      setting);
  }
  for (const std::uint32_t number : wanted) {
    if (std::binary_search(allowed.begin(), allowed.end(), number)) continue;
    return make_error(
        Code::kInvalidArgument,
        "ROCENANTE_PROGRESS_CPUS is '{}': this process may not run on processor {}, only on {}", setting,
        number, listing(allowed));
  }
  return wanted;
}

// Those near any of the ports; all that are not known to be far if nothing is known.
fabric::Processors near(std::span<const fabric::Port> ports) {
  fabric::Processors all;
  for (const fabric::Port& port : ports) {
    fabric::Processors some;
    if (fabric::parse_processors(port.processors, &some)) all.insert(all.end(), some.begin(), some.end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

Result<ProgressSettings> ProgressSettings::from(const Config& config, std::span<const fabric::Port> ports,
                                                std::uint32_t ranks_here, std::uint32_t processors_here,
                                                const std::string& sysfs) {
  ProgressSettings settings;
  settings.spin_ns = config.integer(Key::kProgressSpinUs) * 1000;
  // Each rank has a thread of its own beside this one.
  settings.crowded = 2 * ranks_here > processors_here;
  const std::string& setting = config.text(Key::kProgressCpus);
  if (setting == "off") return settings;
  const fabric::Processors allowed = fabric::allowed_processors();
  if (setting != "auto") {
    RCN_ASSIGN(settings.processors, named(setting, allowed));
    return settings;
  }
  settings.processors = fabric::best_processors(sysfs, allowed, near(ports));
  if (settings.processors == allowed) settings.processors.clear();
  return settings;
}

}  // namespace rocenante
