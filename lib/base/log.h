// SPDX-License-Identifier: Apache-2.0
//
// Logging: one line, one write(2), to stderr. No lock, so that a fork or a crash in another thread cannot
// block it. A line begins with host, pid and, where known, rank.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace rocenante {

enum class LogLevel : int { kNone = 0, kVersion = 1, kWarn = 2, kInfo = 3, kAbort = 4, kTrace = 5 };

// The level in force: ROCENANTE_DEBUG, else NCCL_DEBUG, else WARN. Any thread.
LogLevel log_level();
void set_log_level(LogLevel level);
// Parses NONE, VERSION, WARN, INFO, ABORT, TRACE, any case; false if unknown.
bool parse_log_level(std::string_view text, LogLevel* level);

inline bool log_enabled(LogLevel level) {
  return static_cast<int>(level) <= static_cast<int>(log_level());
}

// Writes one line; rank < 0 means none.
void log_line(LogLevel level, int rank, std::string_view text);

template <class... Args>
void log_warn(int rank, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::kWarn)) {
    log_line(LogLevel::kWarn, rank, fmt::format(format, std::forward<Args>(args)...));
  }
}

template <class... Args>
void log_info(int rank, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(LogLevel::kInfo)) {
    log_line(LogLevel::kInfo, rank, fmt::format(format, std::forward<Args>(args)...));
  }
}

}  // namespace rocenante
