// SPDX-License-Identifier: Apache-2.0
//
// Explores every interleaving of the protocol text in every scenario.
//   protocol_model [--most-states N] [name prefix]...
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/protocol/model/explore.h"
#include "tests/protocol/model/scenarios.h"

namespace {

using rocenante::model::Result;
using rocenante::model::Scenario;

constexpr std::uint64_t kMostStates = 50'000'000;

bool chosen(const Scenario& scenario, int count, char** prefixes) {
  for (int i = 0; i < count; ++i) {
    if (std::strncmp(scenario.name, prefixes[i], std::strlen(prefixes[i])) == 0) return true;
  }
  return count == 0;
}

// Prints what was found; true if nothing is wrong.
bool report(const Scenario& scenario, const Result& result) {
  std::printf("%-24s %9llu states %10llu steps %7.2f s  ", scenario.name,
              static_cast<unsigned long long>(result.states), static_cast<unsigned long long>(result.steps),
              result.seconds);
  if (scenario.doorbell) std::printf("lead %llu  ", static_cast<unsigned long long>(result.observed));
  std::printf("%s\n", result.violation.empty() ? "holds" : "FAILS");
  std::fflush(stdout);
  // A producer is at most two rounds ahead of its progress thread, and the search has been there.
  const bool lead_is_two = !scenario.doorbell || result.observed == 2;
  if (!lead_is_two) std::printf("  the doorbell's lead is not two\n");
  if (result.violation.empty()) return lead_is_two;
  for (const std::string& step : result.trace) std::printf("    %s\n", step.c_str());
  std::printf("  %s\n", result.violation.c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t most_states = kMostStates;
  int first = 1;
  if (argc > 2 && std::strcmp(argv[1], "--most-states") == 0) {
    most_states = std::strtoull(argv[2], nullptr, 10);
    first = 3;
  }
  bool right = true;
  std::uint64_t states = 0;
  double seconds = 0;
  for (const Scenario& scenario : rocenante::model::kScenarios) {
    if (!chosen(scenario, argc - first, argv + first)) continue;
    const Result result =
        rocenante::model::explore<rocenante::protocol::Mutation::kNone>(scenario, most_states);
    right = report(scenario, result) && right;
    states += result.states;
    seconds += result.seconds;
  }
  std::printf("%llu states in %.1f s: %s\n", static_cast<unsigned long long>(states), seconds,
              right ? "every interleaving is right" : "WRONG");
  return right ? 0 : 1;
}
