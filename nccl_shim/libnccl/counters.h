// SPDX-License-Identifier: Apache-2.0
//
// What became of the calls on a communicator that were not ours: per collective, size class and reason.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "lib/base/config.h"
#include "lib/comm/stats.h"

namespace rocenante::nccl {

enum class Kind : std::uint8_t {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kSend,
  kRecv,
  kCount
};
const char* kind_name(Kind kind);
Kind kind_of(Collective collective);

// Why a call went to the real library.
enum class Reason : std::uint8_t {
  kNotNative,     // not one that we take over beside the real library
  kSize,          // larger than ROCENANTE_..._MAX_BYTES of its collective
  kOperator,      // an operator the real library made
  kNotTakingPart  // our side voted no, or some rank's did
};
inline constexpr std::uint32_t kNumReasons = 4;
const char* reason_name(Reason reason);

class ForwardCounters {
 public:
  void count(Kind kind, std::uint64_t bytes, Reason reason) {
    std::atomic<std::uint64_t>& cell = cells_[static_cast<std::size_t>(kind)][Counters::size_class(bytes)]
                                             [static_cast<std::size_t>(reason)];
    cell.fetch_add(1, std::memory_order_relaxed);
  }

  // visit(kind, size class, reason, calls) for every combination that occurred.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t kind = 0; kind < cells_.size(); ++kind) {
      for (std::uint32_t size = 0; size < Counters::kSizeClasses; ++size) {
        for (std::size_t reason = 0; reason < kNumReasons; ++reason) {
          const std::uint64_t calls = cells_[kind][size][reason].load(std::memory_order_relaxed);
          if (calls != 0) visit(static_cast<Kind>(kind), size, static_cast<Reason>(reason), calls);
        }
      }
    }
  }

 private:
  using BySize = std::array<std::array<std::atomic<std::uint64_t>, kNumReasons>, Counters::kSizeClasses>;
  std::array<BySize, static_cast<std::size_t>(Kind::kCount)> cells_{};
};

// Writes the counters of a communicator of the real library as one JSON line where ROCENANTE_STATS asks for
// it. `core` is our side's communicator of lib/comm, or null.
void write_stats(const Config& config, int rank, int ranks, const std::string& decision, void* core,
                 const ForwardCounters& forwarded);

}  // namespace rocenante::nccl
