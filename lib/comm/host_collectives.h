// SPDX-License-Identifier: Apache-2.0
//
// The protocol's Combiner on the host for every collective but all-reduce. All are one-shot exchanges in
// which every member signals every member in every round; they differ in what a rank stages and in what it
// takes of the others' slots.
//
// Where the send buffer holds a block for each rank, a round moves one chunk of every block, each to the
// rank that it is meant for: they are the slices of a sliced exchange, all of one size.
#pragma once

#include <cstdint>

#include "lib/comm/call.h"
#include "lib/comm/host_reduce.h"

namespace rocenante {

struct HostShape {
  HostReduction reduction;  // `ranks` and `inputs` of all, the functions of those that reduce
  Collective collective = Collective::kAllGather;
  std::uint32_t rank = 0;
  std::uint32_t root = 0;
  const unsigned char* input = nullptr;  // the call's own buffers
  unsigned char* output = nullptr;
  std::uint64_t block_bytes = 0;
  // What the exchange takes for its output: the distance of a piece from it is what is done so far.
  const unsigned char* exchange_output = nullptr;
};

// For lanes of one part and groups of one thread: a piece is staged and combined in one go.
template <bool kScaled>
class HostShapeCombiner {
 public:
  using Work = HostShape;
  static constexpr bool kSlices = true;
  // A scaled contribution exists in the slot alone.
  static constexpr bool reads_slot(const protocol::Piece&) { return kScaled; }

  explicit HostShapeCombiner(const HostShape& shape) : shape_(shape) {}

  void stage(HostEnv& env, SoloGroup, unsigned char* to, const unsigned char* from,
             std::uint64_t bytes) const {
    if (shape_.collective == Collective::kBroadcast && shape_.rank != shape_.root) return;
    if (!sends_blocks(shape_.collective)) return stage_run(env, to, from, bytes);
    const std::uint64_t chunk = bytes / shape_.reduction.ranks;
    const std::uint64_t at = static_cast<std::uint64_t>(from - shape_.input) / shape_.reduction.ranks;
    const std::uint64_t stride = stride_of(bytes);
    for (std::uint32_t block = 0; block < shape_.reduction.ranks; ++block) {
      if (!kScaled && block == shape_.rank) continue;
      stage_run(env, to + block * stride, shape_.input + block * shape_.block_bytes + at, chunk);
    }
  }

  template <class Group, class Source>
  void combine(Group&, const protocol::Piece& piece, std::uint64_t, std::uint64_t, Source&& source) const {
    const auto done = static_cast<std::uint64_t>(static_cast<const unsigned char*>(piece.output) -
                                                 shape_.exchange_output);
    switch (shape_.collective) {
      case Collective::kAllGather:
        return place(done, piece.bytes, source);
      case Collective::kBroadcast:
        return move(shape_.output + done, source(shape_.root), piece.bytes);
      case Collective::kAllReduce:
      case Collective::kReduce:
        if (shape_.rank == shape_.root) reduce(done, piece.bytes, source);
        return;
      case Collective::kReduceScatter:
      case Collective::kAllToAll:
        break;
    }
    const std::uint64_t chunk = piece.bytes / shape_.reduction.ranks;
    const std::uint64_t at = done / shape_.reduction.ranks;
    const auto chunk_of = [&](std::uint32_t rank) -> const unsigned char* {
      if (rank != shape_.rank) return source(rank);
      return kScaled ? source(rank) + rank * stride_of(piece.bytes)
                     : shape_.input + rank * shape_.block_bytes + at;
    };
    if (shape_.collective == Collective::kReduceScatter) return reduce(at, chunk, chunk_of);
    place(at, chunk, chunk_of);
  }

 private:
  std::uint64_t stride_of(std::uint64_t bytes) const {
    return protocol::slice_stride(protocol::slice_of(bytes, shape_.reduction.ranks));
  }

  void stage_run(HostEnv& env, unsigned char* to, const unsigned char* from, std::uint64_t bytes) const {
    if constexpr (kScaled) {
      const HostReduction& work = shape_.reduction;
      work.scale(to, from, bytes / work.element_bytes, work.scalar.data());
    } else {
      shape_.reduction.stage(env, to, from, bytes);
    }
  }

  void move(unsigned char* to, const unsigned char* from, std::uint64_t bytes) const {
    if (to != from) shape_.reduction.copy(to, from, bytes);  // in place, the own bytes are there already
  }

  // Each rank's bytes go into its block of the output, at `at`.
  template <class From>
  void place(std::uint64_t at, std::uint64_t bytes, From&& from) const {
    for (std::uint32_t rank = 0; rank < shape_.reduction.ranks; ++rank) {
      move(shape_.output + rank * shape_.block_bytes + at, from(rank), bytes);
    }
  }

  template <class From>
  void reduce(std::uint64_t at, std::uint64_t bytes, From&& from) const {
    const HostReduction& work = shape_.reduction;
    for (std::uint32_t rank = 0; rank < work.ranks; ++rank) work.inputs[rank] = from(rank);
    work.reduce(shape_.output + at, work.inputs, work.ranks, bytes / work.element_bytes);
  }

  const HostShape& shape_;
};

}  // namespace rocenante
