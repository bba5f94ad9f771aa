// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace rocenante::model {

enum class Reach : std::uint8_t {
  kMapped,   // everybody maps everybody's memory
  kCarried,  // NICs between all
  kMixed     // the last rank is on another host than the others
};

// One closed world to explore.
struct Scenario {
  const char* name;
  std::uint32_t ranks = 2;
  std::uint32_t operations = 1;
  std::uint32_t words = 2;   // of 8 bytes, per operation
  std::uint32_t pieces = 1;  // rounds that an operation is cut into; words / pieces is even
  Reach reach = Reach::kMapped;
  std::uint32_t rails = 1;
  std::uint32_t striped_words = 0;  // a round of fewer words takes one rail
  bool tagged = false;              // carriers bring the tag that stands before a slot
  std::uint32_t threads = 1;        // of the first group of rank 0; all other groups have one
  std::uint32_t parts = 1;          // groups of rank 0
  bool in_line = false;             // payload in the signal line where mapped
  bool in_place = false;            // the output is the input
  bool user_buffer = false;         // members read the user's buffer; it is rewritten for every operation
  bool gathers = false;             // two rounds a piece: slices of two words, then everybody's
  bool stages_own = false;          // the staged form differs from the input
  bool sleeps = false;
  bool doorbell = false;          // rank 0's NIC is driven by a progress thread
  bool leaves = false;            // memory is freed at the end
  bool aborts = false;            // every rank's abort word is set at some time
  bool loses_completion = false;  // the last puts of rank 0 never complete locally
  bool mismatch = false;          // the last rank makes another call than the others
  // Rank 0 is a device: its calls are launches, its host is an agent. With `aborts` it is its host's word
  // that is set.
  bool device = false;
  bool deadline = false;     // its deadline passes at some time
  bool goes = false;         // whoever has made its last call ends, and rank 0's host learns of it
  std::uint32_t misses = 0;  // calls that the last rank does not make before it goes
  bool silent = false;    // the last rank is taken for silent at some time and does not make its last call
  bool same_tag = false;  // all operations are the same call
  bool coarse = false;    // strong memory only: the words of a combine are read in one step
  bool weak = false;      // weak memory; otherwise sequentially consistent
};

}  // namespace rocenante::model
