// SPDX-License-Identifier: Apache-2.0
#include "lib/fabric/sysfs.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

namespace rocenante::fabric {
namespace {

namespace fs = std::filesystem;

// The first line of a file; empty if it cannot be read, as the attributes of an unused GID cannot.
std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number value{};
  const auto [next, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || next != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::uint32_t> numbers_in(const fs::path& folder) {
  std::vector<std::uint32_t> numbers;
  for (const std::string& name : names_in(folder)) {
    if (const auto number = number_in<std::uint32_t>(name)) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::vector<GidEntry> read_gids(const fs::path& port) {
  std::vector<GidEntry> gids;
  for (const std::uint32_t index : numbers_in(port / "gids")) {
    const std::string number = std::to_string(index);
    GidEntry entry{
        index, {}, line_of(port / "gid_attrs/types" / number), line_of(port / "gid_attrs/ndevs" / number)};
    if (!parse_gid(line_of(port / "gids" / number), &entry.gid)) continue;
    if (std::all_of(entry.gid.begin(), entry.gid.end(), [](std::uint8_t byte) { return byte == 0; }))
      continue;
    gids.push_back(std::move(entry));
  }
  return gids;
}

}  // namespace

bool parse_gid(const std::string& text, Gid* gid) {
  constexpr std::size_t kGroups = 8, kDigits = 4;
  if (text.size() != kGroups * (kDigits + 1) - 1) return false;
  for (std::size_t group = 0; group < kGroups; ++group) {
    const char* const begin = text.data() + group * (kDigits + 1);
    std::uint16_t value = 0;
    const auto [next, error] = std::from_chars(begin, begin + kDigits, value, 16);
    if (error != std::errc() || next != begin + kDigits) return false;
    if (group + 1 < kGroups && begin[kDigits] != ':') return false;
    (*gid)[2 * group] = static_cast<std::uint8_t>(value >> 8);
    (*gid)[2 * group + 1] = static_cast<std::uint8_t>(value & 0xff);
  }
  return true;
}

std::vector<PortFacts> read_ports(const std::string& sysfs) {
  std::vector<PortFacts> result;
  const fs::path devices = fs::path(sysfs) / "class/infiniband";
  for (const std::string& device : names_in(devices)) {
    const fs::path folder = devices / device;
    for (const std::uint32_t number : numbers_in(folder / "ports")) {
      const fs::path port = folder / "ports" / std::to_string(number);
      PortFacts facts;
      facts.device = device;
      facts.port = number;
      facts.state = line_of(port / "state");
      facts.active = facts.state.starts_with("4:");
      facts.link_layer = line_of(port / "link_layer");
      facts.rate = line_of(port / "rate");
      facts.numa_node = number_in<std::int32_t>(line_of(folder / "device/numa_node")).value_or(-1);
      facts.processors = line_of(folder / "device/local_cpulist");
      std::error_code ignored;
      facts.software = !fs::exists(folder / "device", ignored) && !ignored;
      facts.gids = read_gids(port);
      result.push_back(std::move(facts));
    }
  }
  return result;
}

std::uint32_t read_netdev_mtu(const std::string& sysfs, const std::string& netdev) {
  const fs::path file = fs::path(sysfs) / "class/net" / netdev / "mtu";
  return number_in<std::uint32_t>(line_of(file)).value_or(0);
}

}  // namespace rocenante::fabric
