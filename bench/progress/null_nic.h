// SPDX-License-Identifier: Apache-2.0
//
// An adapter that sends nothing, behind the table of verbs: a post builds one 64-byte entry for each
// request in its queue pair's ring and stores one doorbell, as a provider of real adapters does, and every
// request has completed when somebody polls. What is left of the time of a post is software.
#pragma once

#include <cstdint>

#include "transports/verbs/api.h"

namespace rocenante::bench {

// Adapters "null0" to "null7".
const VerbsApi& null_api();

// Counts posts down from `posts`, and notes the clock when the last one has stored its doorbell.
void expect_posts(std::uint32_t posts);
// Ticks at that time.
std::uint64_t last_post();

// A clock that costs little; see ticks_per_ns().
inline std::uint64_t ticks() {
#if defined(__x86_64__)
  std::uint32_t processor;
  const std::uint64_t now = __builtin_ia32_rdtscp(&processor);
  __builtin_ia32_lfence();
  return now;
#elif defined(__aarch64__)
  std::uint64_t now;
  asm volatile("isb; mrs %0, cntvct_el0; isb" : "=r"(now)::"memory");
  return now;
#endif
}

}  // namespace rocenante::bench
