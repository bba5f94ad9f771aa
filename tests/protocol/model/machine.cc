// SPDX-License-Identifier: Apache-2.0
#include "tests/protocol/model/machine.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace rocenante::model {
namespace {

bool stores(Kind kind) {
  return kind == Kind::kStore || kind == Kind::kStoreRelease || kind == Kind::kAdd ||
         kind == Kind::kClaim || kind == Kind::kArrive || kind == Kind::kMove;
}

bool loads(Kind kind) {
  return kind == Kind::kLoad || kind == Kind::kLoadAcquire;
}

}  // namespace

void Machine::add_agent(std::string name, std::unique_ptr<Program> program, bool daemon) {
  agents_.push_back({});
  agents_.back().name = std::move(name);
  agents_.back().program = std::move(program);
  agents_.back().daemon = daemon;
  memory_.set_agents(static_cast<std::uint32_t>(agents_.size()));
}

Location Machine::locate(const void* address) {
  const Location location = memory_.find(address);
  if (location == kNowhere) {
    note("access to an address that nobody owns");
    leave();
  }
  return location;
}

// The one place where a program meets the world: first its past, then one access of its own, then the end
// of the step.
Word Machine::access(const Access& wanted) {
  Agent& agent = agents_[current_];
  if (cursor_ < agent.log.size()) {
    const Entry& entry = agent.log[cursor_++];
    if (entry.access.kind != wanted.kind || entry.access.location != wanted.location) {
      std::fprintf(stderr, "model: %s does not depend on its log alone\n", agent.name.c_str());
      std::abort();
    }
    return entry.result;
  }
  const bool silent = wanted.location != kNowhere && memory_.silent(wanted.location) &&
                      (wanted.from == kNowhere || memory_.silent(wanted.from));
  if (!silent && !wanted.attached) {
    if (budget_ == 0) {
      agent.next = wanted;
      leave();
    }
    --budget_;
  }
  std::uint32_t version = 0;
  const Word result = perform(wanted, silent || wanted.attached ? 0 : choice_, version);
  agent.log.push_back({wanted, result, version, agent.digest});
  agent.digest = mix(agent.digest ^ mix(result + (static_cast<Word>(wanted.kind) << 56)));
  ++cursor_;
  return result;
}

Word Machine::perform(const Access& access, unsigned choice, std::uint32_t& version) {
  for (const Location location : {access.location, access.from}) {
    if (location == kNowhere) continue;
    const bool stored = stores(access.kind) && location == access.location;
    if (!memory_.may_access(current_, location, stored)) {
      note("access to another's: " + memory_.name(location));
      leave();
    }
    if (memory_.freed(location)) {
      note("access to freed memory: " + memory_.name(location));
      leave();
    }
  }
  switch (access.kind) {
    case Kind::kLoad:
    case Kind::kLoadAcquire:
      return memory_.load(current_, access.location, choice, access.kind == Kind::kLoadAcquire, version);
    case Kind::kStore:
    case Kind::kStoreRelease:
      memory_.store(current_, access.location, access.value, access.kind == Kind::kStoreRelease);
      wake(access.location);
      return 0;
    case Kind::kAdd: {
      const Word before = memory_.add(current_, access.location, access.value);
      wake(access.location);
      return before;
    }
    case Kind::kClaim: {
      if (memory_.newest(access.location) != 0)
        return memory_.load(current_, access.location, 0, true, version);
      memory_.add(current_, access.location, access.value);
      wake(access.location);
      return 0;
    }
    case Kind::kArrive: {
      const Word before = memory_.add(current_, access.location, 1);
      wake(access.location);
      return (before / access.value + 1) * access.value;
    }
    case Kind::kMove:
      memory_.store(current_, access.location, memory_.load(current_, access.from, choice, false, version),
                    false);
      wake(access.location);
      return 0;
    case Kind::kFence:
      memory_.fence(current_);
      return 0;
    case Kind::kAwait:
      return memory_.load(current_, access.location, 0, true, version);
    case Kind::kSleep: {
      // The kernel looks at the newest value, and so has this agent then.
      const bool asleep = memory_.load(current_, access.location, 0, false, version) == access.value;
      if (asleep) memory_.store(current_, access.from, 1, false);
      return asleep ? 1 : 0;
    }
    case Kind::kSleepEnd:
      return 0;
    case Kind::kNotify:
      memory_.store(current_, access.from, 0, false);
      return 0;
    case Kind::kFree:
      memory_.free_region(static_cast<std::uint8_t>(access.value));
      return 0;
  }
  return 0;
}

void Machine::wake(Location location) {
  for (Agent& agent : agents_) {
    for (std::uint32_t i = 0; agent.blocked && i < agent.blocking_count; ++i) {
      if (agent.blocking[i] == location) agent.blocked = false;
    }
  }
}

void Machine::leave() {
  std::longjmp(out_, 1);
}

