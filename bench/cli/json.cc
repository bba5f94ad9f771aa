// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "bench/cli/report.h"

namespace rocenante::bench {

std::string json_line(const Row& row, bool in_place, const RunInfo& info) {
  const Measurement& measured = in_place ? row.in_place : row.out_of_place;
  nlohmann::ordered_json object;
  object["collective"] = info.collective;
  object["bytes"] = row.bytes;
  object["count"] = row.count;
  object["dtype"] = row.type->name;
  object["op"] = row.op->name;
  if (row.root >= 0) object["root"] = row.root;
  object["ranks"] = info.ranks;
  object["transport"] = info.transport;
  object["algorithm"] = measured.algorithm;
  object["in_place"] = in_place;
  object["iterations"] = measured.iterations;
  object["time_us"] = {{"min", measured.min_us},
                       {"p50", measured.p50_us},
                       {"p90", measured.p90_us},
                       {"p99", measured.p99_us},
                       {"max", measured.max_us}};
  object["algbw_GBps"] = measured.algbw_gbps;
  object["busbw_GBps"] = measured.busbw_gbps;
  object["wrong"] = measured.wrong ? nlohmann::ordered_json(*measured.wrong) : nlohmann::ordered_json();
  return object.dump() + "\n";
}

}  // namespace rocenante::bench
