// SPDX-License-Identifier: Apache-2.0
//
// Element formats and operators, one element at a time, in plain C++: the text behind the "scalar" target
// and the tails of the others, written so that device code can include it too. docs/numerics.md defines
// what each function returns to the bit.
//
// A format has an accumulator type Acc, load() and store(); store() rounds once and makes every NaN the
// canonical one. Memory is only touched through memcpy: pointers need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__CUDACC__)
#define ROCENANTE_HOST_DEVICE __host__ __device__
#else
#define ROCENANTE_HOST_DEVICE
#endif

namespace rocenante::reduce {

template <class To, class From>
ROCENANTE_HOST_DEVICE inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

template <class T>
ROCENANTE_HOST_DEVICE inline T load_raw(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

template <class T>
ROCENANTE_HOST_DEVICE inline void store_raw(void* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

inline constexpr std::uint32_t kFloat32Nan = 0x7fc00000;
inline constexpr std::uint64_t kFloat64Nan = 0x7ff8000000000000;

// Layout of a float format of at most 16 bits. kClamp is the fp32 pattern that larger magnitudes become
// before rounding: 2^16 for fp16 (it rounds to infinity), the largest finite value where the format
// saturates.
template <int kExponentBits, int kMantissaBits, std::uint32_t kClampBits, std::uint32_t kNanCode>
struct SmallFloatLayout {
  static constexpr int kMantissa = kMantissaBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr std::uint32_t kClamp = kClampBits;
  static constexpr std::uint32_t kNan = kNanCode;
  static constexpr int kSignShift = 31 - kExponentBits - kMantissaBits;
  static constexpr std::uint32_t kSign = 1u << (kExponentBits + kMantissaBits);
  // Mantissa bits of fp32 that rounding drops, and the distance of the exponent biases in fp32's place.
  static constexpr int kDropped = 23 - kMantissa;
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
  static constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(127 - kBias + 1) << 23;
  // The fp32 number whose last place is the format's smallest subnormal: adding it rounds to a multiple
  // of that, to nearest even, and leaves the multiple in the low bits.
  static constexpr std::uint32_t kSubnormalMagic = static_cast<std::uint32_t>(127 + 24 - kBias - kMantissa)
                                                   << 23;
};

using Float16Layout = SmallFloatLayout<5, 10, 0x47800000, 0x7e00>;  // 65536
using Float8e4m3Layout = SmallFloatLayout<4, 3, 0x43e00000, 0x7f>;  // 448
using Float8e5m2Layout = SmallFloatLayout<5, 2, 0x47600000, 0x7e>;  // 57344

// fp32 to the format: nearest even, once.
template <class L>
ROCENANTE_HOST_DEVICE inline std::uint32_t encode_small_float(float value) {
  if (value != value) return L::kNan;
  const auto bits = bits_as<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> L::kSignShift) & L::kSign;
  std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > L::kClamp) magnitude = L::kClamp;
  if (magnitude < L::kSmallestNormal) {
    const float shifted = bits_as<float>(magnitude) + bits_as<float>(L::kSubnormalMagic);
    return sign | (bits_as<std::uint32_t>(shifted) - L::kSubnormalMagic);
  }
  const std::uint32_t odd = (magnitude >> L::kDropped) & 1;
  const std::uint32_t half_minus = (1u << (L::kDropped - 1)) - 1;
  return sign | ((magnitude + half_minus + odd - L::kRebias) >> L::kDropped);
}

// A fp16 pattern to fp32, exactly.
ROCENANTE_HOST_DEVICE inline float decode_float16(std::uint32_t code) {
  const std::uint32_t sign = (code & 0x8000) << 16;
  const std::uint32_t magnitude = code & 0x7fff;
  if (magnitude < 0x400) {
    const float value = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f;
    return bits_as<float>(sign | bits_as<std::uint32_t>(value));
  }
  const std::uint32_t rebias = magnitude >= 0x7c00 ? 2 * Float16Layout::kRebias : Float16Layout::kRebias;
  return bits_as<float>(sign | ((magnitude << 13) + rebias));
}

struct Float16 {
  using Acc = float;
  static constexpr std::size_t kSize = 2;
  ROCENANTE_HOST_DEVICE static float load(const void* at) {
    return decode_float16(load_raw<std::uint16_t>(at));
  }
  ROCENANTE_HOST_DEVICE static void store(void* at, float value) {
    store_raw(at, static_cast<std::uint16_t>(encode_small_float<Float16Layout>(value)));
  }
};

struct Bfloat16 {
  using Acc = float;
  static constexpr std::size_t kSize = 2;
  ROCENANTE_HOST_DEVICE static float load(const void* at) {
    return bits_as<float>(std::uint32_t{load_raw<std::uint16_t>(at)} << 16);
  }
  ROCENANTE_HOST_DEVICE static void store(void* at, float value) {
    std::uint32_t bits = bits_as<std::uint32_t>(value);
    bits = value != value ? kFloat32Nan : bits + 0x7fff + ((bits >> 16) & 1);
    store_raw(at, static_cast<std::uint16_t>(bits >> 16));
  }
};

// OCP E4M3: no infinities, one NaN per sign.
struct Float8e4m3 {
  using Acc = float;
  static constexpr std::size_t kSize = 1;
  ROCENANTE_HOST_DEVICE static float load(const void* at) {
    const std::uint32_t code = load_raw<std::uint8_t>(at);
    if ((code & 0x7f) == 0x7f) return bits_as<float>(kFloat32Nan);
    // Four exponent bits in fp16's place make a number 2^(15 - 7) too small.
    return decode_float16(((code & 0x80) << 8) | ((code & 0x7f) << 7)) * 256.0f;
  }
  ROCENANTE_HOST_DEVICE static void store(void* at, float value) {
    store_raw(at, static_cast<std::uint8_t>(encode_small_float<Float8e4m3Layout>(value)));
  }
};

// The upper half of a fp16.
struct Float8e5m2 {
  using Acc = float;
  static constexpr std::size_t kSize = 1;
  ROCENANTE_HOST_DEVICE static float load(const void* at) {
    return decode_float16(std::uint32_t{load_raw<std::uint8_t>(at)} << 8);
  }
  ROCENANTE_HOST_DEVICE static void store(void* at, float value) {
    store_raw(at, static_cast<std::uint8_t>(encode_small_float<Float8e5m2Layout>(value)));
  }
};

struct Float32 {
  using Acc = float;
  static constexpr std::size_t kSize = 4;
  ROCENANTE_HOST_DEVICE static float load(const void* at) { return load_raw<float>(at); }
  ROCENANTE_HOST_DEVICE static void store(void* at, float value) {
    store_raw(at, value != value ? kFloat32Nan : bits_as<std::uint32_t>(value));
  }
};

struct Float64 {
  using Acc = double;
  static constexpr std::size_t kSize = 8;
  ROCENANTE_HOST_DEVICE static double load(const void* at) { return load_raw<double>(at); }
  ROCENANTE_HOST_DEVICE static void store(void* at, double value) {
    store_raw(at, value != value ? kFloat64Nan : bits_as<std::uint64_t>(value));
  }
};

template <class T>
struct Integer {
  using Acc = T;
  static constexpr std::size_t kSize = sizeof(T);
  ROCENANTE_HOST_DEVICE static T load(const void* at) { return load_raw<T>(at); }
  ROCENANTE_HOST_DEVICE static void store(void* at, T value) { store_raw(at, value); }
};

// Unsigned arithmetic at least as wide as T and not promoted to a signed type: wraps instead of
// overflowing.
template <class T>
using WrapType = std::conditional_t<(sizeof(T) < 8), std::uint32_t, std::uint64_t>;

struct Sum {
  template <class A>
  ROCENANTE_HOST_DEVICE static A apply(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<WrapType<A>>(a) + static_cast<WrapType<A>>(b));
    } else {
      return a + b;
    }
  }
};

