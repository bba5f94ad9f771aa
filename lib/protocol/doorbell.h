// SPDX-License-Identifier: Apache-2.0
//
// The ring through which a device tells its progress thread what to put (rule 5). One producer, one
// consumer. An entry carries the whole descriptor, so a consumer that was descheduled over two rounds still
// posts both. It is taken only when its epoch equals the one expected next; a larger one means that an
// entry was overwritten, which the protocol excludes (a producer is at most two rounds ahead) and which is
// therefore fatal.
#pragma once

#include <cstdint>

#include "lib/protocol/layout.h"
#include "lib/protocol/mutation.h"

namespace rocenante::protocol {

inline constexpr std::uint64_t kDoorbellEntries = 8;

struct PutDescriptor {
  std::uint64_t bytes;
  std::uint64_t tag;
};

struct alignas(32) DoorbellEntry {
  PutDescriptor put;
  std::uint64_t epoch;  // stored last, with release
};

struct DoorbellRing {
  alignas(kLineBytes) DoorbellEntry entries[kDoorbellEntries];
};

enum class Taken : std::uint8_t { kNothing, kEntry, kOverrun };

template <class Env>
RCN_HD constexpr std::uint64_t entry_of(std::uint64_t epoch) {
  if constexpr (Env::kMutation == Mutation::kOneDoorbell || Env::kMutation == Mutation::kDoorbellAtLeast)
    return 0;
  return epoch % kDoorbellEntries;
}

template <class Env>
RCN_HD void ring_doorbell(Env& env, DoorbellRing& ring, std::uint64_t epoch, const PutDescriptor& put) {
  DoorbellEntry& entry = ring.entries[entry_of<Env>(epoch)];
  env.store_relaxed(&entry.put.bytes, put.bytes);
  env.store_relaxed(&entry.put.tag, put.tag);
  env.store_release(&entry.epoch, epoch);
}

// Takes the entry of `next`, if it is there. The caller then expects next + 1.
template <class Env>
RCN_HD Taken take_doorbell(Env& env, DoorbellRing& ring, std::uint64_t next, PutDescriptor& put) {
  DoorbellEntry& entry = ring.entries[entry_of<Env>(next)];
  const std::uint64_t seen = env.load_acquire(&entry.epoch);
  if (seen < next) return Taken::kNothing;
  if constexpr (Env::kMutation != Mutation::kDoorbellAtLeast) {
    if (seen > next) return Taken::kOverrun;
  }
  put.bytes = env.load_relaxed(&entry.put.bytes);
  put.tag = env.load_relaxed(&entry.put.tag);
  return Taken::kEntry;
}

}  // namespace rocenante::protocol
