// SPDX-License-Identifier: Apache-2.0
#include "lib/base/config.h"

#include <strings.h>

#include <atomic>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

extern char** environ;

namespace rocenante {
namespace {

constexpr std::string_view kPrefix = "ROCENANTE_";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

// The spelling of the table, or empty if `text` is not among the choices.
std::string_view matching_choice(std::string_view choices, std::string_view text) {
  while (!choices.empty()) {
    const std::size_t bar = choices.find('|');
    const std::string_view choice = choices.substr(0, bar);
    if (equal_ignoring_case(choice, text)) return choice;
    choices = bar == std::string_view::npos ? std::string_view() : choices.substr(bar + 1);
  }
  return {};
}

std::array<std::atomic<const char*>, kNumKeys> admitted{};

std::string_view matching_choice(const ConfigRow& row, std::string_view text) {
  const std::string_view choice = matching_choice(row.allowed, text);
  const char* const more = admitted[static_cast<std::size_t>(row.key)].load(std::memory_order_acquire);
  return choice.empty() && more != nullptr ? matching_choice(more, text) : choice;
}

const ConfigRow* find_row(std::string_view name) {
  for (const ConfigRow& row : config_table()) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

// Accepts the whole text or nothing; independent of the locale, unlike strtod.
bool parse_real(std::string_view text, double* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(*value);
}

// NCCL reads its integers in C's notation.
bool parse_hexadecimal(std::string_view text, double* value) {
  if (!text.starts_with("0x") && !text.starts_with("0X")) return false;
  std::uint32_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data() + 2, last, number, 16);
  *value = number;
  return error == std::errc() && end == last;
}

bool is_number(const ConfigRow& row) {
  return row.type != ValueType::kText && row.type != ValueType::kChoice;
}

std::string allowed_text(const ConfigRow& row) {
  if (row.type == ValueType::kChoice) return fmt::format("one of {}", row.allowed);
  const char* kind = row.type == ValueType::kReal ? "a number" : "an integer";
  const char* suffix = row.type == ValueType::kBytes ? ", K, M or G may follow" : "";
  const std::string word = row.allowed == nullptr ? "" : fmt::format("{} or ", row.allowed);
  return fmt::format("{}{} from {} to {}{}", word, kind, row.minimum, row.maximum, suffix);
}

}  // namespace

void admit_choice(Key key, const char* value) {
  admitted[static_cast<std::size_t>(key)].store(value, std::memory_order_release);
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, value);
  unsigned shift = 0;
  const std::string_view suffix(next, static_cast<std::size_t>(end - next));
  if (suffix.size() == 1) {
    const char unit = suffix.front();
    shift = unit == 'K' || unit == 'k'   ? 10
            : unit == 'M' || unit == 'm' ? 20
            : unit == 'G' || unit == 'g' ? 30
                                         : 0;
  }
  const bool suffix_ok = suffix.empty() || shift != 0;
  if (error != std::errc() || !suffix_ok || value > (std::numeric_limits<std::uint64_t>::max() >> shift)) {
    return make_error(Code::kInvalidArgument,
                      "'{}' is not a size: expected an integer, K, M or G may follow", text);
  }
  return value << shift;
}

Status Config::set(const ConfigRow& row, std::string_view text, std::string_view source) {
  Value value{std::string(trimmed(text)), 0, std::string(source)};
  if (is_number(row) && row.allowed != nullptr && value.text == row.allowed) {
    values_[index(row.key)] = std::move(value);
    return {};
  }
  bool ok = true;
  switch (row.type) {
    case ValueType::kText:
      break;
    case ValueType::kChoice: {
      const std::string_view choice = matching_choice(row, value.text);
      ok = !choice.empty();
      if (ok) value.text = choice;
      break;
    }
    case ValueType::kBytes: {
      Result<std::uint64_t> bytes = parse_bytes(value.text);
      ok = bytes.ok();
      if (ok) value.number = static_cast<double>(bytes.value());
      break;
    }
    case ValueType::kInteger:
    case ValueType::kReal:
      if (row.fallback != nullptr && source == row.fallback && parse_hexadecimal(value.text, &value.number))
        break;
      ok = parse_real(value.text, &value.number) &&
           (row.type == ValueType::kReal || value.number == std::floor(value.number));
      break;
  }
  if (ok && is_number(row)) ok = value.number >= row.minimum && value.number <= row.maximum;
  if (!ok) {
    return make_error(Code::kInvalidArgument, "{}='{}' ({}) is not allowed: expected {}", row.name,
                      value.text, source, allowed_text(row));
  }
  values_[index(row.key)] = std::move(value);
  return {};
}