struct Prod {
  template <class A>
  ROCENANTE_HOST_DEVICE static A apply(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<WrapType<A>>(a) * static_cast<WrapType<A>>(b));
    } else {
      return a * b;
    }
  }
};

ROCENANTE_HOST_DEVICE inline bool is_negative(float value) {
  return bits_as<std::uint32_t>(value) >> 31;
}
ROCENANTE_HOST_DEVICE inline bool is_negative(double value) {
  return bits_as<std::uint64_t>(value) >> 63;
}

// A number beats a NaN, and -0 < +0. Equal numbers differ in nothing but the sign of a zero.
struct Max {
  template <class A>
  ROCENANTE_HOST_DEVICE static A apply(A a, A b) {
    if constexpr (!std::is_integral_v<A>) {
      if (a != a) return b;
      if (b != b) return a;
      if (a == b) return is_negative(a) ? b : a;
    }
    return a < b ? b : a;
  }
};

struct Min {
  template <class A>
  ROCENANTE_HOST_DEVICE static A apply(A a, A b) {
    if constexpr (!std::is_integral_v<A>) {
      if (a != a) return b;
      if (b != b) return a;
      if (a == b) return is_negative(a) ? a : b;
    }
    return b < a ? b : a;
  }
};

// The one division of an average. Integers truncate towards zero.
template <class A>
ROCENANTE_HOST_DEVICE inline A divide_by_ranks(A sum, std::uint32_t n) {
  if constexpr (std::is_integral_v<A>) {
    using Wide = std::conditional_t<std::is_signed_v<A>, std::int64_t, std::uint64_t>;
    if constexpr (sizeof(A) < 4) {
      return static_cast<A>(static_cast<std::int32_t>(sum) / static_cast<std::int32_t>(n));
    } else {
      return static_cast<A>(static_cast<Wide>(sum) / static_cast<Wide>(n));
    }
  } else {
    return sum / static_cast<A>(n);
  }
}

}  // namespace rocenante::reduce
