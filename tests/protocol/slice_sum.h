// SPDX-License-Identifier: Apache-2.0
//
// A Combiner for all-reduces of two rounds a piece, by one group of any number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "lib/protocol/call_rounds.h"

namespace rocenante::model {

// Sums elements of T, in the order of the ranks. A thread stages the slices of its share of the members,
// sums its share of the own slice and gathers from its share of the members.
template <class T>
class SliceSum {
 public:
  static constexpr bool kSlices = true;
  // What a rank has made of its slice is in the slot alone.
  static constexpr bool reads_slot(const protocol::Piece& piece) { return !piece.sliced; }

  SliceSum(std::uint32_t rank, std::uint32_t ranks) : rank_(rank), ranks_(ranks) {}

  template <class Env, class Group>
  void stage(Env& env, const Group& group, unsigned char* to, const unsigned char* from,
             std::uint64_t bytes) {
    const Cut cut(bytes, ranks_);
    for (std::uint32_t member = group.id(); member < ranks_; member += group.size()) {
      if (member != rank_)
        env.copy(to + member * cut.stride, from + cut.begin(member), cut.end(member) - cut.begin(member));
    }
  }

  template <class Group, class Source>
  void combine(Group& group, const protocol::Piece& piece, std::uint64_t, std::uint64_t, Source&& source) {
    const Cut cut(piece.bytes, ranks_);
    auto* const output = static_cast<unsigned char*>(piece.output);
    if (!piece.sliced) {
      for (std::uint32_t member = group.id(); member < ranks_; member += group.size())
        std::memcpy(output + cut.begin(member), source(member), cut.end(member) - cut.begin(member));
      return;
    }
    std::uint64_t from, to;
    protocol::range_of(group.id(), group.size(), 0, cut.end(rank_) - cut.begin(rank_), from, to);
    for (std::uint64_t at = from; at < to; at += sizeof(T)) {
      T sum{};
      for (std::uint32_t member = 0; member < ranks_; ++member) {
        T value;
        std::memcpy(&value, source(member) + at + (member == rank_ ? cut.begin(rank_) : 0), sizeof(T));
        sum = static_cast<T>(sum + value);
      }
      std::memcpy(output + at, &sum, sizeof(T));
    }
  }

 private:
  // How a piece is cut.
  struct Cut {
    const std::uint64_t bytes, slice, stride;

    Cut(std::uint64_t bytes, std::uint32_t ranks)
        : bytes(bytes), slice(protocol::slice_of(bytes, ranks)), stride(protocol::slice_stride(slice)) {}
    std::uint64_t begin(std::uint32_t member) const { return std::min(member * slice, bytes); }
    std::uint64_t end(std::uint32_t member) const { return begin(member + 1); }
  };

  const std::uint32_t rank_, ranks_;
};

}  // namespace rocenante::model
