// SPDX-License-Identifier: Apache-2.0
#include "lib/base/config.h"

#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "lib/base/log.h"
#include "tests/support/catch.h"

using namespace rocenante;

namespace {

// Sets variables for one test; every variable a row reads is absent at first, whatever the caller has.
class Environment {
 public:
  Environment() {
    for (const ConfigRow& row : config_table()) {
      save(row.name);
      if (row.fallback != nullptr) save(row.fallback);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : saved_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  void set(const std::string& name, const std::string& value) {
    if (!saved_.contains(name)) save(name);
    ::setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  void save(const std::string& name) {
    const char* const value = std::getenv(name.c_str());
    saved_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
    ::unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> saved_;
};

Config loaded(std::string_view options = {}) {
  Result<Config> config = Config::load(options);
  INFO(config.status().text());
  REQUIRE(config.ok());
  return config.take();
}

std::string refusal(std::string_view options = {}) {
  const Result<Config> config = Config::load(options);
  if (config.ok()) return "";
  CHECK(config.status().code() == Code::kInvalidArgument);
  return config.status().text();
}

bool contains(std::string_view whole, std::string_view part) {
  return whole.find(part) != std::string_view::npos;
}

}  // namespace

TEST_CASE("every row is complete and named once") {
  std::set<std::string> names;
  for (const ConfigRow& row : config_table()) {
    INFO(row.name);
    CHECK(names.insert(row.name).second);
    CHECK(std::string_view(row.name).starts_with("ROCENANTE_"));
    CHECK(!std::string_view(row.help).empty());
    if (row.type == ValueType::kChoice) CHECK(row.allowed != nullptr);
    if (row.type == ValueType::kText) CHECK(row.allowed == nullptr);
    if (row.type == ValueType::kBytes || row.type == ValueType::kInteger || row.type == ValueType::kReal) {
      CHECK(row.minimum < row.maximum);
    }
    // What is secret is never compared in clear.
    CHECK_FALSE((row.secret && row.scope == Scope::kAgreed));
    CHECK(&config_row(row.key) == &row);
  }
}

TEST_CASE("without variables every setting has its default, and every default is allowed") {
  const Environment environment;
  const Config config = loaded();
  for (const ConfigRow& row : config_table()) {
    INFO(row.name);
    CHECK(config.text(row.key) == row.default_value);
    CHECK(config.source(row.key) == "default");
  }
  CHECK(config.integer(Key::kSlotBytes) == 1u << 20);
  CHECK(config.real(Key::kTimeoutS) == 600);
  CHECK(config.nanoseconds(Key::kTimeoutS) == 600'000'000'000u);
}

TEST_CASE("options win over the environment, the environment over NCCL's variable, that over the default") {
  Environment environment;
  environment.set("NCCL_SOCKET_IFNAME", "eth");
  CHECK(loaded().text(Key::kSocketIfname) == "eth");
  CHECK(loaded().source(Key::kSocketIfname) == "NCCL_SOCKET_IFNAME");
  environment.set("ROCENANTE_SOCKET_IFNAME", "ib");
  CHECK(loaded().text(Key::kSocketIfname) == "ib");
  CHECK(loaded().source(Key::kSocketIfname) == "environment");
  const Config config = loaded("ROCENANTE_SOCKET_IFNAME=lo");
  CHECK(config.text(Key::kSocketIfname) == "lo");
  CHECK(config.source(Key::kSocketIfname) == "options");
}

TEST_CASE("integers of NCCL's variables may be hexadecimal, as NCCL reads them; ours may not") {
  Environment environment;
  environment.set("NCCL_IB_TC", "0x6A");
  CHECK(loaded().integer(Key::kIbTc) == 106);
  environment.set("NCCL_IB_TC", "0x100");
  CHECK(contains(refusal(), "ROCENANTE_IB_TC='0x100' (NCCL_IB_TC)"));
  environment.set("NCCL_IB_TC", "0x6g");
  CHECK(contains(refusal(), "ROCENANTE_IB_TC='0x6g' (NCCL_IB_TC)"));
  environment.set("ROCENANTE_IB_TC", "0x6a");
  CHECK(contains(refusal(), "ROCENANTE_IB_TC='0x6a' (environment)"));
}

TEST_CASE("an option that is good does not hide a variable that is bad") {
  Environment environment;
  environment.set("ROCENANTE_SLOT_BYTES", "many");
  CHECK(contains(refusal("ROCENANTE_SLOT_BYTES=1M"), "ROCENANTE_SLOT_BYTES='many'"));
}

TEST_CASE("options are separated by semicolons or newlines, with blanks around") {
  const Environment environment;
  const Config config =
      loaded(" ROCENANTE_SPIN_US = 7 ;\n;ROCENANTE_TRANSPORT=shm\nROCENANTE_TIMEOUT_S=0.25;");
  CHECK(config.integer(Key::kSpinUs) == 7);
  CHECK(config.text(Key::kTransport) == "shm");
  CHECK(config.nanoseconds(Key::kTimeoutS) == 250'000'000u);
  CHECK(loaded("ROCENANTE_SPIN_US=1;ROCENANTE_SPIN_US=2").integer(Key::kSpinUs) == 2);
}

TEST_CASE("an option that is no setting is refused with its text") {
  const Environment environment;
  for (const char* const bad :
       {"ROCENANTE_NOSUCH=1", "ROCENANTE_SPIN_US", "=1", "NCCL_SOCKET_IFNAME=lo", "rocenante_spin_us=1"}) {
    INFO(bad);
    CHECK(contains(refusal(bad), std::string("'") + bad + "'"));
  }
}

TEST_CASE("choices ignore case and are stored as the table spells them") {
  Environment environment;
  environment.set("ROCENANTE_TRANSPORT", "ShM");
  CHECK(loaded().text(Key::kTransport) == "shm");
  environment.set("NCCL_SOCKET_FAMILY", "af_inet6");
  CHECK(loaded().text(Key::kSocketFamily) == "AF_INET6");
}

TEST_CASE("a bad value names the variable, the value, where it came from and what is allowed") {
  struct Bad {
    const char* name;
    const char* value;
    const char* expected;
  };
  for (const Bad& bad : {
           Bad{"ROCENANTE_TRANSPORT", "carrier-pigeon", "one of auto|"},
           Bad{"ROCENANTE_TRANSPORT", "", "one of auto|"},
           Bad{"ROCENANTE_TRANSPORT", "auto|shm", "one of auto|"},
           Bad{"ROCENANTE_SLOT_BYTES", "4095", "from 4096"},
           Bad{"ROCENANTE_SLOT_BYTES", "2G", "an integer from"},
           Bad{"ROCENANTE_SLOT_BYTES", "1MB", "K, M or G"},
           Bad{"ROCENANTE_SLOT_BYTES", "-1", "an integer"},
           Bad{"ROCENANTE_SLOT_BYTES", "99999999999999999999", "an integer"},
           Bad{"ROCENANTE_SPIN_US", "1.5", "an integer"},
           Bad{"ROCENANTE_SPIN_US", "", "an integer"},
           Bad{"ROCENANTE_SPIN_US", "0x10", "an integer"},
           Bad{"ROCENANTE_TIMEOUT_S", "0", "a number from 0.001"},
           Bad{"ROCENANTE_TIMEOUT_S", "nan", "a number"},
           Bad{"ROCENANTE_TIMEOUT_S", "inf", "a number"},
           Bad{"ROCENANTE_TIMEOUT_S", "600s", "a number"},
       }) {
    INFO(bad.name << "='" << bad.value << "'");
    Environment environment;
    environment.set(bad.name, bad.value);
    const std::string text = refusal();
    CHECK(contains(text, std::string(bad.name) + "='" + bad.value + "'"));
    CHECK(contains(text, "environment"));
    CHECK(contains(text, bad.expected));
  }
}

TEST_CASE("a bad NCCL variable is blamed by its own name") {
  Environment environment;
  environment.set("NCCL_SOCKET_FAMILY", "AF_IPX");
  CHECK(contains(refusal(), "NCCL_SOCKET_FAMILY"));
}

TEST_CASE("sizes are integers with a binary suffix") {
  CHECK(parse_bytes("0").value() == 0);
  CHECK(parse_bytes("4096").value() == 4096);
  CHECK(parse_bytes("64K").value() == 64u << 10);
  CHECK(parse_bytes("3m").value() == 3u << 20);
  CHECK(parse_bytes("2G").value() == std::uint64_t{2} << 30);
  CHECK(parse_bytes("17179869183G").value() == std::uint64_t{17179869183} << 30);
  for (const char* const bad :
       {"", "K", "1T", "1KB", "1 K", " 1", "-1", "+1", "1.5M", "0x10", "17179869184G"}) {
    INFO("'" << bad << "'");
    REQUIRE_FALSE(parse_bytes(bad).ok());
    CHECK(contains(parse_bytes(bad).status().text(), std::string("'") + bad + "'"));
  }
}

TEST_CASE("agreed settings are compared as values, not as spelling; local ones are not") {
  const Environment environment;
  CHECK(loaded("ROCENANTE_SLOT_BYTES=1M").agreed_text() ==
        loaded("ROCENANTE_SLOT_BYTES=1048576").agreed_text());
  CHECK(loaded("ROCENANTE_TIMEOUT_S=1").agreed_text() == loaded("ROCENANTE_TIMEOUT_S=1.0").agreed_text());
  CHECK(loaded("ROCENANTE_TRANSPORT=SHM").agreed_text() == loaded("ROCENANTE_TRANSPORT=shm").agreed_text());
  CHECK(loaded("ROCENANTE_SLOT_BYTES=2M").agreed_text() != loaded().agreed_text());
  CHECK(loaded("ROCENANTE_TIMEOUT_S=600.001").agreed_text() != loaded().agreed_text());
  CHECK(loaded("ROCENANTE_SPIN_US=1").agreed_text() == loaded().agreed_text());
  CHECK(contains(loaded().agreed_text(), "ROCENANTE_TRANSPORT=auto\n"));
}

TEST_CASE("a secret is in use but in no text") {
  Environment environment;
  environment.set("ROCENANTE_SECRET", "hunter2");
  const Config config = loaded();
  CHECK(config.text(Key::kSecret) == "hunter2");
  CHECK_FALSE(contains(config.describe(), "hunter2"));
  CHECK_FALSE(contains(config.agreed_text(), "hunter2"));
  CHECK(contains(config.describe(), "ROCENANTE_SECRET=(set) (environment)\n"));
}

TEST_CASE("the settings in force are listed with their sources") {
  Environment environment;
  environment.set("ROCENANTE_SPIN_US", "3");
  const std::string text = loaded("ROCENANTE_TRANSPORT=shm").describe();
  CHECK(contains(text, "ROCENANTE_SPIN_US=3 (environment)\n"));
  CHECK(contains(text, "ROCENANTE_TRANSPORT=shm (options)\n"));
  CHECK(contains(text, "ROCENANTE_TIMEOUT_S=600 (default)\n"));
}

TEST_CASE("variables of ours that no row has are found") {
  Environment environment;
  environment.set("ROCENANTE_NOSUCH", "1");
  environment.set("ROCENANTE_SPIN_US", "1");
  environment.set("NOT_ROCENANTE_AT_ALL", "1");
  const std::vector<std::string> names = unknown_variables();
  CHECK(std::count(names.begin(), names.end(), "ROCENANTE_NOSUCH") == 1);
  CHECK(std::count(names.begin(), names.end(), "ROCENANTE_SPIN_US") == 0);
  CHECK(std::count(names.begin(), names.end(), "NOT_ROCENANTE_AT_ALL") == 0);
}

TEST_CASE("the reference page has one row per setting and as many cells as its head") {
  const std::string page = config_reference();
  std::size_t rows = 0;
  std::size_t start = 0;
  while (start < page.size()) {
    const std::size_t end = page.find('\n', start);
    REQUIRE(end != std::string::npos);
    const std::string_view line = std::string_view(page).substr(start, end - start);
    if (line.starts_with("|")) {
      INFO(line);
      CHECK(std::count(line.begin(), line.end(), '|') == 8);
      if (line.starts_with("| `ROCENANTE_")) ++rows;
    }
    start = end + 1;
  }
  CHECK(rows == kNumKeys);
}

TEST_CASE("log levels are NCCL's, in any case") {
  LogLevel level = LogLevel::kNone;
  CHECK(parse_log_level("info", &level));
  CHECK(level == LogLevel::kInfo);
  CHECK(parse_log_level("WARN", &level));
  CHECK(level == LogLevel::kWarn);
  for (const char* name : {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE", "WARN"}) {
    CHECK(parse_log_level(name, &level));
  }
  CHECK_FALSE(parse_log_level("LOUD", &level));
  CHECK(level == LogLevel::kWarn);
}

TEST_CASE("a word may stand for a number where the row says so", "[config]") {
  Environment environment;
  CHECK(loaded().text(Key::kAllReduceMaxBytes) == "auto");
  CHECK(loaded().integer(Key::kAllReduceMaxBytes) == 0);
  CHECK(contains(loaded().agreed_text(), "ROCENANTE_ALL_REDUCE_MAX_BYTES=auto\n"));
  environment.set("ROCENANTE_ALL_REDUCE_MAX_BYTES", "64K");
  CHECK(loaded().integer(Key::kAllReduceMaxBytes) == 65536);
  CHECK(contains(loaded().agreed_text(), "ROCENANTE_ALL_REDUCE_MAX_BYTES=65536\n"));
  environment.set("ROCENANTE_ALL_REDUCE_MAX_BYTES", "some");
  CHECK(contains(refusal(), "auto or an integer from 0"));
  // But nowhere else.
  environment.set("ROCENANTE_ALL_REDUCE_MAX_BYTES", "auto");
  CHECK(contains(refusal("ROCENANTE_SLOT_BYTES=auto"), "ROCENANTE_SLOT_BYTES"));
}
