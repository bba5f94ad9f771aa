// SPDX-License-Identifier: Apache-2.0
//
// The values of checked calls. Most are of moderate magnitude, with signs and a spread of exponents that
// make the result of a sum depend on its order. In some columns (the same index of all ranks) all or one of
// the ranks have what implementations get wrong: NaN, infinities, zeros of both signs, denormals, and
// numbers whose sum overflows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/cli/codecs.h"

namespace rocenante::bench {

// A 64-bit finaliser: every input bit changes every output bit with probability one half.
constexpr std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 31)) * 0x9fb21c651e98df25u;
  value = (value ^ (value >> 29)) * 0xd6e8feb86659fd93u;
  return value ^ (value >> 32);
}

// Element `index` of `rank` in call `call`, as bits.
template <typename Format>
typename Format::Bits input_element(std::uint64_t call, std::uint32_t rank, std::uint32_t ranks,
                                    std::size_t index) {
  using Bits = typename Format::Bits;
  const std::uint64_t column = mix(call * 0x9e3779b97f4a7c15u + index);
  const std::uint64_t own = mix(column + (rank + 1) * 0xc2b2ae3d27d4eb4fu);
  if constexpr (!Format::kIsFloat) {
    return static_cast<Bits>(own);
  } else {
    constexpr unsigned kMantissa = Format::kMantissa;
    const auto sign = static_cast<Bits>((own >> 63) != 0 ? Format::kSign : 0);
    const auto fraction = static_cast<Bits>(own & ((std::uint64_t{1} << kMantissa) - 1));
    switch (column >> 58) {
      case 0:  // NaN in one rank only: min and max ignore it, everything else becomes NaN
        if ((column & 0xffffffffu) % ranks == rank) return Format::kNan;
        break;
      case 1:  // infinity in a quarter of the ranks, of either sign
        if (Format::kCanBeInfinite && ((own >> 56) & 3) == 0)
          return static_cast<Bits>(Format::kInfinity | sign);
        break;
      case 2:
        return sign;  // zeros
      case 3:
        return static_cast<Bits>(fraction | sign);  // denormals
      case 4:
        return static_cast<Bits>(Format::kLargest | sign);
      default:
        break;
    }
    const auto exponent = static_cast<std::uint64_t>(Format::kBias - 4) + ((own >> 53) & 7);
    return static_cast<Bits>(static_cast<Bits>(exponent << kMantissa) | fraction | sign);
  }
}

}  // namespace rocenante::bench
