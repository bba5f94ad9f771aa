// SPDX-License-Identifier: Apache-2.0
//
// The Combiner of a device (lib/protocol/call_rounds.h): one text for the threads of a CTA and of a group
// on the CPU. Threads take packs of 16 bytes, one after the other, so that neighbours touch neighbours; all
// values of a pack are combined in registers, in the order of docs/numerics.md.
//
// Slots and lines are aligned to 16 bytes and padded to a multiple of them, so a rank's pack is always
// read, and a slot's written, as a whole. Only the caller's buffers may lie and end anywhere.
//
//   Memory  load<T>(from) and store<T>(to, value) for T of 2 and 4 bytes and Pack, aligned as T is, and for
//           bytes; never through a path that is not coherent with what peers and NICs write
#pragma once

#include <cstdint>
#include <cstring>

#include "lib/protocol/round.h"
#include "reduce_kernels/device_formats.h"
#include "reduce_kernels/tree.h"

// A loop that stays one.
#if defined(__CUDACC__)
#define ROCENANTE_KEEP_LOOP _Pragma("unroll 1")
#else
#define ROCENANTE_KEEP_LOOP
#endif

namespace rocenante::reduce {

inline constexpr std::uint32_t kPackBytes = 16;
inline constexpr std::uint64_t kMostPieceBytes = std::uint64_t{1} << 31;

template <std::uint32_t kBytes>
struct alignas(kBytes) PackOf {
  std::uint32_t words[kBytes / 4];
};
using Pack = PackOf<kPackBytes>;

// On the CPU: what is read and written here is ordered by signals and barriers.
struct PlainMemory {
  template <class T>
  static T load(const unsigned char* from) {
    T value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  template <class T>
  static void store(unsigned char* to, T value) {
    std::memcpy(to, &value, sizeof(value));
  }
};

ROCENANTE_HOST_DEVICE inline bool is_aligned(const void* address, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

// Up to four bytes of the caller's memory, of which there are `bytes` more; zeroes where it ends.
template <class Memory>
ROCENANTE_HOST_DEVICE inline std::uint32_t load_word(const unsigned char* from, std::uint32_t bytes) {
  if (bytes >= 4 && is_aligned(from, 4)) return Memory::template load<std::uint32_t>(from);
  if (bytes >= 4 && is_aligned(from, 2)) {
    const std::uint32_t low = Memory::template load<std::uint16_t>(from);
    return low | static_cast<std::uint32_t>(Memory::template load<std::uint16_t>(from + 2)) << 16;
  }
  std::uint32_t word = 0;
  ROCENANTE_KEEP_LOOP
  for (std::uint32_t at = 0; at < 4 && at < bytes; ++at) {
    word |= static_cast<std::uint32_t>(Memory::template load<std::uint8_t>(from + at)) << 8 * at;
  }
  return word;
}

template <class Memory>
ROCENANTE_HOST_DEVICE inline void store_word(unsigned char* to, std::uint32_t word, std::uint32_t bytes) {
  if (bytes >= 4 && is_aligned(to, 4)) return Memory::template store<std::uint32_t>(to, word);
  if (bytes >= 4 && is_aligned(to, 2)) {
    Memory::template store<std::uint16_t>(to, static_cast<std::uint16_t>(word));
    return Memory::template store<std::uint16_t>(to + 2, static_cast<std::uint16_t>(word >> 16));
  }
  ROCENANTE_KEEP_LOOP
  for (std::uint32_t at = 0; at < 4 && at < bytes; ++at) {
    Memory::template store<std::uint8_t>(to + at, static_cast<std::uint8_t>(word >> 8 * at));
  }
}

// A pack of the caller's memory, of which there are `bytes` more; zeroes where it ends. What is not whole
// or not aligned goes word by word, through the pack as through a shift register: an index would take it
// out of the registers, and unrolled it takes too many of them.
template <class Memory>
ROCENANTE_HOST_DEVICE inline Pack load_anywhere(const unsigned char* from, std::uint32_t bytes) {
  if (bytes >= kPackBytes && is_aligned(from, kPackBytes)) return Memory::template load<Pack>(from);
  Pack pack{};
  ROCENANTE_KEEP_LOOP
  for (std::uint32_t at = 0; at < kPackBytes; at += 4) {
    const std::uint32_t word = at < bytes ? load_word<Memory>(from + at, bytes - at) : 0;
    pack = {{pack.words[1], pack.words[2], pack.words[3], word}};
  }
  return pack;
}

template <class Memory, std::uint32_t kBytes>
ROCENANTE_HOST_DEVICE inline void store_anywhere(unsigned char* to, PackOf<kBytes> pack,
                                                 std::uint32_t bytes) {
  if (bytes >= kBytes && is_aligned(to, kBytes)) return Memory::template store<PackOf<kBytes>>(to, pack);
  ROCENANTE_KEEP_LOOP
  for (std::uint32_t at = 0; at < kBytes && at < bytes; at += 4) {
    store_word<Memory>(to + at, pack.words[0], bytes - at);
    for (std::uint32_t i = 1; i < kBytes / 4; ++i) pack.words[i - 1] = pack.words[i];
  }
}

// A copy by one thread to memory that is aligned and padded to 16 bytes.
template <class Memory>
ROCENANTE_HOST_DEVICE inline void copy_packs(unsigned char* to, const unsigned char* from,
                                             std::uint32_t bytes) {
  for (std::uint32_t at = 0; at < bytes; at += kPackBytes) {
    Memory::template store<Pack>(to + at, load_anywhere<Memory>(from + at, bytes - at));
  }
}

// The values of a pack, as accumulators.
template <class Codec, std::uint32_t kBytes>
struct Values {
  static constexpr std::uint32_t kCount = kBytes / Codec::kSize;
  typename Codec::Acc at[kCount];
};

template <class Codec, std::uint32_t kBytes>
ROCENANTE_HOST_DEVICE inline Values<Codec, kBytes> unpack(const Codec& codec, const PackOf<kBytes>& pack) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&pack);
  Values<Codec, kBytes> values;
  for (std::uint32_t i = 0; i < values.kCount; ++i) values.at[i] = codec.load(bytes + i * Codec::kSize);
  return values;
}

template <class Codec, std::uint32_t kBytes>
ROCENANTE_HOST_DEVICE inline PackOf<kBytes> pack_up(const Codec& codec,
                                                    const Values<Codec, kBytes>& values) {
  PackOf<kBytes> pack;
  auto* const bytes = reinterpret_cast<unsigned char*>(&pack);
  for (std::uint32_t i = 0; i < values.kCount; ++i) codec.store(bytes + i * Codec::kSize, values.at[i]);
  return pack;
}

// An operator of values, for the tree.
template <class Op>
struct Each {
  template <class V>
  ROCENANTE_HOST_DEVICE static V apply(const V& a, const V& b) {
    V result;
    for (std::uint32_t i = 0; i < V::kCount; ++i) result.at[i] = Op::apply(a.at[i], b.at[i]);
    return result;
  }
};

// What the threads of a device need to know of a call's reduction.
struct DeviceReduction {
  std::uint64_t scalar = 0;  // pre-multiplied sum: one element, in the first bytes
  std::uint64_t flip = 0;    // order codecs: see device_formats.h
  std::uint32_t ranks = 1;
};

// kRanks: the number of ranks where it is known when compiled, else 0.
template <class Spec, std::uint32_t kRanks, class Memory>
class DeviceCombiner {
 public:
  using Codec = typename Spec::Codec;
  using Acc = typename Codec::Acc;

