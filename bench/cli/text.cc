// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/text.h"

#include <charconv>
#include <cstdarg>
#include <cstdio>

namespace rocenante::bench {

namespace {

std::string as_string(std::string_view view) {
  return std::string(view);
}

}  // namespace

std::string text(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, arguments);
  va_end(arguments);
  std::string out;
  if (length > 0) {
    out.resize(static_cast<std::size_t>(length));
    std::vsnprintf(out.data(), out.size() + 1, format, again);
  }
  va_end(again);
  return out;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (const std::string& part : parts) {
    if (!out.empty()) out += separator;
    out += part;
  }
  return out;
}

std::vector<std::string> split(std::string_view whole, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = whole.find(separator);
    parts.emplace_back(whole.substr(0, end));
    if (end == std::string_view::npos) return parts;
    whole.remove_prefix(end + 1);
  }
}

std::uint64_t parse_number(std::string_view argument, std::string_view value, std::uint64_t min,
                           std::uint64_t max) {
  std::uint64_t number = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end || number < min || number > max) {
    throw UsageError(text("%s '%s': must be a whole number from %llu to %llu", as_string(argument).c_str(),
                          as_string(value).c_str(), static_cast<unsigned long long>(min),
                          static_cast<unsigned long long>(max)));
  }
  return number;
}

std::uint64_t parse_size(std::string_view argument, std::string_view value) {
  std::string_view digits = value;
  unsigned shift = 0;
  if (!digits.empty()) {
    switch (digits.back()) {
      case 'k':
      case 'K':
        shift = 10;
        break;
      case 'm':
      case 'M':
        shift = 20;
        break;
      case 'g':
      case 'G':
        shift = 30;
        break;
      default:
        break;
    }
    if (shift != 0) digits.remove_suffix(1);
  }
  std::uint64_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || stop != end || number > (kMaxSize >> shift)) {
    throw UsageError(
        text("%s '%s': must be a size in bytes, digits with an optional K, M or G "
             "(powers of 1024), at most %lluG",
             as_string(argument).c_str(), as_string(value).c_str(),
             static_cast<unsigned long long>(kMaxSize >> 30)));
  }
  return number << shift;
}

std::string size_name(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return text("%llu %s", static_cast<unsigned long long>(bytes), kUnits[unit]);
}

std::string version_name(int code) {
  return text("%d.%d.%d", code / 10000, code / 100 % 100, code % 100);
}

}  // namespace rocenante::bench
