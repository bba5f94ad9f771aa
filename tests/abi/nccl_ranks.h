// SPDX-License-Identifier: Apache-2.0
//
// Worlds of libnccl.so.2 whose ranks are threads, and what their all-reduces come to.
#pragma once

#include <rocenante/rocenante.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "nccl_shim/libnccl/abi.h"
#include "tests/abi/nccl_api.h"

namespace rocenante::test {

inline std::string check(rcnResult_t result, const char* what) {
  if (result == rcnSuccess) return "";
  return std::string(what) + ": " + std::to_string(result) + ": " + ncclGetLastError(nullptr);
}
#define RCN_CALL(call)                                                        \
  do {                                                                        \
    if (std::string text_ = check(call, #call); !text_.empty()) return text_; \
  } while (false)

struct Rank {
  int rank;
  int ranks;
  void* comm;
};

// Asks until a non-blocking call is done.
inline std::string wait_until_done(void* comm) {
  rcnResult_t state = rcnInProgress;
  for (;;) {
    RCN_CALL(ncclCommGetAsyncError(comm, &state));
    if (state == rcnSuccess) return "";
    if (state != rcnInProgress)
      return "the state is " + std::to_string(state) + ": " + ncclGetLastError(comm);
    std::this_thread::yield();
  }
}

// The result of a call that may only have begun.
inline std::string done(rcnResult_t result, void* comm, const char* what) {
  return result == rcnInProgress ? wait_until_done(comm) : check(result, what);
}

#define RCN_DONE(call, comm)                                                         \
  do {                                                                               \
    const rcnResult_t begun_ = (call);                                               \
    if (std::string text_ = done(begun_, comm, #call); !text_.empty()) return text_; \
  } while (false)

// Waits for all ranks of a world: an abort reaches those that still initialise, too.
inline void come_together(std::atomic<int>& arrived, int ranks) {
  ++arrived;
  while (arrived < ranks) std::this_thread::yield();
}

// Runs `body` on a thread per rank, with a communicator; the first text that is not empty.
inline std::string run(int ranks, const std::function<std::string(Rank&)>& body, bool blocking = true) {
  rcnUniqueId id;
  if (std::string text = check(ncclGetUniqueId(&id), "ncclGetUniqueId"); !text.empty()) return text;
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank]() {
      texts[static_cast<std::size_t>(rank)] = [&]() -> std::string {
        Rank self{rank, ranks, nullptr};
        nccl::ConfigHead config{sizeof config, nccl::kConfigMagic, 22800, blocking ? 1 : 0};
        const rcnResult_t made = ncclCommInitRankConfig(&self.comm, ranks, id, rank, &config);
        if (std::string text = done(made, self.comm, "ncclCommInitRankConfig"); !text.empty()) return text;
        std::string text = body(self);
        if (text.empty() && self.comm != nullptr) RCN_CALL(ncclCommDestroy(self.comm));
        return text;
      }();
    });
  }
  threads.clear();
  for (const std::string& text : texts) {
    if (!text.empty()) return text;
  }
  return "";
}

inline std::vector<float> values(int rank, std::size_t count) {
  std::vector<float> result(count);
  for (std::size_t i = 0; i < count; ++i)
    result[i] = static_cast<float>((rank + 1) * static_cast<int>(i % 100 + 1));
  return result;
}

inline std::string wrong(const std::vector<float>& sums, int ranks, float factor = 1) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const float expected =
        factor * static_cast<float>(ranks * (ranks + 1) / 2 * static_cast<int>(i % 100 + 1));
    if (sums[i] != expected) {
      return "element " + std::to_string(i) + " is " + std::to_string(sums[i]) + ", expected " +
             std::to_string(expected);
    }
  }
  return "";
}

inline std::string reduce(Rank& self, std::size_t count) {
  const std::vector<float> mine = values(self.rank, count);
  std::vector<float> sums(count);
  RCN_CALL(ncclAllReduce(mine.data(), sums.data(), count, rcnFloat32, rcnSum, self.comm, nullptr));
  return wrong(sums, self.ranks);
}

// That `comm` is one of `ranks` in which this rank has number `rank`, and what its calls come to.
inline std::string is_member(void* comm, int rank, int ranks) {
  int number = -1;
  int count = -1;
  RCN_CALL(ncclCommUserRank(comm, &number));
  RCN_CALL(ncclCommCount(comm, &count));
  if (number != rank || count != ranks) {
    return "rank " + std::to_string(number) + " of " + std::to_string(count) + ", expected " +
           std::to_string(rank) + " of " + std::to_string(ranks);
  }
  Rank self{rank, ranks, comm};
  return reduce(self, 100);
}
#define RCN_MEMBER(...)                                                           \
  do {                                                                            \
    if (std::string text_ = is_member(__VA_ARGS__); !text_.empty()) return text_; \
  } while (false)

inline constexpr std::size_t kSmall = 1000;
inline constexpr std::size_t kLarge = 2 * 1024 * 1024;  // 8 MiB: above the limit of any number of ranks

// A small all-reduce in place of all ranks, which this thread has, in one group.
template <int kRanks>
std::string reduce_in_group(void* const (&comms)[kRanks]) {
  std::vector<std::vector<float>> buffers;
  for (int rank = 0; rank < kRanks; ++rank) buffers.push_back(values(rank, kSmall));
  RCN_CALL(ncclGroupStart());
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    float* const buffer = buffers[rank].data();
    RCN_CALL(ncclAllReduce(buffer, buffer, kSmall, rcnFloat32, rcnSum, comms[rank], nullptr));
  }
  RCN_CALL(ncclGroupEnd());
  std::string texts;
  for (const std::vector<float>& buffer : buffers) texts += wrong(buffer, kRanks);
  return texts;
}

}  // namespace rocenante::test
