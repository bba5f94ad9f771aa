// SPDX-License-Identifier: Apache-2.0
//
// A call's fingerprint, which rides beside the epoch so that ranks that call different things find out, and
// its words.
#pragma once

#include <cstdint>
#include <string>

#include "lib/comm/call.h"

namespace rocenante {

// Bits: collective 4, type 4, operator 4, root 12, count 40. Never 0, since a signal line begins as zeros.
constexpr std::uint64_t call_tag(Collective collective, reduce::DataType type, std::uint32_t op,
                                 std::uint32_t root, std::uint64_t count) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(collective) + 1) << 60) |
         (static_cast<std::uint64_t>(type) << 56) | (static_cast<std::uint64_t>(op & 0xf) << 52) |
         (static_cast<std::uint64_t>(root & 0xfff) << 40) | (count & ((std::uint64_t{1} << 40) - 1));
}
static_assert(kNumCollectives < 16 && reduce::kNumDataTypes <= 16 && reduce::kMaxInputs <= 4096);

const char* collective_name(Collective collective);
const char* type_name(reduce::DataType type);
const char* operator_name(std::uint32_t op);

// "all_reduce of 1024 float32 sum", "broadcast of 3 int8 from root 1". Any value is safe: a tag comes from
// a peer.
std::string describe_tag(std::uint64_t tag);
std::string describe_call(const CollectiveCall& call);

}  // namespace rocenante
