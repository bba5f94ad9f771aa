// SPDX-License-Identifier: Apache-2.0
//
// Where a progress thread runs, and for how long it spins.
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "lib/comm/progress.h"
#include "lib/net/deadline.h"
#include "tests/support/catch.h"

namespace rocenante {
namespace {

using fabric::best_processors;
using fabric::parse_processors;
using fabric::Processors;

// A sysfs tree that knows the capacities of some processors.
class Capacities {
 public:
  Capacities() {
    char name[] = "/tmp/rocenante-capacities-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    root = name;
  }
  ~Capacities() { std::filesystem::remove_all(root); }
  Capacities(const Capacities&) = delete;
  Capacities& operator=(const Capacities&) = delete;

  void set(std::uint32_t processor, const std::string& capacity) const {
    const auto folder =
        std::filesystem::path(root) / ("devices/system/cpu/cpu" + std::to_string(processor));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "cpu_capacity") << capacity << '\n';
  }

  std::string root;
};

Config config_of(const std::string& options) {
  Result<Config> config = Config::load(options);
  INFO(config.status().text());
  REQUIRE(config.ok());
  return config.take();
}

Result<ProgressSettings> settings_of(const std::string& options,
                                     const std::vector<fabric::Port>& ports = {}, std::uint32_t ranks = 1,
                                     std::uint32_t processors = 8) {
  const Capacities none;
  return ProgressSettings::from(config_of(options), ports, ranks, processors, none.root);
}

TEST_CASE("lists of processors are read as sysfs writes them, and nothing else", "[progress]") {
  const auto [text, expected] = GENERATE(table<std::string, Processors>({
      {"", {}},
      {"3", {3}},
      {"0-3", {0, 1, 2, 3}},
      {"8,0-2,1", {0, 1, 2, 8}},
      {"5-5,1023", {5, 1023}},
  }));
  INFO(text);
  Processors found{77};
  REQUIRE(parse_processors(text, &found));
  REQUIRE(found == expected);
  for (const char* const bad : {"a", "1,", ",1", "3-1", "1-", "-1", "1 ", "1;2", "1024", "0-1024", "1--2",
                                "99999999999", "0x1", "1,,2"}) {
    INFO(bad);
    Processors kept{77};
    CHECK_FALSE(parse_processors(bad, &kept));
    CHECK(kept == Processors{77});
  }
}

TEST_CASE("the best processors are near, allowed and big", "[progress]") {
  const Capacities alike;
  CHECK(best_processors(alike.root, {0, 1, 2, 3}, {2, 3, 9}) == Processors{2, 3});
  CHECK(best_processors(alike.root, {0, 1}, {2, 3}) == Processors{0, 1});
  CHECK(best_processors(alike.root, {0, 1}, {}) == Processors{0, 1});

  // Ten little and ten big ones, as on a GB10, some of them near.
  const Capacities mixed;
  for (std::uint32_t i = 0; i < 20; ++i) mixed.set(i, i % 10 < 5 ? "718" : "1024");
  CHECK(best_processors(mixed.root, {0, 1, 4, 5, 6, 10, 15}, {}) == Processors{5, 6, 15});
  CHECK(best_processors(mixed.root, {0, 1, 4, 5, 6, 10, 15}, {0, 1, 2, 6}) == Processors{6});
  CHECK(best_processors(mixed.root, {0, 1, 4}, {}) == Processors{0, 1, 4});
  CHECK(best_processors(mixed.root, {0, 1, 4, 5}, {0, 1}) == Processors{0, 1});
  mixed.set(0, "nonsense");
  CHECK(best_processors(mixed.root, {0, 1}, {}) == Processors{1});
}

TEST_CASE("settings of the progress thread", "[progress]") {
  // Longer than the pause between two tokens.
  CHECK(settings_of("").value().spin_ns >= 50'000'000);
  CHECK(settings_of("ROCENANTE_PROGRESS_SPIN_US=7").value().spin_ns == 7000);
  CHECK(settings_of("").value().nap_ns == 50'000);
  CHECK_FALSE(settings_of("", {}, 4, 8).value().crowded);
  CHECK(settings_of("", {}, 5, 8).value().crowded);
  // Nothing known: where the process is.
  CHECK(settings_of("").value().processors.empty());
  CHECK(settings_of("ROCENANTE_PROGRESS_CPUS=off").value().processors.empty());

  const Processors allowed = fabric::allowed_processors();
  REQUIRE_FALSE(allowed.empty());
  const std::string last = std::to_string(allowed.back());
  CHECK(settings_of("ROCENANTE_PROGRESS_CPUS=" + last).value().processors == Processors{allowed.back()});

  fabric::Port far;
  far.processors = last;
  fabric::Port odd;
  odd.processors = "what is this";
  if (allowed.size() > 1) {
    CHECK(settings_of("", {far, odd}).value().processors == Processors{allowed.back()});
    CHECK(settings_of("ROCENANTE_PROGRESS_CPUS=off", {far}).value().processors.empty());
  }

  for (const std::string bad : {"near", "0-", "1 2"}) {
    const Result<ProgressSettings> refused = settings_of("ROCENANTE_PROGRESS_CPUS=" + bad);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.status().code() == Code::kInvalidArgument);
    CHECK(refused.status().text().find("ROCENANTE_PROGRESS_CPUS is '" + bad + "'") != std::string::npos);
  }
  const Result<ProgressSettings> refused = settings_of("ROCENANTE_PROGRESS_CPUS=1023");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().text().find("may not run on processor 1023") != std::string::npos);
}

class Where final : public ProgressWork {
 public:
  bool look() override {
    if (!is_set) ::pthread_getaffinity_np(::pthread_self(), sizeof processors, &processors);
    if (CPU_COUNT(&processors) == 1) is_set = true;
    ++looks;
    return false;
  }
  void on_exception(Status) noexcept override {}
  cpu_set_t processors{};
  std::atomic<bool> is_set{false};
  std::atomic<int> looks{0};
};

TEST_CASE("the thread runs where it is told", "[progress]") {
  const Processors allowed = fabric::allowed_processors();
  ProgressSettings settings;
  settings.crowded = true;
  settings.processors = {allowed.back()};
  Where where;
  const int device = 0;
  Result<ProgressPlace> place = Progress::add(&device, &where, settings);
  REQUIRE(place.ok());
  const net::Deadline deadline = net::Deadline::after_s(60);
  while (!where.is_set && !deadline.passed()) std::this_thread::yield();
  REQUIRE(where.is_set);
  place.value().leave();
  REQUIRE(CPU_ISSET(allowed.back(), &where.processors));
}

// Should the processor have gone meanwhile: slower, but no error.
TEST_CASE("a thread that cannot be moved runs where it is", "[progress]") {
  ProgressSettings settings;
  settings.crowded = true;
  settings.processors = {1023};
  Where where;
  const int device = 0;
  Result<ProgressPlace> place = Progress::add(&device, &where, settings);
  REQUIRE(place.ok());
  const net::Deadline deadline = net::Deadline::after_s(60);
  while (where.looks == 0 && !deadline.passed()) std::this_thread::yield();
  REQUIRE(where.looks > 0);
}

}  // namespace
}  // namespace rocenante