  // `sources`: scratch that the threads of the group share, [ranks].
  ROCENANTE_HOST_DEVICE DeviceCombiner(const DeviceReduction& reduction, const unsigned char** sources)
      : reduction_(reduction), codec_(reduction.flip), sources_(sources) {}

  // A contribution that is not aligned or does not end with a pack is read from the slot as well, where it
  // is and does: then one way of reading serves for all ranks.
  ROCENANTE_HOST_DEVICE bool reads_slot(const protocol::Piece& piece) const {
    return Spec::kScales || !is_aligned(piece.input, kPackBytes) || piece.bytes % kPackBytes != 0;
  }

  template <class Env, class Group>
  ROCENANTE_HOST_DEVICE void stage(Env&, const Group& group, unsigned char* to, const unsigned char* from,
                                   std::uint64_t bytes) const {
    const auto end = static_cast<std::uint32_t>(bytes);
    const std::uint32_t step = group.size() * kPackBytes;
    std::uint32_t at = group.id() * kPackBytes;
    if (is_aligned(from, kPackBytes)) {
      // Several loads on their way at once: memory is far.
      for (; at + (kStagedAtOnce - 1) * step + kPackBytes <= end; at += kStagedAtOnce * step) {
        Pack packs[kStagedAtOnce];
        for (std::uint32_t i = 0; i < kStagedAtOnce; ++i)
          packs[i] = Memory::template load<Pack>(from + at + i * step);
        for (std::uint32_t i = 0; i < kStagedAtOnce; ++i) store_staged(to + at + i * step, packs[i]);
      }
    }
    for (; at < end; at += step) store_staged(to + at, load_anywhere<Memory>(from + at, end - at));
  }

