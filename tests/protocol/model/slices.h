// SPDX-License-Identifier: Apache-2.0
//
// What a rank does with its slices in a call of two rounds a piece, by one group of one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "tests/protocol/model/world.h"

namespace rocenante::model {

// As Combiner in agents.h.
template <class ModelEnv, bool kChanges>
class SliceCombiner {
 public:
  static constexpr bool kSlices = true;
  static constexpr bool reads_slot(const protocol::Piece& piece) { return kChanges || !piece.sliced; }

  SliceCombiner(ModelEnv& env, World& world, std::uint32_t rank, std::uint32_t operation)
      : env_(env), world_(world), rank_(rank), operation_(operation) {}

  template <class Threads>
  void stage(ModelEnv& env, const Threads&, unsigned char* to, const unsigned char* from, std::uint64_t) {
    const std::uint64_t stride = protocol::slice_stride(world_.slice_bytes());
    for (std::uint32_t member = 0; member < world_.scenario().ranks; ++member) {
      if (!kChanges && member == rank_) continue;
      for (std::uint64_t at = 0; at < world_.slice_bytes(); at += sizeof(Word)) {
        const Word word =
            env.load_relaxed(reinterpret_cast<const Word*>(from + member * world_.slice_bytes() + at));
        env.store_relaxed(reinterpret_cast<Word*>(to + member * stride + at),
                          word + (kChanges ? kStagingBias : 0));
      }
    }
  }

  template <class Threads, class Source>
  void combine(Threads&, const protocol::Piece& piece, std::uint64_t, std::uint64_t, Source&& source) {
    looked_ = false;
    const std::uint64_t words = world_.slice_bytes() / sizeof(Word);
    Word* const output = static_cast<Word*>(piece.output);
    if (!piece.sliced) {
      const auto offset = reinterpret_cast<unsigned char*>(output) - world_.output(rank_, operation_);
      done_ = static_cast<std::uint64_t>(offset) / sizeof(Word);
    }
    for (std::uint64_t word = 0; word < words; ++word) {
      if (piece.sliced) {
        env_.store_relaxed(output + word, sum_of(word, source));
        continue;
      }
      for (std::uint32_t rank = 0; rank < world_.scenario().ranks; ++rank)
        env_.store_relaxed(output + rank * words + word, gathered(rank, word, source));
    }
    if (!piece.sliced) done_ += words * world_.scenario().ranks;
  }

 private:
  template <class Source>
  Word sum_of(std::uint64_t word, Source&& source) {
    const std::uint64_t words = world_.slice_bytes() / sizeof(Word);
    const std::uint64_t stride =
        kChanges ? protocol::slice_stride(world_.slice_bytes()) : words * sizeof(Word);
    Word sum = 0;
    for (std::uint32_t rank = 0; rank < world_.scenario().ranks; ++rank) {
      const unsigned char* const slice = source(rank) + (rank == rank_ ? rank_ * stride : 0);
      sum += look(reinterpret_cast<const Word*>(slice) + word,
                  world_.payload(rank, operation_, done_ + rank_ * words + word), rank);
    }
    return sum;
  }

  template <class Source>
  Word gathered(std::uint32_t rank, std::uint64_t word, Source&& source) {
    const std::uint64_t at = done_ + rank * world_.slice_bytes() / sizeof(Word) + word;
    Word expected = 0;
    for (std::uint32_t other = 0; other < world_.scenario().ranks; ++other)
      expected += world_.payload(other, operation_, at);
    return look(reinterpret_cast<const Word*>(source(rank)) + word, expected, rank);
  }

  Word look(const Word* address, Word expected, std::uint32_t rank) {
    const Word found = world_.scenario().coarse && std::exchange(looked_, true)
                           ? env_.load_attached(address)
                           : env_.load_relaxed(address);
    if (found == expected) return found;
    env_.machine.note("takes " + std::to_string(found) + " from rank " + std::to_string(rank) + " for " +
                      std::to_string(expected));
    env_.machine.leave();
  }

  ModelEnv& env_;
  World& world_;
  const std::uint32_t rank_;
  const std::uint32_t operation_;
  std::uint64_t done_ = 0;  // words of the pieces before
  bool looked_ = false;     // as in Combiner
};

}  // namespace rocenante::model
