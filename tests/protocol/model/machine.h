// SPDX-License-Identifier: Apache-2.0
//
// Runs agents (threads of ranks, NIC queues, a progress thread, somebody who aborts) over one Memory and
// explores every interleaving of their accesses.
//
// An agent is a program whose behaviour depends only on what its accesses return, so its state is the log
// of those results: a step replays the program over its log, lets one more access happen, runs on to the
// next access and leaves the program there. No thread, no fibre, nothing that a sanitizer must be told of.
//
// Why the search is exhaustive although it prunes:
//   * A state is the memory and every agent's log digest. Equal logs mean equal agents, so a state seen
//     before has been explored with all that can follow. (States are kept as 64-bit fingerprints: with 10^7
//     of them two differ but collide with a chance below 10^-5.)
//   * commit(stage) forgets the log: the program promises that from here on it depends only on `stage` and
//     memory.
//   * forget(key) is the same promise for everything but the log, which is still needed to get there.
//   * Accesses to memory that nobody else can see (Memory: private, constant, write-only) commute with
//   every
//     other agent's steps and so are taken together with the step before them.
//   * An attached access is one of which its place in the code says why it commutes.
//   * pending() ends a look that found nothing, which began where the program says. It changed nothing, so
//     the agent is put back to just before it, and is not scheduled until a location that the look read has
//     been stored to: until then it would find the same. Spinning therefore adds no states, and "nobody can
//     be scheduled" is a deadlock. (In weak mode an agent that looked at old values may look again: newer
//     ones are there.)
#pragma once

#include <csetjmp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/protocol/model/memory.h"
#include "tests/protocol/model/state_set.h"

namespace rocenante::model {

enum class Kind : std::uint8_t {
  kLoad,
  kLoadAcquire,
  kStore,
  kStoreRelease,
  kAdd,
  kClaim,     // stores `value` if the location holds 0; result: what it held
  kArrive,    // adds 1; result: what the location holds when all of `value` agents have arrived
  kMove,      // one word from `from` to `location`: a NIC's read and write
  kFence,     // sequentially consistent
  kAwait,     // acquire; can happen only when the location holds at least `value`
  kSleep,     // futex: asleep (`from` = 1) if the location still holds `value`
  kSleepEnd,  // can happen only when `from` is 0 again
  kNotify,    // futex: `from` = 0
  kFree       // region `value` is given back; whoever touches it later is wrong
};

struct Access {
  Kind kind;
  Location location = kNowhere;
  Location from = kNowhere;
  Word value = 0;
  bool attached = false;  // happens in the same step as the access before it
};

class Machine;

class Program {
 public:
  virtual ~Program() = default;
  virtual void run(Machine& machine, std::uint32_t stage) = 0;
};

struct Result {
  std::string violation;  // empty: every interleaving is right
  std::vector<std::string> trace;
  std::uint64_t states = 0;
  std::uint64_t steps = 0;
  std::uint64_t observed = 0;  // the largest value given to observe()
  double seconds = 0;
};

class Machine {
 public:
  explicit Machine(Memory& memory) : memory_(memory) {}

  // A daemon may be waiting when everybody else has finished.
  void add_agent(std::string name, std::unique_ptr<Program> program, bool daemon);

  // For programs.
  Word access(const Access& wanted);
  Location locate(const void* address);
  [[noreturn]] void pending();  // the look began with the last load that was not of the abort word
  [[noreturn]] void pending(std::size_t begin);
  std::size_t position() const { return cursor_; }  // in the log
  void commit(std::uint32_t stage);
  void forget(std::uint64_t key);
  // What was found wrong; then leave() at once, in a statement of its own: no destructor runs.
  void note(const std::string& what);
  [[noreturn]] void leave();
  void observe(std::uint64_t value) { observed_ = value > observed_ ? value : observed_; }
  std::uint32_t stage_of(std::uint32_t agent) const { return agents_[agent].stage; }
  Memory& memory() { return memory_; }

  // `check` judges the end of a run: empty is right.
  Result explore(const std::function<std::string()>& check, std::uint64_t most_states);

 private:
  static constexpr std::size_t kMostBlocking = 8;
  struct Entry {
    Access access;
    Word result;
    std::uint32_t version;  // of the message read
    std::uint64_t digest_before;
  };
  struct Agent {
    std::string name;
    std::unique_ptr<Program> program;
    bool daemon;
    bool finished = false;
    bool blocked = false;  // until one of `blocking` is stored to
    std::uint32_t stage = 0;
    std::uint32_t blocking_count = 0;
    Location blocking[kMostBlocking] = {};
    Access next{};
    std::size_t log_begin = 0;
    std::uint64_t digest = 0;
    std::vector<Entry> log;
  };
  // What undoes a step.
  struct Frame {
    std::uint32_t agent;  // that took the step
    Access taken;
    std::size_t log_size, log_begin, memory_mark, dropped_begin;
    std::uint64_t digest;
    Access next;
    std::uint32_t stage, blocked_mask, blocking_count;
    Location blocking[kMostBlocking];
    bool finished;
    // The search below this state.
    std::uint32_t try_agent = 0;
    unsigned try_choice = 0;
    bool moved = false;
  };

  bool enabled(const Agent& agent) const;
  void run_agent(std::uint32_t index, unsigned choice, unsigned budget);
  Word perform(const Access& access, unsigned choice, std::uint32_t& version);
  void wake(Location location);
  Frame take_step(std::uint32_t agent, unsigned choice);
  void undo_step(const Frame& frame);
  bool next_step(Frame& frame, std::uint32_t& agent, unsigned& choice);
  std::uint64_t hash() const;
  std::string judge_end(const std::function<std::string()>& check) const;
  void search(const std::function<std::string()>& check, std::uint64_t most_states, Result& result);
  std::string describe(const Frame& frame) const;
  static std::string words(const Access& access, const Memory& memory);

  Memory& memory_;
  std::vector<Agent> agents_;
  std::vector<Entry> dropped_;
  StateSet seen_;
  std::jmp_buf out_;
  std::uint32_t current_ = 0;
  std::size_t cursor_ = 0;
  unsigned budget_ = 0;
  unsigned choice_ = 0;
  std::string violation_;
  std::uint64_t observed_ = 0;
};

}  // namespace rocenante::model
