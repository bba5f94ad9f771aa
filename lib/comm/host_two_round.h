// SPDX-License-Identifier: Apache-2.0
//
// The protocol's Combiner on the host for an all-reduce in two rounds a piece: each rank reduces one slice
// of it, as the others would have, and then everybody takes everybody's. A byte is moved about twice,
// whatever the number of ranks, where the one-shot exchange moves it to every other rank; for one more
// wait.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lib/comm/host_reduce.h"

namespace rocenante {

struct HostTwoRound {
  HostReduction reduction;
  std::uint32_t rank = 0;
};

// For lanes of one part and groups of one thread.
template <bool kScaled>
class HostTwoRoundCombiner {
 public:
  using Work = HostTwoRound;
  static constexpr bool kSlices = true;
  // A scaled contribution exists in the slot alone, and so does what a rank has made of its slice.
  static constexpr bool reads_slot(const protocol::Piece& piece) { return kScaled || !piece.sliced; }

  explicit HostTwoRoundCombiner(const HostTwoRound& work) : work_(work) {}

  void stage(HostEnv& env, SoloGroup, unsigned char* to, const unsigned char* from,
             std::uint64_t bytes) const {
    const HostReduction& reduction = work_.reduction;
    const Slices slices(bytes, reduction.ranks);
    for (std::uint32_t rank = 0; rank < reduction.ranks; ++rank) {
      if (!kScaled && rank == work_.rank) continue;
      unsigned char* const slice = to + rank * slices.stride;
      if constexpr (kScaled) {
        reduction.scale(slice, from + slices.begin(rank), slices.size(rank) / reduction.element_bytes,
                        reduction.scalar.data());
      } else {
        reduction.stage(env, slice, from + slices.begin(rank), slices.size(rank));
      }
    }
  }

  template <class Source>
  void combine(SoloGroup, const protocol::Piece& piece, std::uint64_t, std::uint64_t,
               Source&& source) const {
    const HostReduction& reduction = work_.reduction;
    const Slices slices(piece.bytes, reduction.ranks);
    auto* const output = static_cast<unsigned char*>(piece.output);
    if (!piece.sliced) return gather(slices, output, source);
    if (slices.size(work_.rank) == 0) return;
    for (std::uint32_t rank = 0; rank < reduction.ranks; ++rank) reduction.inputs[rank] = source(rank);
    const unsigned char* const whole = source(work_.rank);
    reduction.inputs[work_.rank] =
        whole + (kScaled ? work_.rank * slices.stride : slices.begin(work_.rank));
    reduction.reduce(output, reduction.inputs, reduction.ranks,
                     slices.size(work_.rank) / reduction.element_bytes);
  }

 private:
  // How a piece is cut.
  struct Slices {
    const std::uint64_t bytes, slice, stride;

    Slices(std::uint64_t bytes, std::uint32_t ranks)
        : bytes(bytes), slice(protocol::slice_of(bytes, ranks)), stride(protocol::slice_stride(slice)) {}
    std::uint64_t begin(std::uint32_t rank) const { return std::min(rank * slice, bytes); }
    std::uint64_t size(std::uint32_t rank) const { return begin(rank + 1) - begin(rank); }
  };

  template <class Source>
  void gather(const Slices& slices, unsigned char* output, Source&& source) const {
    for (std::uint32_t rank = 0; rank < work_.reduction.ranks; ++rank) {
      if (slices.size(rank) == 0) continue;
      work_.reduction.copy(output + slices.begin(rank), source(rank), slices.size(rank));
    }
  }

  const HostTwoRound& work_;
};

}  // namespace rocenante
