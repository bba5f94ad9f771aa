// SPDX-License-Identifier: Apache-2.0
//
// Small text helpers of the command line. printf formats rather than a formatting library: they cost no
// compile time, and the tables are columns of fixed width anyway.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rocenante::bench {

// Exit codes of the program, part of its interface (bench/cli/options.cc documents them in --help).
inline constexpr int kExitOk = 0;
inline constexpr int kExitWrong = 1;   // a checked call had wrong elements
inline constexpr int kExitUsage = 2;   // bad arguments; nothing was run
inline constexpr int kExitFailed = 3;  // the library or the system reported an error, or a rank died

// The arguments are not acceptable. Ends the program with kExitUsage.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Running failed. Ends the program with kExitFailed.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...);

std::string join(const std::vector<std::string>& parts, std::string_view separator);

// Parts between separators; an empty text is one empty part.
std::vector<std::string> split(std::string_view whole, char separator);

// A decimal number in [min, max]. `argument` names the option in the UsageError.
std::uint64_t parse_number(std::string_view argument, std::string_view value, std::uint64_t min,
                           std::uint64_t max);

// A number of bytes: digits with an optional K, M or G (powers of 1024, either case), up to kMaxSize.
inline constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 40;
std::uint64_t parse_size(std::string_view argument, std::string_view value);

// "0 B", "1000 B", "1 KiB", "64 MiB": the largest binary unit that divides the number.
std::string size_name(std::uint64_t bytes);

// "1.2.3" for 10203, the library's encoding of versions.
std::string version_name(int code);

}  // namespace rocenante::bench
