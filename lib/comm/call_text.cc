// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/call_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "lib/comm/communicator.h"

namespace rocenante {
namespace {

constexpr std::array<const char*, reduce::kNumDataTypes> kTypeNames = {
    "int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
    "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
constexpr std::array<const char*, 6> kOperatorNames = {"sum", "prod", "max",
                                                       "min", "avg",  "pre-multiplied sum"};
constexpr std::array<const char*, kNumCollectives> kCollectiveNames = {"all_reduce"};
constexpr std::array<const char*, kNumPaths> kPathNames = {"local", "one_shot_inline", "one_shot",
                                                           "one_shot_rounds"};

template <std::size_t kSize>
const char* name_at(const std::array<const char*, kSize>& names, std::uint64_t index) {
  return index < kSize ? names[index] : "unknown";
}

}  // namespace

const char* path_name(Path path) {
  return name_at(kPathNames, static_cast<std::uint64_t>(path));
}
const char* collective_name(Collective collective) {
  return name_at(kCollectiveNames, static_cast<std::uint64_t>(collective));
}
const char* type_name(reduce::DataType type) {
  return name_at(kTypeNames, static_cast<std::uint64_t>(type));
}
const char* operator_name(std::uint32_t op) {
  return name_at(kOperatorNames, std::min<std::uint32_t>(op, 5));
}

std::string describe_tag(std::uint64_t tag) {
  if (tag == 0) return "nothing";
  return fmt::format("{} of {} {} {}", name_at(kCollectiveNames, (tag >> 56) - 1),
                     tag & ((std::uint64_t{1} << 40) - 1), name_at(kTypeNames, (tag >> 48) & 0xff),
                     name_at(kOperatorNames, (tag >> 40) & 0xff));
}

std::string describe_call(const AllReduceCall& call) {
  return fmt::format("{} of {} {} {}", collective_name(Collective::kAllReduce), call.count,
                     type_name(call.type), operator_name(call.op));
}

}  // namespace rocenante
