// SPDX-License-Identifier: Apache-2.0
//
// Sleeping on memory that only CPUs write (rule 5). The sleeper sets its flag, fences and looks again; the
// waker publishes, fences and tests the flag. Of two such pairs at least one sees the other's store, so no
// wake is lost.
#pragma once

#include <cstdint>

#include "lib/protocol/layout.h"
#include "lib/protocol/mutation.h"

namespace rocenante::protocol {

// Sleeps until woken or `limit_ns` has passed, unless `ready()` holds. May return early; callers loop.
template <class Env, class Ready>
void sleep_unless(Env& env, WakeLine* own, std::uint64_t limit_ns, Ready&& ready) {
  const std::uint32_t before = env.load_acquire(&own->sequence);
  env.store_relaxed(&own->sleeping, std::uint32_t{1});
  if constexpr (Env::kMutation != Mutation::kNoFence) env.fence();
  bool awake = false;
  if constexpr (Env::kMutation != Mutation::kNoRecheck) awake = ready();
  if (!awake) env.wait(&own->sequence, before, limit_ns);
  env.store_relaxed(&own->sleeping, std::uint32_t{0});
}

// Wakes the owner of `line` if it sleeps. Called after the publishing stores and a full fence.
template <class Env>
RCN_HD void notify_if_sleeping(Env& env, WakeLine* line) {
  if (env.load_relaxed(&line->sleeping) == 0) return;
  env.fetch_add(&line->sequence, std::uint32_t{1});
  env.notify(&line->sequence);
}

}  // namespace rocenante::protocol
