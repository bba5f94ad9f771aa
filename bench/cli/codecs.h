// SPDX-License-Identifier: Apache-2.0
//
// Element formats as the checker sees them: bits on the wire, the accumulator they are combined in, and how
// to go from one to the other. Written apart from reduce_kernels/ on purpose: a checker that shares code
// with what it checks proves nothing.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace rocenante::bench {

// Two's complement and unsigned integers; arithmetic is modulo 2^w.
template <typename Integer>
struct IntFormat {
  using Bits = std::make_unsigned_t<Integer>;
  using Acc = Integer;
  static constexpr bool kIsFloat = false;

  static Acc decode(Bits bits) { return static_cast<Acc>(bits); }
  static Bits encode(Acc value) { return static_cast<Bits>(value); }
};

// IEEE 754 binary formats narrower than float, combined in float. kHasInfinity is false for e4m3, whose
// largest exponent holds numbers and whose only NaN has all bits set. kSaturates: beyond the largest number
// comes that number, not infinity.
template <typename BitsType, unsigned kExponentBits, unsigned kMantissaBits, bool kHasInfinity,
          bool kSaturates>
struct SmallFloatFormat {
  using Bits = BitsType;
  using Acc = float;
  static constexpr bool kIsFloat = true;
  static constexpr unsigned kMantissa = kMantissaBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr Bits kSign = static_cast<Bits>(1u << (kExponentBits + kMantissaBits));
  static constexpr Bits kExponentMask = static_cast<Bits>(((1u << kExponentBits) - 1) << kMantissaBits);
  static constexpr Bits kNan =
      static_cast<Bits>(kHasInfinity ? (kExponentMask | (1u << (kMantissaBits - 1))) : kSign - 1u);
  static constexpr Bits kInfinity = kExponentMask;  // meaningless without kHasInfinity
  static constexpr Bits kLargest = static_cast<Bits>(kHasInfinity ? kExponentMask - 1u : kNan - 1u);
  static constexpr bool kCanBeInfinite = kHasInfinity && !kSaturates;

  static float decode(Bits bits) {
    const std::uint32_t sign = (bits & kSign) != 0 ? 0x80000000u : 0u;
    const std::uint32_t magnitude = bits & (kSign - 1u);
    std::uint32_t out;
    if (kHasInfinity && magnitude >= kInfinity) {
      out = 0x7f800000u | ((magnitude - kInfinity) << (23 - kMantissaBits));
    } else if (!kHasInfinity && magnitude == kNan) {
      out = 0x7fc00000u;
    } else {
      // The field positions of a float, then the difference of the biases as an exact multiplication, which
      // also normalises denormals.
      const float shifted = std::bit_cast<float>(magnitude << (23 - kMantissaBits));
      out = std::bit_cast<std::uint32_t>(shifted * std::bit_cast<float>((254u - kBias) << 23));
    }
    return std::bit_cast<float>(out | sign);
  }

  static Bits encode(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const Bits sign = (bits >> 31) != 0 ? kSign : Bits{0};
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return kNan;
    constexpr std::uint32_t kSmallestNormal = (128u - kBias) << 23;
    std::uint32_t out;
    if (magnitude < kSmallestNormal) {
      // Adding a power of two whose unit in the last place is this format's smallest denormal rounds there.
      constexpr std::uint32_t kMagic = (128u - kBias + 23u - kMantissaBits) << 23;
      const float rounded = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kMagic);
      out = std::bit_cast<std::uint32_t>(rounded) - kMagic;
    } else {
      constexpr unsigned kDropped = 23 - kMantissaBits;
      const std::uint32_t odd = (magnitude >> kDropped) & 1u;
      const std::uint32_t rounded = magnitude + ((1u << (kDropped - 1)) - 1u) + odd;
      out = (rounded - ((127u - kBias) << 23)) >> kDropped;
      if (out > kLargest) out = kSaturates ? kLargest : kInfinity;
    }
    return static_cast<Bits>(out | sign);
  }
};

// float and double: the accumulator is the format itself.
template <typename Float, typename BitsType, unsigned kMantissaBits>
struct NativeFloatFormat {
  using Bits = BitsType;
  using Acc = Float;
  static constexpr bool kIsFloat = true;
  static constexpr unsigned kMantissa = kMantissaBits;
  static constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
  static constexpr Bits kExponentMask = (kSign - 1) & ~((Bits{1} << kMantissaBits) - 1);
  static constexpr int kBias = static_cast<int>(kExponentMask >> (kMantissaBits + 1));
  static constexpr Bits kNan = kExponentMask | (Bits{1} << (kMantissaBits - 1));
  static constexpr Bits kInfinity = kExponentMask;
  static constexpr Bits kLargest = kExponentMask - 1;
  static constexpr bool kCanBeInfinite = true;

  static Acc decode(Bits bits) { return std::bit_cast<Acc>(bits); }
  static Bits encode(Acc value) { return value != value ? kNan : std::bit_cast<Bits>(value); }
};

using Float16 = SmallFloatFormat<std::uint16_t, 5, 10, true, false>;
using Bfloat16 = SmallFloatFormat<std::uint16_t, 8, 7, true, false>;
using Float8e4m3 = SmallFloatFormat<std::uint8_t, 4, 3, false, true>;
using Float8e5m2 = SmallFloatFormat<std::uint8_t, 5, 2, true, true>;
using Float32 = NativeFloatFormat<float, std::uint32_t, 23>;
using Float64 = NativeFloatFormat<double, std::uint64_t, 52>;

}  // namespace rocenante::bench
