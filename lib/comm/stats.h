// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <string>

namespace rocenante {

// Numbers of the public API (rcnColl_t).
enum class Collective : std::uint8_t {
  kAllReduce = 0,
  kAllGather = 1,
  kReduceScatter = 2,
  kBroadcast = 3,
  kReduce = 4,
  kAllToAll = 5,
};
inline constexpr std::uint32_t kNumCollectives = 6;

// How a call was carried out.
enum class Path : std::uint8_t {
  kLocal,          // one rank: no exchange
  kOneShotInline,  // the payload rode in the signal lines
  kOneShot,        // one round
  kOneShotRounds,  // several rounds
  kTwoRound,       // slices reduced by one rank each, then gathered
};
inline constexpr std::uint32_t kNumPaths = 5;

const char* path_name(Path path);

// Calls and bytes per collective, size class and path. Written by the communicator's one calling thread, so
// plain load and store suffice; read by any.
class Counters {
 public:
  static constexpr std::uint32_t kSizeClasses = 65;

  struct Cell {
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> bytes{0};
  };

  static std::uint32_t size_class(std::uint64_t bytes) {
    return bytes <= 1 ? 0 : static_cast<std::uint32_t>(std::bit_width(bytes - 1));
  }

  void count(Collective collective, std::uint64_t bytes, Path path) {
    Cell& cell =
        cells_[static_cast<std::size_t>(collective)][size_class(bytes)][static_cast<std::size_t>(path)];
    cell.calls.store(cell.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    cell.bytes.store(cell.bytes.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }

  // visit(collective, size class, path, calls, bytes) for every combination that occurred.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::uint32_t collective = 0; collective < kNumCollectives; ++collective) {
      for (std::uint32_t size_class = 0; size_class < kSizeClasses; ++size_class) {
        for (std::uint32_t path = 0; path < kNumPaths; ++path) {
          const Cell& cell = cells_[collective][size_class][path];
          const std::uint64_t calls = cell.calls.load(std::memory_order_relaxed);
          if (calls != 0)
            visit(collective, size_class, path, calls, cell.bytes.load(std::memory_order_relaxed));
        }
      }
    }
  }

 private:
  std::array<std::array<std::array<Cell, kNumPaths>, kSizeClasses>, kNumCollectives> cells_;
};

// One JSON object in one line, without its newline: rank, ranks, and a row per collective, size class and
// path that occurred.
std::string stats_line(const Counters& counters, std::uint32_t rank, std::uint32_t ranks);

// Appends the line to `file`, or writes it to stderr if that is empty; with one write, so that the lines of
// several ranks do not mix. What cannot be written is logged: nothing fails for it.
void write_stats_line(std::string line, const std::string& file, std::uint32_t rank);

}  // namespace rocenante
