// SPDX-License-Identifier: Apache-2.0
//
// What the simulated device promises, so that what other tests see of it counts.
#include "tests/support/sim_device.h"

#include <atomic>

#include "tests/support/catch.h"

namespace {

using namespace rocenante::test;
using rocenante::Status;

}  // namespace

TEST_CASE("Streams run their work in order, and a mark orders one behind another") {
  SimDevice device;
  void* const first = device.make_stream();
  void* const second = device.make_stream();
  std::vector<int> seen;
  SimTicket gate;
  REQUIRE(device.run(first, [&] { gate.wait(); }).ok());
  REQUIRE(device.run(first, [&] { seen.push_back(1); }).ok());
  const SimMark mark = device.mark(first).take();
  REQUIRE(device.follow(second, mark).ok());
  REQUIRE(device.run(second, [&] { seen.push_back(2); }).ok());
  gate.finish();
  REQUIRE(device.synchronise(second).ok());
  REQUIRE(seen == std::vector<int>{1, 2});
}
