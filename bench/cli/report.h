// SPDX-License-Identifier: Apache-2.0
//
// What a run found, and the three forms in which rank 0 writes it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "bench/cli/options.h"
#include "bench/cli/types.h"

namespace rocenante::bench {

// One row's half: out of place or in place. Times are those of the slowest rank.
struct Measurement {
  std::uint64_t iterations = 0;
  double min_us = 0;
  double p50_us = 0;
  double p90_us = 0;
  double p99_us = 0;
  double max_us = 0;
  double algbw_gbps = 0;  // 10^9 bytes per second
  double busbw_gbps = 0;
  std::optional<std::uint64_t> wrong;  // none: not checked
  std::string algorithm;               // path names joined with '+', "none" if no call reached one
};

struct Row {
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  const TypeInfo* type = nullptr;
  const OpInfo* op = nullptr;
  Measurement out_of_place;
  Measurement in_place;
  bool has_in_place = true;  // false: `in_place` was not measured
  int root = -1;             // -1: the collective has none
};

struct RunInfo {
  std::string version;  // of the library
  int ranks = 0;
  std::string transport;  // names joined with '+'
  double clock_ns = 0;    // what one reading of the clock costs
  std::string collective = "all_reduce";
};

void print_header(std::FILE* out, const PerfOptions& options, const RunInfo& info);
void print_row(std::FILE* out, const Row& row);
void print_footer(std::FILE* out, std::uint64_t wrong, double average_busbw_gbps, bool checked);

// One line, with its end.
std::string json_line(const Row& row, bool in_place, const RunInfo& info);

// A complete SVG document.
std::string draw_plot(const std::vector<Row>& rows, const RunInfo& info);

}  // namespace rocenante::bench