void Machine::note(const std::string& what) {
  if (violation_.empty()) violation_ = agents_[current_].name + ": " + what;
}

void Machine::pending() {
  const Agent& agent = agents_[current_];
  std::size_t begin = agent.log.size();
  do {
    if (begin == agent.log_begin) std::abort();
    --begin;
  } while (memory_.is_abort_word(agent.log[begin].access.location));
  pending(begin);
}

// What the look read of memory that nobody changes stays in the log: the agent's next access is one that
// others can tell.
void Machine::pending(std::size_t begin) {
  Agent& agent = agents_[current_];
  while (memory_.silent(agent.log.at(begin).access.location)) ++begin;
  bool newest = true;
  agent.blocking_count = 0;
  for (std::size_t i = begin; i < agent.log.size(); ++i) {
    const Entry& entry = agent.log[i];
    if (!loads(entry.access.kind)) std::abort();
    if (memory_.silent(entry.access.location)) continue;
    newest = newest && entry.version == memory_.version(entry.access.location);
    if (agent.blocking_count == kMostBlocking) std::abort();
    agent.blocking[agent.blocking_count++] = entry.access.location;
  }
  agent.blocked = newest;
  agent.next = agent.log[begin].access;
  agent.digest = agent.log[begin].digest_before;
  for (std::size_t i = begin; i < agent.log.size(); ++i) dropped_.push_back(agent.log[i]);
  agent.log.resize(begin);
  leave();
}

void Machine::commit(std::uint32_t stage) {
  Agent& agent = agents_[current_];
  agent.stage = stage;
  agent.log_begin = agent.log.size();
  agent.digest = mix(stage);
}

void Machine::forget(std::uint64_t key) {
  Agent& agent = agents_[current_];
  if (cursor_ == agent.log.size()) agent.digest = mix(key);
}

bool Machine::enabled(const Agent& agent) const {
  if (agent.finished || agent.blocked) return false;
  if (agent.next.kind == Kind::kAwait) return memory_.newest(agent.next.location) >= agent.next.value;
  if (agent.next.kind == Kind::kSleepEnd) return memory_.newest(agent.next.from) == 0;
  return true;
}

void Machine::run_agent(std::uint32_t index, unsigned choice, unsigned budget) {
  current_ = index;
  cursor_ = agents_[index].log_begin;
  choice_ = choice;
  budget_ = budget;
  if (setjmp(out_) != 0) return;
  agents_[current_].program->run(*this, agents_[current_].stage);
  agents_[current_].finished = true;
  agents_[current_].digest = 1;
  memory_.retire(current_);
}

Machine::Frame Machine::take_step(std::uint32_t index, unsigned choice) {
  const Agent& agent = agents_[index];
  Frame frame{};
  frame.agent = index;
  frame.taken = agent.next;
  frame.log_size = agent.log.size();
  frame.log_begin = agent.log_begin;
  frame.memory_mark = memory_.mark();
  frame.dropped_begin = dropped_.size();
  frame.digest = agent.digest;
  frame.next = agent.next;
  frame.stage = agent.stage;
  frame.blocking_count = agent.blocking_count;
  for (std::size_t i = 0; i < kMostBlocking; ++i) frame.blocking[i] = agent.blocking[i];
  frame.finished = agent.finished;
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    frame.blocked_mask |= static_cast<std::uint32_t>(agents_[i].blocked) << i;
  }
  run_agent(index, choice, 1);
  return frame;
}

void Machine::undo_step(const Frame& frame) {
  Agent& agent = agents_[frame.agent];
  // Entries of before this step may have been dropped in it; those it added itself are not wanted back.
  std::size_t from = frame.dropped_begin;
  if (agent.log.size() > frame.log_size) agent.log.resize(frame.log_size);
  while (agent.log.size() < frame.log_size) agent.log.push_back(dropped_[from++]);
  dropped_.resize(frame.dropped_begin);
  agent.log_begin = frame.log_begin;
  agent.digest = frame.digest;
  agent.next = frame.next;
  agent.stage = frame.stage;
  agent.blocking_count = frame.blocking_count;
  for (std::size_t i = 0; i < kMostBlocking; ++i) agent.blocking[i] = frame.blocking[i];
  agent.finished = frame.finished;
  for (std::size_t i = 0; i < agents_.size(); ++i) agents_[i].blocked = (frame.blocked_mask >> i & 1) != 0;
  memory_.roll_back(frame.memory_mark);
}

std::uint64_t Machine::hash() const {
  std::uint64_t hash = memory_.hash();
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    const Agent& agent = agents_[i];
    hash += mix(mix(agent.digest + i) ^ (static_cast<std::uint64_t>(agent.stage) << 8) ^
                (agent.blocked ? 2u : 0u) ^ (agent.finished ? 1u : 0u));
  }
  return mix(hash);
}

}  // namespace rocenante::model
