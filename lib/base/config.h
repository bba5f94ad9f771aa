// SPDX-License-Identifier: Apache-2.0
//
// Configuration: one table, read once per communicator. A missing variable means its default, a present but
// bad one is an error, an unknown ROCENANTE_* is a warning. docs/configuration.md is generated from the
// table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.h"

namespace rocenante {

enum class Key : std::uint32_t {
  kTransport,
  kSlotBytes,
  kChunkBytes,
  kTwoRoundBytes,
  kSimd,
  kDevice,
  kFallback,
  kNcclPath,
  kAllReduceMaxBytes,
  kAllGatherMaxBytes,
  kReduceScatterMaxBytes,
  kBroadcastMaxBytes,
  kReduceMaxBytes,
  kAllToAllMaxBytes,
  kSpinUs,
  kTimeoutS,
  kFirstOpTimeoutS,
  kInitTimeoutS,
  kSuspectS,
  kHeartbeatS,
  kGoodbyeTimeoutS,
  kSocketIfname,
  kSocketFamily,
  kTcpWindow,
  kSecret,
  kSecretFile,
  kDebug,
  kStats,
  kStatsFile,
  kSignal,
  kStripeBytes,
  kReceiveMemory,
  kIbHca,
  kIbGidIndex,
  kIbAddrFamily,
  kIbTc,
  kIbSl,
  kIbTimeout,
  kIbRetryCnt,
  kProgressSpinUs,
  kProgressCpus,
  kMemAlloc,
  kCount
};
inline constexpr std::size_t kNumKeys = static_cast<std::size_t>(Key::kCount);

enum class ValueType : std::uint8_t {
  kChoice,   // one of `allowed`, separated by '|'
  kBytes,    // integer with an optional K, M or G (binary)
  kInteger,  // decimal
  kReal,     // decimal, may have a fraction
  kText,     // anything
};

// Agreed settings must be equal on all ranks of a communicator and are refused by name and value where they
// are not; local ones are only exchanged for diagnostics.
enum class Scope : std::uint8_t { kAgreed, kLocal };

struct ConfigRow {
  Key key;
  const char* name;
  ValueType type;
  const char* fallback;  // NCCL variable read when ours is absent, or null
  const char* default_value;
  const char* unit;     // "" where none
  const char* allowed;  // choices; of a number, a word that may stand for it (its value is then 0); or null
  double minimum;       // numbers only
  double maximum;
  Scope scope;
  bool secret;  // value never printed or exchanged
  const char* help;
};

const std::array<ConfigRow, kNumKeys>& config_table();
inline const ConfigRow& config_row(Key key) {
  return config_table()[static_cast<std::size_t>(key)];
}

// An immutable set of values. Thread-safe to read.
class Config {
 public:
  // Reads the environment, then `options` ("NAME=VALUE" separated by ';' or newlines), which win. Errors
  // name the variable, its value and what is allowed.
  static Result<Config> load(std::string_view options = {});

  // The same but for one setting, whose new value must be allowed.
  Config with(Key key, std::string_view value) const;

  const std::string& text(Key key) const { return values_[index(key)].text; }
  std::uint64_t integer(Key key) const { return static_cast<std::uint64_t>(values_[index(key)].number); }
  double real(Key key) const { return values_[index(key)].number; }
  // A duration in seconds as nanoseconds.
  std::uint64_t nanoseconds(Key key) const { return static_cast<std::uint64_t>(real(key) * 1e9); }
  // "default", "environment", "options", or the NCCL variable it came from.
  const std::string& source(Key key) const { return values_[index(key)].source; }

  // Canonical text of every agreed setting, "NAME=VALUE\n" each, in table order: what ranks compare.
  std::string agreed_text() const;
  // Every setting, its value and source, one per line; secrets are hidden.
  std::string describe() const;

 private:
  struct Value {
    std::string text;
    double number = 0;
    std::string source;
  };
  static std::size_t index(Key key) { return static_cast<std::size_t>(key); }
  Status set(const ConfigRow& row, std::string_view text, std::string_view source);

  std::array<Value, kNumKeys> values_;
};

// Accepts one more value, in lower case, for a setting of choices, in this process: for what only a program
// that links the library statically has. `value` lives for ever; one for each setting.
void admit_choice(Key key, const char* value);

// Parses "4096", "64K", "1M", "2G" (binary multiples).
Result<std::uint64_t> parse_bytes(std::string_view text);

// Names of ROCENANTE_* variables in the environment that no row has.
std::vector<std::string> unknown_variables();

// The reference page, in Markdown.
std::string config_reference();

}  // namespace rocenante
