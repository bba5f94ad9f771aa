// SPDX-License-Identifier: Apache-2.0
#include "lib/base/log.h"

#include <strings.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

namespace rocenante {
namespace {

constexpr std::array<std::string_view, 6> kLevelNames = {"NONE", "VERSION", "WARN",
                                                         "INFO", "ABORT",   "TRACE"};

LogLevel level_from_environment() {
  for (const char* name : {"ROCENANTE_DEBUG", "NCCL_DEBUG"}) {
    const char* value = std::getenv(name);
    LogLevel level;
    if (value != nullptr && parse_log_level(value, &level)) return level;
  }
  return LogLevel::kWarn;
}

std::atomic<int>& level_word() {
  static std::atomic<int> word{static_cast<int>(level_from_environment())};
  return word;
}

const std::string& host_name() {
  // Never destroyed: threads may log while static objects go.
  static const auto* const name = [] {
    std::array<char, 256> buffer{};
    if (::gethostname(buffer.data(), buffer.size() - 1) != 0) return new std::string("unknown-host");
    return new std::string(buffer.data());
  }();
  return *name;
}

}  // namespace

LogLevel log_level() {
  return static_cast<LogLevel>(level_word().load(std::memory_order_relaxed));
}

void set_log_level(LogLevel level) {
  level_word().store(static_cast<int>(level), std::memory_order_relaxed);
}

bool parse_log_level(std::string_view text, LogLevel* level) {
  const std::string value(text);
  for (std::size_t i = 0; i < kLevelNames.size(); ++i) {
    if (::strcasecmp(value.c_str(), std::string(kLevelNames[i]).c_str()) == 0) {
      *level = static_cast<LogLevel>(i);
      return true;
    }
  }
  return false;
}

void log_line(LogLevel level, int rank, std::string_view text) {
  const std::string who = rank < 0 ? std::string() : fmt::format(" rank {}", rank);
  const std::string line = fmt::format("{}:{}{} ROCENANTE {} {}\n", host_name(), ::getpid(), who,
                                       kLevelNames[static_cast<std::size_t>(level)], text);
  // A short write on stderr is not worth a retry loop: the log is never part of the protocol.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace rocenante
