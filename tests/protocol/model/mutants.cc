// SPDX-License-Identifier: Apache-2.0
//
// The score of the mutants: for each deliberate fault of the protocol text the scenario in which the search
// finds it. Beside them the controls: the same text, or the same fault, where nothing may be found, so that
// what was found is due to what the table says. Exits with 1 if a mutant survives or a control fails.
#include <cstdio>
#include <cstring>

#include "tests/protocol/model/explore.h"
#include "tests/protocol/model/scenarios.h"

namespace {

using rocenante::model::Result;
using rocenante::model::Scenario;
using rocenante::protocol::Mutation;

constexpr std::uint64_t kMostStates = 20'000'000;

struct Case {
  const char* name;
  const char* scenario;
  bool caught;  // or nothing may be found
  Result (*explore)(const Scenario&, std::uint64_t);
};

template <Mutation kMutant>
constexpr Case caught(const char* name, const char* scenario) {
  return {name, scenario, true, rocenante::model::explore<kMutant>};
}
template <Mutation kMutant>
constexpr Case holds(const char* name, const char* scenario) {
  return {name, scenario, false, rocenante::model::explore<kMutant>};
}

constexpr Case kCases[] = {
    caught<Mutation::kOneParity>("one parity", "same-call-2x4"),
    caught<Mutation::kOneParity>("one parity", "carried-2x5"),
    caught<Mutation::kEquality>("== for >=, one signal line", "same-call-2x4"),
    caught<Mutation::kOneSignalLine>("one signal line", "same-call-inline-2x4"),
    caught<Mutation::kNoClosingRound>("no closing round", "user-buffer-2x3"),
    caught<Mutation::kNoGoodbye>("no goodbye", "leave-2x2"),
    caught<Mutation::kNoRecheck>("no re-check before sleeping", "sleep-2x4"),
    caught<Mutation::kNoFence>("no fence around the flag", "weak-sleep-2x3"),
    caught<Mutation::kRelaxedSignal>("signal read relaxed", "weak-mapped-2x5"),
    caught<Mutation::kSignalFirst>("signal before payload", "same-call-inline-2x4"),
    caught<Mutation::kAdvanceOnAbort>("advance on abort", "abort-2x3"),
    caught<Mutation::kSharedCounter>("one counter to stage and finish", "parts-2x4"),
    caught<Mutation::kOneStageCounter>("one staging counter", "parts-2x4"),
    caught<Mutation::kEarlyPublish>("first arriver publishes", "parts-2x4"),
    caught<Mutation::kDeafDrain>("abort does not end draining", "abort-lost-2x2"),
    caught<Mutation::kOneDoorbell>("doorbell of one entry", "doorbell-2x5"),
    caught<Mutation::kSharedCounter>("one counter to stage and finish", "device-parts-2x2"),
    caught<Mutation::kOneDoorbell>("doorbell of one entry", "device-doorbell-2x4"),
    caught<Mutation::kOneDoorbell>("doorbell of one entry, noticed", "device-doorbell-same-2x4"),
    caught<Mutation::kDoorbellAtLeast>("doorbell of one entry, >= for ==", "device-doorbell-2x4"),
    caught<Mutation::kAdvanceOnAbort>("advance on abort", "device-deadline-2x2"),
    caught<Mutation::kStateAfterSignal>("gone looked at after the signal", "device-goes-3x1"),
    caught<Mutation::kDeafEntry>("launch deaf to an earlier abort", "device-abort-2x3"),
    caught<Mutation::kRecordLast>("record after the abort word", "device-gone-2x2"),
    caught<Mutation::kOneSentTag>("one tag for both slots", "tagged-same-2x4"),
    caught<Mutation::kOneSentTag>("one tag for both slots", "tagged-pieces-2x6"),
    caught<Mutation::kSameSlot>("slice into the slot in use", "gather-2x3"),

    holds<Mutation::kOneSignalLine>("  >=, one signal line, slots", "same-call-2x4"),
    holds<Mutation::kEqualityTwoLines>("  == for >=, two lines", "mapped-3x4"),
    holds<Mutation::kEqualityTwoLines>("  == for >=, two lines", "pieces-2x6"),
    holds<Mutation::kEqualityTwoLines>("  == for >=, two lines", "parts-2x4"),
    holds<Mutation::kEqualityTwoLines>("  == for >=, two lines", "rails-2x4"),
    holds<Mutation::kEqualityTwoLines>("  == for >=, two lines", "doorbell-2x5"),
    holds<Mutation::kStateAfterSignal>("  gone after the signal, one peer", "device-gone-2x2"),
    holds<Mutation::kDoorbellAtLeast>("  one entry, >=: unnoticed", "device-doorbell-same-2x4"),
    holds<Mutation::kNoAdoption>("  refused, not adopted", "device-abort-2x3"),
    holds<Mutation::kNoAdoption>("  refused, not adopted", "device-abort-parts-2x2"),
    holds<Mutation::kNoFence>("  no fence, strong memory", "sleep-2x4"),
    holds<Mutation::kRelaxedSignal>("  relaxed, strong memory", "mapped-2x5"),
};

const Scenario* find(const char* name) {
  for (const Scenario& scenario : rocenante::model::kScenarios) {
    if (std::strcmp(scenario.name, name) == 0) return &scenario;
  }
  return nullptr;
}

// Only the verdict's cause; the long list of who waits for what is the model's to print.
std::string cause(const Result& result) {
  if (result.violation.empty()) return "nothing found";
  return result.violation.substr(0, result.violation.find(';'));
}

bool run(const Case& test, bool traced) {
  const Scenario* const scenario = find(test.scenario);
  if (scenario == nullptr) {
    std::printf("%-34s no scenario %s\n", test.name, test.scenario);
    return false;
  }
  const Result result = test.explore(*scenario, kMostStates);
  const bool finished = result.violation.rfind("too many", 0) != 0;
  const bool right = finished && result.violation.empty() != test.caught;
  std::printf("%-34s %-22s %8llu states, trace %3zu  %s%s\n", test.name, scenario->name,
              static_cast<unsigned long long>(result.states), result.trace.size(),
              right ? "" : "WRONG: ", cause(result).c_str());
  for (std::size_t i = 0; traced && i < result.trace.size(); ++i) {
    std::printf("    %s\n", result.trace[i].c_str());
  }
  return right;
}

}  // namespace

// mutants [--trace] prints the schedule that shows each fault.
int main(int argc, char** argv) {
  const bool traced = argc > 1 && std::strcmp(argv[1], "--trace") == 0;
  int wrong = 0, mutants = 0, survivors = 0;
  for (const Case& test : kCases) {
    const bool right = run(test, traced);
    wrong += right ? 0 : 1;
    mutants += test.caught ? 1 : 0;
    survivors += test.caught && !right ? 1 : 0;
  }
  std::printf("%d of %d caught; %d controls wrong\n", mutants - survivors, mutants, wrong - survivors);
  return wrong == 0 ? 0 : 1;
}
