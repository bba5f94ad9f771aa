// SPDX-License-Identifier: Apache-2.0
//
// The memory that the model's agents share, one location per word that anybody uses; an address nobody
// registered is a wild access.
//
// Two modes. Strong: a load returns the last store (sequential consistency). Weak: the view machine of
// C++ release/acquire. Each location keeps its stores as messages, each agent a view (how much of every
// location it must have seen); a relaxed load may return any message not older than the view, an acquire
// load also joins the view that a release store left in the message, a fence exchanges views with every
// other fence, and a read-modify-write takes the newest message. So stores become visible late and out of
// order, loads return old values, and only release, acquire and fence forbid it. (A load is never satisfied
// from a store that comes later in the schedule: load buffering is outside the model. Fences carry only
// what the agent has already synchronised with, which is less than C++ promises: an error in the safe
// direction.)
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rocenante::model {

using Word = std::uint64_t;
using Location = std::uint16_t;
inline constexpr Location kNowhere = 0xffff;
inline constexpr std::uint32_t kMaxViewed = 96;
inline constexpr std::uint32_t kMaxAgents = 16;

// Who can tell when a location is accessed. Accesses that nobody else can tell need no scheduling point.
enum class Use : std::uint8_t {
  kShared,
  kPrivate,   // one agent's own; a second one is a violation
  kConstant,  // never stored to; a store is a violation
  kWriteOnly  // read only after the end
};

using View = std::array<std::uint8_t, kMaxViewed>;

class Memory {
 public:
  Memory(std::size_t bytes, bool weak);

  unsigned char* base() const { return base_; }
  Location add(const void* address, Word initial, Use use, std::uint8_t region, std::string name);
  Location find(const void* address) const;
  void set_abort_word(Location location) { abort_word_[location] = true; }
  bool is_abort_word(Location location) const { return abort_word_[location]; }

  bool silent(Location location) const { return cells_[location].use != Use::kShared; }
  // Notes that an agent uses a location; false where it may not.
  bool may_access(std::uint32_t agent, Location location, bool stores);
  // True once after an agent has been seen to use a location for the first time. Which agents ever use a
  // location decides which states are equal (weak_hash), so a search that saw it grow has to start again.
  bool take_grown() { return std::exchange(grown_, false); }
  void set_agents(std::uint32_t agents) { agents_ = agents; }
  void retire(std::uint32_t agent);  // it has finished and looks no more
  bool weak() const { return weak_; }
  bool freed(Location location) const { return freed_[cells_[location].region]; }
  void free_region(std::uint8_t region);

  unsigned choices(std::uint32_t agent, Location location) const;
  Word load(std::uint32_t agent, Location location, unsigned choice, bool acquire, std::uint32_t& version);
  void store(std::uint32_t agent, Location location, Word value, bool release);
  Word add(std::uint32_t agent, Location location, Word value);
  void fence(std::uint32_t agent);

  Word newest(Location location) const { return cells_[location].value; }
  std::uint32_t version(Location location) const { return cells_[location].version; }
  const std::string& name(Location location) const { return names_[location]; }

  std::size_t mark() const { return undo_.size(); }
  void roll_back(std::size_t mark);
  std::uint64_t hash() const { return weak_ ? weak_hash() : hash_; }

 private:
  struct Cell {
    Word value;
    std::uint32_t version;
    Use use;
    std::uint32_t users;  // bit per agent
    std::uint8_t region;
    std::uint8_t viewed;  // index into views, weak mode
  };
  struct Message {
    Word value;
    View view;
  };
  enum class Change : std::uint8_t { kValue, kMessage, kView, kGlobalView, kFreed };
  struct Undo {
    Change change;
    Location location;  // or agent, or region
    Word value;
  };

  void set(Location location, Word value);
  void save_view(std::uint32_t agent);
  void push_message(Location location, Word value, const View& view);
  std::uint64_t weak_hash() const;
  bool weakly(Location location) const { return weak_ && cells_[location].use == Use::kShared; }

  const bool weak_;
  bool grown_ = false;
  std::uint32_t agents_ = 0;
  std::vector<unsigned char> storage_;
  unsigned char* base_;
  std::vector<Location> index_;  // by address / 4
  std::vector<Cell> cells_;
  std::vector<std::string> names_;
  std::vector<bool> abort_word_;
  std::vector<bool> freed_;
  std::vector<std::vector<Message>> messages_;  // by viewed index
  std::array<View, kMaxAgents> views_{};
  View global_view_{};
  std::vector<Undo> undo_;
  std::vector<View> saved_views_;
  std::uint64_t hash_ = 0;
};

// A good 64-bit mixer (the finalizer of splitmix64).
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace rocenante::model