Result<Config> Config::load(std::string_view options) {
  Config config;
  for (const ConfigRow& row : config_table()) {
    RCN_TRY(config.set(row, row.default_value, "default"));
    if (const char* own = std::getenv(row.name); own != nullptr) {
      RCN_TRY(config.set(row, own, "environment"));
    } else if (row.fallback != nullptr) {
      if (const char* theirs = std::getenv(row.fallback); theirs != nullptr) {
        RCN_TRY(config.set(row, theirs, row.fallback));
      }
    }
  }
  while (!options.empty()) {
    const std::size_t end = options.find_first_of(";\n");
    const std::string_view item = trimmed(options.substr(0, end));
    options = end == std::string_view::npos ? std::string_view() : options.substr(end + 1);
    if (item.empty()) continue;
    const std::size_t equals = item.find('=');
    const std::string_view name = trimmed(item.substr(0, equals));
    const ConfigRow* row = find_row(name);
    if (equals == std::string_view::npos || row == nullptr) {
      return make_error(
          Code::kInvalidArgument,
          "options: '{}' is not NAME=VALUE with the name of a setting (docs/configuration.md)", item);
    }
    RCN_TRY(config.set(*row, item.substr(equals + 1), "options"));
  }
  return config;
}

Config Config::with(Key key, std::string_view value) const {
  Config changed = *this;
  [[maybe_unused]] const Status set = changed.set(config_row(key), value, "library");
  assert(set.ok());
  return changed;
}

std::string Config::agreed_text() const {
  std::string result;
  for (const ConfigRow& row : config_table()) {
    if (row.scope != Scope::kAgreed) continue;
    // Numbers are compared as numbers: 1M and 1048576 agree.
    const Value& value = values_[index(row.key)];
    const bool as_number = is_number(row) && (row.allowed == nullptr || value.text != row.allowed);
    result += as_number ? fmt::format("{}={}\n", row.name, value.number)
                        : fmt::format("{}={}\n", row.name, value.text);
  }
  return result;
}

std::string Config::describe() const {
  std::string result;
  for (const ConfigRow& row : config_table()) {
    const Value& value = values_[index(row.key)];
    const bool hidden = row.secret && !value.text.empty();
    result += fmt::format("{}={} ({})\n", row.name, hidden ? "(set)" : value.text, value.source);
  }
  return result;
}

std::vector<std::string> unknown_variables() {
  std::vector<std::string> result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const std::string_view name = line.substr(0, line.find('='));
    if (name.starts_with(kPrefix) && find_row(name) == nullptr) result.emplace_back(name);
  }
  return result;
}

std::string config_reference() {
  std::string page =
      "# Configuration\n\n"
      "Generated from the table in `lib/base/config_table.cc`; the tests compare it with the library's own "
      "output "
      "(topic `config.md` of `rcnDescribe`).\n\n"
      "A missing variable means its default, a present but bad one is an error, an unknown `ROCENANTE_*` "
      "is a "
      "warning. *Agreed* settings must be equal on all ranks of a communicator; a difference is refused by "
      "name and "
      "value. *Local* ones may differ. `rcnConfig_t.options` takes the same names and wins over the "
      "environment.\n\n"
      "| name | default | unit | allowed | scope | NCCL fallback | meaning "
      "|\n|---|---|---|---|---|---|---|\n";
  for (const ConfigRow& row : config_table()) {
    std::string allowed = row.type == ValueType::kText ? "any text" : allowed_text(row);
    for (std::size_t at = 0; (at = allowed.find('|', at)) != std::string::npos; at += 2)
      allowed.replace(at, 1, ", ");
    page += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", row.name,
                        *row.default_value == '\0' ? "(empty)" : row.default_value, row.unit, allowed,
                        row.scope == Scope::kAgreed ? "agreed" : "local",
                        row.fallback == nullptr ? "" : fmt::format("`{}`", row.fallback), row.help);
  }
  return page;
}

}  // namespace rocenante
