// SPDX-License-Identifier: Apache-2.0
//
// The memory of all ranks of a scenario, laid out by the Geometry that the library uses, and what their
// lanes point to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/protocol/abort_word.h"
#include "lib/protocol/call_rounds.h"
#include "lib/protocol/device_call.h"
#include "lib/protocol/doorbell.h"
#include "tests/protocol/model/env.h"
#include "tests/protocol/model/scenario.h"

namespace rocenante::model {

inline constexpr std::uint32_t kMaxRanks = 4;
inline constexpr std::uint32_t kMaxParts = 2;
inline constexpr std::uint32_t kMaxRails = 2;
inline constexpr Word kStagingBias = 1000;  // what staging adds where it changes the payload

// The queue pair from one rank to another, on one rail.
struct QueuePair {
  Word posted;     // rounds handed to it
  Word completed;  // rounds whose local completion has come
};

struct RankMemory {
  unsigned char* inbox;
  unsigned char* outbox;
  unsigned char* input;   // of one operation after the other where user_buffer, else of each
  unsigned char* output;  // of each operation
  Word* epoch;
  Word* abort_word;
  Word* goodbye;
  protocol::ArrivalCounter* staged;
  protocol::ArrivalCounter* finished;
  Meeting* meetings;  // [parts], then the one of all threads
  QueuePair* queues;  // [peer][rail]
  protocol::DoorbellRing* ring;
  Word* outcome;  // [thread of all groups]
  // Of a device.
  protocol::DeviceWords* words;
  std::uint32_t* peer_states;
  Word* clock;  // 1 from when time goes on
  protocol::DeviceLane device;
  protocol::PeerLink links[kMaxRanks];
  protocol::Lane lane;
};

// What the rounds of the scenario are, counted from 1 as epochs are.
struct Round {
  std::uint32_t operation;
  std::uint64_t offset;   // in the operation
  std::uint64_t bytes;    // of the output that it makes; 0: none, as a closing round
  std::uint64_t carried;  // to each member
  bool sliced;            // each member gets another slice
};

class World {
 public:
  World(const Scenario& scenario);

  const Scenario& scenario() const { return scenario_; }
  Memory& memory() { return memory_; }
  RankMemory& rank(std::uint32_t rank) { return ranks_[rank]; }
  const std::vector<Round>& rounds() const { return rounds_; }

  bool mapped(std::uint32_t a, std::uint32_t b) const;
  std::uint32_t threads_of(std::uint32_t rank, std::uint32_t part) const {
    return rank == 0 && part == 0 ? scenario_.threads : 1;
  }
  std::uint32_t agents_of(std::uint32_t rank) const { return threads_of(rank, 0) + parts_of(rank) - 1; }
  std::uint32_t agent_of(std::uint32_t rank, std::uint32_t part, std::uint32_t thread) const {
    return part == 0 ? thread : threads_of(rank, 0) + part - 1;
  }
  // Whether something may make a device give up, or be told to.
  bool may_fail() const {
    return scenario_.aborts || scenario_.deadline || scenario_.goes || scenario_.silent ||
           (scenario_.device && scenario_.mismatch);
  }
  // Calls that a rank makes.
  std::uint32_t calls_of(std::uint32_t rank) const {
    const std::uint32_t missed = scenario_.silent ? 1 : scenario_.misses;
    return scenario_.operations - (rank + 1 == scenario_.ranks ? missed : 0);
  }
  std::uint32_t parts_of(std::uint32_t rank) const { return rank == 0 ? scenario_.parts : 1; }
  std::uint32_t rounds_per_operation() const {
    return static_cast<std::uint32_t>(rounds_.size()) / scenario_.operations;
  }
  std::uint64_t operation_bytes() const { return scenario_.words * sizeof(Word); }
  std::uint64_t piece_bytes() const { return operation_bytes() / scenario_.pieces; }
  bool striped(const Round& round) const { return round.carried >= scenario_.striped_words * sizeof(Word); }
  std::uint64_t slice_bytes() const { return protocol::slice_of(piece_bytes(), scenario_.ranks); }

  QueuePair& queue(std::uint32_t from, std::uint32_t to, std::uint32_t rail) {
    return ranks_[from].queues[to * scenario_.rails + rail];
  }
  unsigned char* recv_slot(std::uint32_t owner, std::uint32_t source, std::uint64_t parity);
  protocol::SignalLine* line(std::uint32_t owner, std::uint32_t source, std::uint64_t parity,
                             std::uint32_t rail);
  unsigned char* input(std::uint32_t rank, std::uint32_t operation);
  unsigned char* output(std::uint32_t rank, std::uint32_t operation);

  // What rank `rank` puts into a word of an operation, and what a member must receive for it.
  Word contribution(std::uint32_t rank, std::uint32_t operation, std::uint64_t word) const;
  Word payload(std::uint32_t rank, std::uint32_t operation, std::uint64_t word) const {
    return contribution(rank, operation, word) + (scenario_.stages_own ? kStagingBias : 0);
  }
  Word tag(std::uint32_t rank, std::uint32_t operation) const {
    return 7 + (scenario_.same_tag ? 0 : operation) +
           (scenario_.mismatch && rank + 1 == scenario_.ranks ? 100 : 0);
  }

  // Empty if what all ranks have at the end is right.
  std::string judge();

 private:
  void lay_out(std::uint32_t rank);
  void lay_out_inbox(std::uint32_t rank);
  void lay_out_private(std::uint32_t rank);
  void lay_out_device(const std::string& who);
  void link(std::uint32_t rank);
  std::string judge_word(std::uint32_t rank, std::uint32_t round, std::uint64_t word, std::uint64_t words);
  unsigned char* take(std::uint64_t bytes);
  Word* word(Word initial, Use use, const std::string& name);
  void words(unsigned char* at, std::uint64_t bytes, Use use, std::uint8_t region, const std::string& name);
  protocol::Geometry geometry(std::uint32_t rank) const;
  std::uint32_t received_index(std::uint32_t owner, std::uint32_t source) const;
  Use used_by(bool several) const { return several ? Use::kShared : Use::kPrivate; }

  const Scenario scenario_;
  Memory memory_;
  unsigned char* free_;
  RankMemory ranks_[kMaxRanks] = {};
  std::vector<Round> rounds_;
};

}  // namespace rocenante::model
