// SPDX-License-Identifier: Apache-2.0
//
// The protocol's Combiner on the host: one pass over all inputs by the communicator's kernels.
#pragma once

#include <array>
#include <cstdint>

#include "lib/comm/host_env.h"
#include "lib/protocol/round.h"
#include "reduce_kernels/reduce.h"

namespace rocenante {

struct HostReduction {
  reduce::ReduceFn reduce = nullptr;
  reduce::ScaleFn scale = nullptr;  // pre-multiplied sum, else null
  reduce::CopyFn copy = nullptr;
  std::array<unsigned char, 8> scalar{};
  std::uint64_t element_bytes = 1;
  std::uint32_t ranks = 1;
  const void** inputs = nullptr;  // scratch, [ranks]

  // Of what is staged as it is.
  void stage(HostEnv& env, unsigned char* to, const unsigned char* from, std::uint64_t bytes) const {
    if (bytes <= protocol::kInlineBytes) return env.copy(to, from, bytes);
    copy(to, from, bytes);
  }
};

template <bool kScaled>
class HostCombiner {
 public:
  using Work = HostReduction;
  // A scaled contribution exists in the slot alone.
  static constexpr bool reads_slot(const protocol::Piece&) { return kScaled; }

  explicit HostCombiner(const HostReduction& reduction) : reduction_(reduction) {}

  template <class Group>
  void stage(HostEnv& env, const Group& group, unsigned char* to, const unsigned char* from,
             std::uint64_t bytes) const {
    std::uint64_t begin, end;
    protocol::range_of(group.id(), group.size(), 0, bytes, begin, end);
    if constexpr (kScaled) {
      reduction_.scale(to + begin, from + begin, (end - begin) / reduction_.element_bytes,
                       reduction_.scalar.data());
    } else {
      reduction_.stage(env, to + begin, from + begin, end - begin);
    }
  }

  template <class Group, class Source>
  void combine(Group& group, const protocol::Piece& piece, std::uint64_t begin, std::uint64_t end,
               Source&& source) const {
    std::uint64_t from, to;
    protocol::range_of(group.id(), group.size(), begin, end, from, to);
    if (from >= to) return;
    for (std::uint32_t rank = 0; rank < reduction_.ranks; ++rank)
      reduction_.inputs[rank] = source(rank) + from;
    reduction_.reduce(static_cast<unsigned char*>(piece.output) + from, reduction_.inputs, reduction_.ranks,
                      (to - from) / reduction_.element_bytes);
  }

 private:
  const HostReduction& reduction_;
};

}  // namespace rocenante
