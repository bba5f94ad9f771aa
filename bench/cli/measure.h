// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "bench/cli/communicator.h"
#include "bench/cli/histogram.h"
#include "bench/cli/options.h"
#include "bench/cli/report.h"
#include "bench/cli/verify.h"

namespace rocenante::bench {

// The cost of one reading of the clock, in nanoseconds.
double clock_cost_ns();

// Measures and checks calls on one communicator. All ranks make the same calls in the same order.
class Meter {
 public:
  // Allocates and touches both buffers for the largest size. Throws RunError if there is no memory.
  Meter(Communicator& comm, const PerfOptions& options);

  // Collective. Fills in everything but the sizes.
  Row measure(const TypeInfo& type, const OpInfo& op, std::uint64_t bytes);

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  using Buffer = std::unique_ptr<unsigned char, Free>;
  static Buffer allocate(std::uint64_t bytes);

  // Where a call's buffers are; in place, the smaller is this rank's block of the larger.
  CallArguments buffers(const Pattern& pattern, bool in_place) const;
  Mismatch check(const Pattern& pattern, const void* result) const;
  Measurement measure_half(const TypeInfo& type, const OpInfo& op, rcnRedOp_t native, std::size_t count,
                           bool in_place);
  // One call, after writing the input if `fill`; returns its nanoseconds.
  std::uint64_t call(Pattern& pattern, rcnRedOp_t native, bool in_place, bool fill);
  void report_mismatch(const Pattern& pattern, const TypeInfo& type, const OpInfo& op, bool in_place,
                       const Mismatch& mismatch);

  Communicator& comm_;
  const PerfOptions& options_;
  const CollectiveInfo& collective_;
  Buffer send_;
  Buffer recv_;
  Histogram histogram_;
  std::uint64_t calls_ = 0;  // the same on all ranks: numbers the payloads
  int reported_ = 0;
};

}  // namespace rocenante::bench
