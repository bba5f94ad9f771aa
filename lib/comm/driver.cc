// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/driver.h"

#include <map>
#include <mutex>

#include "lib/net/fork.h"

namespace rocenante {
namespace {

constinit std::mutex worlds_mutex;
[[maybe_unused]] const bool kHooked = net::lock_across_fork<worlds_mutex>();

using Worlds = std::map<std::string, std::vector<std::weak_ptr<Driver>>>;
// Never destroyed: threads may still make communicators while static objects go.
Worlds& all_worlds() {
  static auto* const instance = new Worlds;
  return *instance;
}

}  // namespace

std::uint64_t thread_number() {
  static std::atomic<std::uint64_t> next{1};
  static thread_local const std::uint64_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

void register_driver(const std::string& world, const std::shared_ptr<Driver>& driver) {
  const std::lock_guard lock(worlds_mutex);
  Worlds& worlds = all_worlds();
  // Worlds whose last rank has gone are forgotten here: nothing else grows.
  for (auto at = worlds.begin(); at != worlds.end();) {
    std::erase_if(at->second, [](const std::weak_ptr<Driver>& held) { return held.expired(); });
    at = at->second.empty() ? worlds.erase(at) : std::next(at);
  }
  worlds[world].push_back(driver);
}

std::vector<std::shared_ptr<Driver>> other_drivers(const std::string& world,
                                                   const std::shared_ptr<Driver>& self) {
  const std::lock_guard lock(worlds_mutex);
  std::vector<std::shared_ptr<Driver>> result;
  const Worlds& worlds = all_worlds();
  const auto at = worlds.find(world);
  if (at == worlds.end()) return result;
  for (const std::weak_ptr<Driver>& held : at->second) {
    std::shared_ptr<Driver> driver = held.lock();
    if (driver != nullptr && driver != self) result.push_back(std::move(driver));
  }
  return result;
}

}  // namespace rocenante
