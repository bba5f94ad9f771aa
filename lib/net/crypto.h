// SPDX-License-Identifier: Apache-2.0
//
// The few cryptographic functions we need, over libsodium. All are safe from any thread; the library is
// initialised once, on first use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace rocenante::net {

inline constexpr std::size_t kKeyBytes = 32;
inline constexpr std::size_t kMacBytes = 32;

// A 256-bit secret; wiped when destroyed. Never logged or sent.
struct SecretKey {
  std::array<std::byte, kKeyBytes> bytes{};

  SecretKey() = default;
  SecretKey(const SecretKey&) = default;
  SecretKey& operator=(const SecretKey&) = default;
  ~SecretKey();
};

using Mac = std::array<std::byte, kMacBytes>;
using ByteSpan = std::span<const std::byte>;

inline ByteSpan bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Fills `out` from the system's random source.
void random_bytes(std::span<std::byte> out);
SecretKey random_key();

// BLAKE2b of the concatenated parts, keyed. The caller makes the parts unambiguous: fixed sizes, or lengths
// in front.
Mac keyed_hash(const SecretKey& key, std::initializer_list<ByteSpan> parts);
// The same as a key: for deriving one from another.
SecretKey derive_key(const SecretKey& key, std::initializer_list<ByteSpan> parts);
// BLAKE2b without a key, of any size from 16 to 64 bytes.
void plain_hash(std::span<std::byte> out, std::initializer_list<ByteSpan> parts);

// In time that does not depend on where they differ.
bool equal_in_constant_time(const Mac& a, const Mac& b);

}  // namespace rocenante::net