  template <class Group, class Source>
  ROCENANTE_HOST_DEVICE void combine(Group& group, const protocol::Piece& piece, std::uint64_t begin,
                                     std::uint64_t end, const Source& source) const {
    // Looked up once, in memory that the group shares. (It meets again before the next round.)
    for (std::uint32_t rank = group.id(); rank < ranks(); rank += group.size())
      sources_[rank] = source(rank) + begin;
    group.sync();
    auto* const output = static_cast<unsigned char*>(piece.output) + begin;
    const auto bytes = static_cast<std::uint32_t>(end - begin);
    for (std::uint32_t at = group.id() * kReadBytes; at < bytes; at += group.size() * kReadBytes) {
      const auto pack_of = [&](std::uint32_t rank) {
        return Memory::template load<PackOf<kReadBytes>>(sources_[rank] + at);
      };
      store_anywhere<Memory>(output + at, pack_up(codec_, finish(tree(pack_of))), bytes - at);
    }
  }

 private:
  using Op = Each<typename Spec::Op>;
  // Packs of so many ranks are on their way at once: of eight where there are eight, which the registers of
  // a latency kernel hold if they are half as large. So are those of small types where the number of ranks
  // is not known: there may be three accumulators of each value.
  static constexpr std::uint32_t kReadAtOnce = kRanks == 8 ? 8 : 4;
  static constexpr std::uint32_t kReadBytes =
      kRanks == 8 || (kRanks == 0 && Codec::kSize < 4) ? kPackBytes / 2 : kPackBytes;
  static constexpr std::uint32_t kStagedAtOnce = 2;
  using Row = Values<Codec, kReadBytes>;

  ROCENANTE_HOST_DEVICE void store_staged(unsigned char* to, const Pack& pack) const {
    if constexpr (Spec::kScales) {
      Values<Codec, kPackBytes> values = unpack(codec_, pack);
      const Acc factor = codec_.load(&reduction_.scalar);
      for (Acc& value : values.at) value = Prod::apply(value, factor);
      Memory::template store<Pack>(to, pack_up(codec_, values));
    } else {
      Memory::template store<Pack>(to, pack);
    }
  }

  ROCENANTE_HOST_DEVICE Row finish(Row values) const {
    if constexpr (Spec::kAverages) {
      for (Acc& value : values.at) value = divide_by_ranks(value, ranks());
    }
    return values;
  }

  ROCENANTE_HOST_DEVICE std::uint32_t ranks() const { return kRanks != 0 ? kRanks : reduction_.ranks; }

  template <class Load>
  ROCENANTE_HOST_DEVICE Row tree(const Load& pack_of) const {
    if constexpr (kRanks != 0) {
      return block<kRanks>(pack_of, 0);
    } else {
      return reduction_.ranks < kMany ? few(pack_of, 0, reduction_.ranks) : many(pack_of);
    }
  }

  // The aligned block of kCount ranks, a power of two, from `first` on.
  template <std::uint32_t kCount, class Load>
  ROCENANTE_HOST_DEVICE Row block(const Load& pack_of, std::uint32_t first) const {
    if constexpr (kCount > kReadAtOnce) {
      const Row left = block<kCount / 2>(pack_of, first);
      return Op::apply(left, block<kCount / 2>(pack_of, first + kCount / 2));
    } else {
      PackOf<kReadBytes> packs[kCount];
      for (std::uint32_t i = 0; i < kCount; ++i) packs[i] = pack_of(first + i);
      return combine_block<Op, kCount>([&](std::uint32_t i) { return unpack(codec_, packs[i]); }, 0);
    }
  }

  // `count` ranks from `first` on, 1 to kMany - 1: blocks of falling size, folded from the right.
  template <class Load>
  ROCENANTE_HOST_DEVICE Row few(const Load& pack_of, std::uint32_t first, std::uint32_t count) const {
    Row four{}, two{}, value{};
    if (count & 4) four = block<4>(pack_of, first);
    if (count & 2) two = block<2>(pack_of, first + (count & 4));
    if (count & 1) value = block<1>(pack_of, first + (count & 6));
    if (count & 2) value = count & 1 ? Op::apply(two, value) : two;
    if (count & 4) value = count & 3 ? Op::apply(four, value) : four;
    return value;
  }

  // The tree read from the left, as in tree.h, with blocks of kMany ranks.
  template <class Load>
  ROCENANTE_HOST_DEVICE Row many(const Load& pack_of) const {
    Row open[kLevels];
    std::uint32_t depth = 0;
    std::uint32_t rank = 0;
    for (; rank + kMany <= reduction_.ranks; rank += kMany) {
      Row value = block<kMany>(pack_of, rank);
      for (std::uint32_t carry = rank / kMany; carry & 1; carry >>= 1)
        value = Op::apply(open[--depth], value);
      open[depth++] = value;
    }
    Row value = rank < reduction_.ranks ? few(pack_of, rank, reduction_.ranks - rank) : open[--depth];
    while (depth > 0) value = Op::apply(open[--depth], value);
    return value;
  }

  static constexpr std::uint32_t kMany = 8;
  static constexpr std::uint32_t kLevels = kTreeLevels - 3;  // what blocks of kMany leave

  const DeviceReduction reduction_;
  const Codec codec_;
  const unsigned char** const sources_;
};

}  // namespace rocenante::reduce
