// SPDX-License-Identifier: Apache-2.0
//
// For the tests of libnccl.so.2 with the recording library behind it: NCCL's names, the recorder, and
// worlds whose ranks are threads.
#pragma once

#include <dlfcn.h>
#include <rocenante/rocenante.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/abi/nccl_api.h"
#include "tests/abi/recorder/recorder.h"

namespace rocenante::test {

enum Row : std::uint32_t {
#define RCN_RECORDED(name, returns, arguments) k##name,
#include "recorded.inc"
#undef RCN_RECORDED
  kRows
};

inline const Recorder& recorder() {
  static const Recorder& instance = [&]() -> const Recorder& {
    void* const handle = ::dlopen(std::getenv("ROCENANTE_NCCL_PATH"), RTLD_NOW | RTLD_LOCAL);
    auto* const api = reinterpret_cast<const Recorder* (*)()>(::dlsym(handle, "recorder_api"));
    return *api();
  }();
  return instance;
}

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

// Runs `body` on a thread per rank; the first text that is not empty.
inline std::string run(int ranks, const std::function<std::string(Rank&)>& body) {
  rcnUniqueId id;
  if (std::string text = check(ncclGetUniqueId(&id), "ncclGetUniqueId"); !text.empty()) return text;
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank]() {
      texts[static_cast<std::size_t>(rank)] = [&]() -> std::string {
        Rank self{rank, ranks, nullptr};
        RCN_CALL(ncclCommInitRank(&self.comm, ranks, id, rank));
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

inline constexpr std::size_t kSmall = 1000;
inline constexpr std::size_t kLarge = 2 * 1024 * 1024;  // 8 MiB: above the limit of any number of ranks

}  // namespace rocenante::test
