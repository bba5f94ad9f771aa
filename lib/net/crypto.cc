// SPDX-License-Identifier: Apache-2.0
#include "lib/net/crypto.h"

#include <sodium.h>

#include <cstdlib>
#include <mutex>

namespace rocenante::net {
namespace {

void initialise() {
  static std::once_flag once;
  // Fails only where the system has no random source, without which nothing here can be trusted.
  std::call_once(once, [] {
    if (::sodium_init() < 0) std::abort();
  });
}

unsigned char* raw(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

void hash_parts(std::span<std::byte> out, const std::byte* key, std::size_t key_bytes,
                std::initializer_list<ByteSpan> parts) {
  initialise();
  crypto_generichash_state state;
  ::crypto_generichash_init(&state, key == nullptr ? nullptr : raw(key), key_bytes, out.size());
  for (const ByteSpan part : parts) ::crypto_generichash_update(&state, raw(part.data()), part.size());
  ::crypto_generichash_final(&state, raw(out.data()), out.size());
  ::sodium_memzero(&state, sizeof(state));
}

}  // namespace

SecretKey::~SecretKey() {
  ::sodium_memzero(bytes.data(), bytes.size());
}

void random_bytes(std::span<std::byte> out) {
  initialise();
  ::randombytes_buf(out.data(), out.size());
}

SecretKey random_key() {
  SecretKey key;
  random_bytes(key.bytes);
  return key;
}

Mac keyed_hash(const SecretKey& key, std::initializer_list<ByteSpan> parts) {
  Mac mac;
  hash_parts(mac, key.bytes.data(), key.bytes.size(), parts);
  return mac;
}

SecretKey derive_key(const SecretKey& key, std::initializer_list<ByteSpan> parts) {
  SecretKey derived;
  hash_parts(derived.bytes, key.bytes.data(), key.bytes.size(), parts);
  return derived;
}

void plain_hash(std::span<std::byte> out, std::initializer_list<ByteSpan> parts) {
  hash_parts(out, nullptr, 0, parts);
}

bool equal_in_constant_time(const Mac& a, const Mac& b) {
  static_assert(kMacBytes == crypto_verify_32_BYTES);
  return ::crypto_verify_32(raw(a.data()), raw(b.data())) == 0;
}

}  // namespace rocenante::net
