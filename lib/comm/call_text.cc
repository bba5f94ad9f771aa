// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/call_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace rocenante {
namespace {

constexpr std::array<const char*, reduce::kNumDataTypes> kTypeNames = {
    "int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
    "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
constexpr std::array<const char*, 6> kOperatorNames = {"sum", "prod", "max",
                                                       "min", "avg",  "pre-multiplied sum"};
constexpr std::array<const char*, kNumCollectives> kCollectiveNames = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall"};
constexpr std::array<const char*, kNumPaths> kPathNames = {"local", "one_shot_inline", "one_shot",
                                                           "one_shot_rounds", "two_round"};

template <std::size_t kSize>
const char* name_at(const std::array<const char*, kSize>& names, std::uint64_t index) {
  return index < kSize ? names[index] : "unknown";
}

std::string describe(std::uint64_t collective, std::uint64_t type, std::uint64_t op, std::uint64_t root,
                     std::uint64_t count) {
  std::string text =
      fmt::format("{} of {} {}", name_at(kCollectiveNames, collective), count, name_at(kTypeNames, type));
  const auto known = static_cast<Collective>(std::min<std::uint64_t>(collective, kNumCollectives));
  if (reduces(known)) text += fmt::format(" {}", name_at(kOperatorNames, op));
  if (has_root(known)) {
    text += fmt::format(" {} root {}", known == Collective::kBroadcast ? "from" : "to", root);
  }
  return text;
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
  return describe((tag >> 60) - 1, (tag >> 56) & 0xf, (tag >> 52) & 0xf, (tag >> 40) & 0xfff,
                  tag & ((std::uint64_t{1} << 40) - 1));
}

std::string describe_call(const CollectiveCall& call) {
  return describe(static_cast<std::uint64_t>(call.collective), static_cast<std::uint64_t>(call.type),
                  std::min<std::uint32_t>(call.op, 5), call.root, call.count);
}

}  // namespace rocenante
