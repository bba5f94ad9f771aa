// SPDX-License-Identifier: Apache-2.0
//
// Which thread drives which rank of a world inside this process. A thread that holds several ranks and
// calls one of them outside a group would wait for ranks that only it can drive; this is how that is told
// from ranks on threads of their own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rocenante {

// One rank's driver: the number of the thread that made or last used it.
struct Driver {
  std::atomic<std::uint64_t> thread{0};
};

// A number for the calling thread, never 0, never reused in this process.
std::uint64_t thread_number();

// Adds a driver to the world named by `world` (the communicator's key). Any thread.
void register_driver(const std::string& world, const std::shared_ptr<Driver>& driver);

// The drivers of that world that are alive, without `self`. Any thread.
std::vector<std::shared_ptr<Driver>> other_drivers(const std::string& world,
                                                   const std::shared_ptr<Driver>& self);

}  // namespace rocenante
