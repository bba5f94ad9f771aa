// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/counters.h"

#include <unistd.h>

#include "lib/comm/boundary.h"
#include "lib/comm/call_text.h"

namespace rocenante::nccl {
namespace {

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string calls_of(void* core, const ForwardCounters& forwarded) {
  std::string calls;
  const auto add = [&](std::string_view text) {
    calls += fmt::format("{}{}", calls.empty() ? "" : ",", text);
  };
  const Result<PinnedUse> use = PinnedUse::begin(core);
  if (use.ok()) {
    (*use.value())
        .counters()
        .for_each([&](std::uint32_t collective, std::uint32_t size_class, std::uint32_t path,
                      std::uint64_t count, std::uint64_t bytes) {
          add(fmt::format(R"({{"collective":"{}","size_class":{},"path":"{}","calls":{},"bytes":{}}})",
                          collective_name(static_cast<Collective>(collective)), size_class,
                          path_name(static_cast<Path>(path)), count, bytes));
        });
  }
  forwarded.for_each([&](Kind kind, std::uint32_t size_class, Reason reason, std::uint64_t count) {
    add(fmt::format(R"({{"collective":"{}","size_class":{},"path":"nccl","reason":"{}","calls":{}}})",
                    kind_name(kind), size_class, reason_name(reason), count));
  });
  return calls;
}

}  // namespace

const char* kind_name(Kind kind) {
  static constexpr const char* kNames[] = {"all_reduce",     "broadcast",  "reduce", "all_gather",
                                           "reduce_scatter", "all_to_all", "gather", "scatter",
                                           "send",           "recv"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Kind::kCount));
  return kNames[static_cast<std::size_t>(kind)];
}

Kind kind_of(Collective collective) {
  static constexpr Kind kKinds[] = {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter,
                                    Kind::kBroadcast, Kind::kReduce,    Kind::kAllToAll};
  static_assert(std::size(kKinds) == kNumCollectives);
  return kKinds[static_cast<std::size_t>(collective)];
}

const char* reason_name(Reason reason) {
  static constexpr const char* kNames[] = {"not native", "size", "operator", "not taking part"};
  static_assert(std::size(kNames) == kNumReasons);
  return kNames[static_cast<std::size_t>(reason)];
}

void write_stats(const Config& config, int rank, int ranks, const std::string& decision, void* core,
                 const ForwardCounters& forwarded) {
  if (config.integer(Key::kStats) == 0) return;
  write_stats_line(
      fmt::format(R"({{"rocenante_nccl":1,"pid":{},"rank":{},"ranks":{},"decision":{},"calls":[{}]}})",
                  ::getpid(), rank, ranks, quoted(decision), calls_of(core, forwarded)),
      config.text(Key::kStatsFile), static_cast<std::uint32_t>(rank));
}

}  // namespace rocenante::nccl
