// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of one process that share a device.
#pragma once

#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/gpu.h"
#include "tests/support/world.h"

namespace rocenante::test {

// The device of this program. Where there is none the program ends: with 77, or with 1 if this machine has
// NVIDIA devices.
Gpu& gpu();

// A rank at work. What it makes it keeps until all ranks have ended their work.
class Seat {
 public:
  Seat(std::shared_ptr<Rank> self, std::barrier<>& barrier) : rank(*self), barrier_(barrier) {
    kept_.push_back(std::move(self));
  }

  Rank& rank;

  // Returns when every rank that still works is here.
  void meet() { barrier_.arrive_and_wait(); }

  void* stream();
  std::uint8_t* buffer(std::size_t bytes);
  std::uint8_t* staging(std::size_t bytes);
  std::shared_ptr<GpuGraph> graph(void* stream, const std::function<void()>& capture);
  // Another communicator of the same ranks, whose id is theirs in common.
  Rank& communicator(const rcnUniqueId& id, const std::string& options);

  void all_reduce(const void* from, void* to, std::size_t count, rcnDataType_t type, rcnRedOp_t op,
                  rcnComm_t comm, void* stream);

 private:
  std::barrier<>& barrier_;
  std::vector<std::shared_ptr<void>> kept_;
};

// Runs `body` as each of `ranks` ranks. Returns what bodies returned or threw, a line each; "" if
// all returned "".
// `options` go beside the device and short deadlines: a rank that fails must not keep the others long.
std::string run_on_gpu(int ranks, const std::string& options,
                       const std::function<std::string(Seat&)>& body);

rcnUniqueId make_id();

// Throws the library's words unless the call succeeded.
void succeed(rcnResult_t result, const char* call);

// The async error of a communicator once it has one; rcnSuccess if it has none for a long time.
rcnResult_t await_async_error(rcnComm_t comm);

}  // namespace rocenante::test
