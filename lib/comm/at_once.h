// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/status.h"
#include "lib/net/thread.h"

namespace rocenante {

// Runs body(0) to body(count - 1), which return Status, on a thread each, because they wait for each other;
// none of them if one thread cannot be had, which every result then says. Returns when all have ended.
template <class Body>
std::vector<Status> run_at_once(std::size_t count, const Body& body) {
  std::vector<Status> results(count);
  std::promise<bool> start;
  const std::shared_future<bool> may_start = start.get_future().share();
  std::vector<std::thread> threads;
  threads.reserve(count);
  Status status;
  for (std::size_t i = 0; i < count && status.ok(); ++i) {
    Result<std::thread> made = net::start_quiet_thread("rcn-init", [&body, &results, may_start, i] {
      // What a thread of ours throws would end the process.
      if (may_start.get()) results[i] = caught([&] { return body(i); });
    });
    if (made.ok()) {
      threads.push_back(made.take());
    } else {
      status = made.status();
    }
  }
  start.set_value(status.ok());
  for (std::thread& thread : threads) thread.join();
  if (!status.ok()) results.assign(count, status);
  return results;
}

}  // namespace rocenante
