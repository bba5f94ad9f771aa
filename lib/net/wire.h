// SPDX-License-Identifier: Apache-2.0
//
// Fields of messages: little-endian integers and strings with a 32-bit length. Reading checks every bound
// and never throws; one check at the end covers all fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace rocenante::net {

class WireWriter {
 public:
  template <class T>
  WireWriter& integer(T value) {
    static_assert(std::is_unsigned_v<T>);
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i) & 0xff));
    }
    return *this;
  }
  WireWriter& raw(std::string_view bytes) {
    bytes_.append(bytes);
    return *this;
  }
  WireWriter& raw(std::span<const std::byte> bytes) {
    return raw(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  // The caller keeps strings below 4 GiB; the receiver's limit is far lower.
  WireWriter& string(std::string_view text) {
    integer(static_cast<std::uint32_t>(text.size()));
    return raw(text);
  }
  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Views `bytes`, which must outlive it and the strings read.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T integer() {
    static_assert(std::is_unsigned_v<T>);
    const std::string_view field = raw(sizeof(T));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < field.size(); ++i) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(field[i])) << (8 * i);
    }
    return static_cast<T>(value);
  }
  // Empty, and the reader failed, when fewer are left.
  std::string_view raw(std::size_t count) {
    if (failed_ || count > bytes_.size()) {
      failed_ = true;
      return {};
    }
    const std::string_view field = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return field;
  }
  std::string_view string(std::size_t longest) {
    const auto length = integer<std::uint32_t>();
    if (length > longest) failed_ = true;
    return raw(length);
  }
  std::string_view rest() { return raw(bytes_.size()); }
  // Every field was there, and nothing is left.
  bool complete() const { return !failed_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool failed_ = false;
};

}  // namespace rocenante::net
