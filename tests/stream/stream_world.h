// SPDX-License-Identifier: Apache-2.0
//
// Worlds of ranks on simulated devices, each rank a thread with a device of its own, through the public
// API.
#pragma once

#include <rocenante/rocenante.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/sim_device.h"

namespace rocenante::test {

// What each rank's test has.
class StreamRank {
 public:
  StreamRank(std::shared_ptr<SimDevice> device, std::vector<rcnComm_t> comms, int rank, int ranks)
      : device_(std::move(device)), comms_(std::move(comms)), rank_(rank), ranks_(ranks) {}
  // Destroys what is left.
  ~StreamRank();
  StreamRank(const StreamRank&) = delete;
  StreamRank& operator=(const StreamRank&) = delete;

  SimDevice& device() const { return *device_; }
  rcnComm_t comm(std::size_t index = 0) const { return comms_[index]; }
  // The communicator, which is the caller's from now on.
  rcnComm_t release(std::size_t index = 0);
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Everybody waits for everybody; not on the device.
  const std::function<void()>* meet = nullptr;

 private:
  const std::shared_ptr<SimDevice> device_;
  std::vector<rcnComm_t> comms_;
  const int rank_;
  const int ranks_;
};

struct StreamWorld {
  int ranks = 2;
  std::size_t comms = 1;
  SimShape shape;
  std::string options;
};

// Runs `body` on a thread for each rank; the first text that one returned, "" when all returned "".
std::string run_streams(const StreamWorld& world, const std::function<std::string(StreamRank&)>& body);

// A text naming the call and the library's words unless `result` is rcnSuccess; "" if it is.
std::string failure(rcnResult_t result, const char* call);
std::string failure(const Status& status);

// Returns the text of a failure from the enclosing function.
#define STREAM_TRY(expression)                                                               \
  do {                                                                                       \
    if (std::string stream_text_ = (expression); !stream_text_.empty()) return stream_text_; \
  } while (false)
#define STREAM_CALL(call) STREAM_TRY(::rocenante::test::failure(call, #call))

// 32-bit integers in a device's memory.
class Numbers {
 public:
  Numbers(SimDevice& device, std::size_t count) : memory_(device.buffer(count * 4)), count_(count) {}
  std::uint32_t* data() const { return reinterpret_cast<std::uint32_t*>(memory_.get()); }
  std::size_t count() const { return count_; }

 private:
  std::shared_ptr<unsigned char> memory_;
  std::size_t count_;
};

// The value of one rank at one place in one operation, and the sum over the ranks.
inline std::uint32_t value_of(std::uint64_t operation, int rank, std::size_t place) {
  return static_cast<std::uint32_t>(operation * 7919 + place * 31 +
                                    static_cast<std::size_t>(rank) * 104729);
}
inline std::uint32_t sum_of(std::uint64_t operation, int ranks, std::size_t place) {
  std::uint32_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += value_of(operation, rank, place);
  return sum;
}

void fill(std::uint32_t* data, std::size_t count, std::uint64_t operation, int rank);
// "" or what is wrong first.
std::string judge(const std::uint32_t* data, std::size_t count, std::uint64_t operation, int ranks);

}  // namespace rocenante::test
