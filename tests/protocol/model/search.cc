// SPDX-License-Identifier: Apache-2.0
//
// The depth-first search of the Machine.
#include <chrono>

#include "tests/protocol/model/machine.h"

namespace rocenante::model {
namespace {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kLoad:
      return "load";
    case Kind::kLoadAcquire:
      return "load-acquire";
    case Kind::kStore:
      return "store";
    case Kind::kStoreRelease:
      return "store-release";
    case Kind::kAdd:
      return "fetch-add";
    case Kind::kClaim:
      return "claim";
    case Kind::kArrive:
      return "arrive";
    case Kind::kMove:
      return "move";
    case Kind::kFence:
      return "fence";
    case Kind::kAwait:
      return "await";
    case Kind::kSleep:
      return "sleep";
    case Kind::kSleepEnd:
      return "wake up";
    case Kind::kNotify:
      return "notify";
    case Kind::kFree:
      return "free";
  }
  return "?";
}

}  // namespace

std::string Machine::words(const Access& access, const Memory& memory) {
  std::string text = name_of(access.kind);
  if (access.location != kNowhere) text += " " + memory.name(access.location);
  const bool valued = access.kind == Kind::kStore || access.kind == Kind::kClaim ||
                      access.kind == Kind::kStoreRelease || access.kind == Kind::kAwait ||
                      access.kind == Kind::kFree;
  if (valued) text += " " + std::to_string(access.value);
  return text;
}

std::string Machine::describe(const Frame& frame) const {
  return agents_[frame.agent].name + ": " + words(frame.taken, memory_);
}

bool Machine::next_step(Frame& frame, std::uint32_t& agent, unsigned& choice) {
  for (; frame.try_agent < agents_.size(); ++frame.try_agent, frame.try_choice = 0) {
    const Agent& candidate = agents_[frame.try_agent];
    if (!enabled(candidate)) continue;
    unsigned choices = 1;
    if (candidate.next.kind == Kind::kLoad || candidate.next.kind == Kind::kLoadAcquire) {
      choices = memory_.choices(frame.try_agent, candidate.next.location);
    } else if (candidate.next.kind == Kind::kMove) {
      choices = memory_.choices(frame.try_agent, candidate.next.from);
    }
    if (frame.try_choice >= choices) continue;
    agent = frame.try_agent;
    choice = frame.try_choice++;
    return true;
  }
  return false;
}

std::string Machine::judge_end(const std::function<std::string()>& check) const {
  std::string waiting;
  for (const Agent& agent : agents_) {
    if (!agent.finished && !agent.daemon)
      waiting += "; " + agent.name + " at " + words(agent.next, memory_);
  }
  return waiting.empty() ? check() : "deadlock" + waiting;
}

void Machine::search(const std::function<std::string()>& check, std::uint64_t most_states, Result& result) {
  std::vector<Frame> path(1);
  seen_.insert(hash());
  while (!path.empty() && violation_.empty()) {
    std::uint32_t agent;
    unsigned choice;
    if (!next_step(path.back(), agent, choice)) {
      if (!path.back().moved) violation_ = judge_end(check);
      if (!violation_.empty()) break;
      if (path.size() > 1) undo_step(path.back());
      path.pop_back();
      continue;
    }
    path.back().moved = true;
    path.push_back(take_step(agent, choice));
    ++result.steps;
    if (!violation_.empty()) break;
    if (!seen_.insert(hash())) {
      undo_step(path.back());
      path.pop_back();
    } else if (seen_.size() > most_states) {
      violation_ = "too many states: the search was not finished";
    }
  }
  for (std::size_t i = 1; i < path.size(); ++i) result.trace.push_back(describe(path[i]));
  while (path.size() > 1) {
    undo_step(path.back());
    path.pop_back();
  }
}

Result Machine::explore(const std::function<std::string()>& check, std::uint64_t most_states) {
  const auto start = std::chrono::steady_clock::now();
  Result result;
  for (std::uint32_t i = 0; i < agents_.size(); ++i) run_agent(i, 0, 0);
  do {
    result = Result{};
    seen_.clear();
    memory_.take_grown();
    search(check, most_states, result);
  } while (memory_.weak() && violation_.empty() && memory_.take_grown());
  result.violation = violation_;
  result.states = seen_.size();
  result.observed = observed_;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace rocenante::model
