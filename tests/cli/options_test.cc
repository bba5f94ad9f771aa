// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/options.h"

#include <string_view>

#include "bench/cli/text.h"
#include "tests/support/catch.h"

using namespace rocenante::bench;

namespace {

PerfArguments arguments() {
  PerfArguments out;
  out.collective = std::string("all_reduce");
  return out;
}

const char* no_variable(const char* /*name*/) {
  return nullptr;
}

PerfOptions check_perf_arguments(const PerfArguments& arguments) {
  return rocenante::bench::check_perf_arguments(arguments, no_variable);
}

// As process 1 of 3 that a tool started.
PerfOptions check_in_job(const PerfArguments& arguments, const char* local_size = "3") {
  return rocenante::bench::check_perf_arguments(arguments, [&](const char* name) -> const char* {
    const std::string_view wanted = name;
    if (wanted == "OMPI_COMM_WORLD_RANK") return "1";
    if (wanted == "OMPI_COMM_WORLD_SIZE") return "3";
    return wanted == "OMPI_COMM_WORLD_LOCAL_SIZE" ? local_size : nullptr;
  });
}

std::string refusal_in_job(const PerfArguments& arguments, const char* local_size = "3") {
  try {
    check_in_job(arguments, local_size);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::string refusal_on(const char* device) {
  try {
    rocenante::bench::check_perf_arguments(arguments(), [&](const char* name) -> const char* {
      return std::string_view(name) == "ROCENANTE_DEVICE" ? device : nullptr;
    });
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::string refusal(const PerfArguments& arguments) {
  try {
    check_perf_arguments(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::vector<std::uint64_t> sweep(const PerfOptions& options) {
  std::vector<std::uint64_t> sizes;
  for (std::optional<std::uint64_t> size = options.min_bytes; size; size = next_size(options, *size)) {
    sizes.push_back(*size);
  }
  return sizes;
}

bool contains(const std::string& whole, const std::string& part) {
  return whole.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("sizes have binary suffixes of either case") {
  CHECK(parse_size("-b", "0") == 0);
  CHECK(parse_size("-b", "8") == 8);
  CHECK(parse_size("-b", "1K") == 1024);
  CHECK(parse_size("-b", "3k") == 3072);
  CHECK(parse_size("-b", "64M") == 64u << 20);
  CHECK(parse_size("-b", "2g") == std::uint64_t{2} << 30);
  CHECK(parse_size("-b", "1024G") == kMaxSize);
}

TEST_CASE("what is not a size is refused by argument and value") {
  for (const char* const bad : {"", "K", "12X", "1KB", "1.5M", "-1", "+1", " 1", "1 ", "0x10", "1025G",
                                "99999999999999999999", "18014398509481984K"}) {
    INFO("size '" << bad << "'");
    std::string message;
    try {
      parse_size("--minbytes", bad);
    } catch (const UsageError& error) {
      message = error.what();
    }
    CHECK(contains(message, text("--minbytes '%s'", bad)));
    CHECK(contains(message, "K, M or G"));
  }
}

TEST_CASE("sizes are named by their largest binary unit") {
  CHECK(size_name(0) == "0 B");
  CHECK(size_name(1000) == "1000 B");
  CHECK(size_name(1024) == "1 KiB");
  CHECK(size_name(1536) == "1536 B");
  CHECK(size_name(64 << 20) == "64 MiB");
}

TEST_CASE("defaults are those of the help") {
  const PerfOptions options = check_perf_arguments(arguments());
  CHECK(options.min_bytes == 8);
  CHECK(options.max_bytes == 64u << 20);
  CHECK(sweep(options).size() == 24);
  CHECK(options.iters == 20);
  CHECK(options.warmup_iters == 5);
  CHECK(options.checks == 1);
  CHECK(options.ranks == 2);
  REQUIRE(options.types.size() == 1);
  CHECK(options.types[0]->value == rcnFloat32);
  REQUIRE(options.ops.size() == 1);
  CHECK(options.ops[0]->kind == OpKind::kSum);
}

TEST_CASE("sweeps multiply or add, and end at the largest size") {
  PerfArguments given = arguments();
  given.min_bytes = std::string("0");
  given.max_bytes = std::string("9");
  CHECK(sweep(check_perf_arguments(given)) == std::vector<std::uint64_t>{0, 1, 2, 4, 8});
  given.step_bytes = std::string("3");
  CHECK(sweep(check_perf_arguments(given)) == std::vector<std::uint64_t>{0, 3, 6, 9});
  given.min_bytes = given.max_bytes;
  CHECK(sweep(check_perf_arguments(given)) == std::vector<std::uint64_t>{9});
}

TEST_CASE("lists of types and operators keep their order and drop repetitions") {
  PerfArguments given = arguments();
  given.type = std::string("bf16,float,float32,bfloat16");
  given.op = std::string("max,all");
  const PerfOptions options = check_perf_arguments(given);
  REQUIRE(options.types.size() == 2);
  CHECK(options.types[0]->value == rcnBfloat16);
  CHECK(options.types[1]->value == rcnFloat32);
  CHECK(options.ops.size() == 6);
  CHECK(options.ops[0]->kind == OpKind::kMax);
  given.type = std::string("all");
  CHECK(check_perf_arguments(given).types.size() == rcnNumTypes);
}

TEST_CASE("aliases name the same types") {
  const struct {
    const char* alias;
    rcnDataType_t type;
  } kExpected[] = {{"float16", rcnFloat16},   {"f16", rcnFloat16},         {"half", rcnFloat16},
                   {"float32", rcnFloat32},   {"f32", rcnFloat32},         {"float64", rcnFloat64},
                   {"f64", rcnFloat64},       {"bf16", rcnBfloat16},       {"fp8_e4m3", rcnFloat8e4m3},
                   {"f8e4m3", rcnFloat8e4m3}, {"fp8_e5m2", rcnFloat8e5m2}, {"f8e5m2", rcnFloat8e5m2}};
  for (const auto& expected : kExpected) {
    INFO(expected.alias);
    REQUIRE(find_type(expected.alias) != nullptr);
    CHECK(find_type(expected.alias)->value == expected.type);
  }
  CHECK(find_type("Float") == nullptr);
  CHECK(find_type("") == nullptr);
}

TEST_CASE("bad arguments are refused by argument, value and what is allowed") {
  const struct {
    std::string PerfArguments::*field;
    const char* value;
    const char* argument;
    const char* allowed;
  } kCases[] = {
      {&PerfArguments::collective, "all_scatter", "COLLECTIVE 'all_scatter'", "alltoall"},
      {&PerfArguments::root, "1", "--root '1'", "no root"},
      {&PerfArguments::root, "2", "--root '2'", "0 to 1"},
      {&PerfArguments::min_bytes, "128M", "--minbytes '128M'", "--maxbytes '64M'"},
      {&PerfArguments::step_factor, "1", "--stepfactor '1'", "2 to"},
      {&PerfArguments::step_bytes, "x", "--stepbytes 'x'", "bytes"},
      {&PerfArguments::iters, "0", "--iters '0'", "1 to"},
      {&PerfArguments::warmup_iters, "-1", "--warmup_iters '-1'", "0 to"},
      {&PerfArguments::check, "yes", "--check 'yes'", "0 to"},
      {&PerfArguments::type, "float,quad", "--datatype 'quad'", "bfloat16"},
      {&PerfArguments::op, "xor", "--op 'xor'", "mulsum"},
      {&PerfArguments::ranks, "0", "--ranks '0'", "1 to 1024"},
      {&PerfArguments::ranks, "1025", "--ranks '1025'", "1 to 1024"},
      {&PerfArguments::ranks, "two", "--ranks 'two'", "1 to 1024"},
      {&PerfArguments::grace, "x", "--grace 'x'", "0 to"},
      {&PerfArguments::transport, "shm;A=B", "--transport 'shm;A=B'", "one word"},
      {&PerfArguments::json, "/nonexistent/file", "--json '/nonexistent/file'", "written"},
      {&PerfArguments::plot, "/", "--plot '/'", "written"},
      {&PerfArguments::launcher, "mpi", "--launcher 'mpi'", "auto or none"},
      {&PerfArguments::rank, "0", "--world", "--rendezvous"},
      {&PerfArguments::world, "2", "--rank", "--rendezvous"},
      {&PerfArguments::rendezvous, "127.0.0.1:1", "--world", "--rank"},
  };
  for (const auto& bad : kCases) {
    PerfArguments given = arguments();
    given.*bad.field = std::string(bad.value);
    const std::string message = refusal(given);
    INFO("message: " << message);
    CHECK(contains(message, bad.argument));
    CHECK(contains(message, bad.allowed));
  }
}

TEST_CASE("buffers in host memory are not measured on a GPU") {
  CHECK(refusal_on("cuda") ==
        "ROCENANTE_DEVICE 'cuda': must be auto or host: the buffers measured here are in host memory");
  CHECK(refusal_on("auto").empty());
  CHECK(refusal_on("host").empty());
}

TEST_CASE("a rank of a world has a number, a size and a meeting point") {
  PerfArguments given = arguments();
  given.rank = std::string("2");
  given.world = std::string("3");
  given.rendezvous = std::string("[::1]:7000");
  const PerfOptions options = check_perf_arguments(given);
  CHECK(options.rendezvous == "[::1]:7000");
  CHECK(options.first_rank == 2);
  CHECK(options.ranks_here == 1);
  CHECK(options.ranks == 3);
  given.rank = std::string("3");
  CHECK(contains(refusal(given), "--rank '3'"));
  given.rank = std::string("2");
  given.rendezvous = std::string("host");
  CHECK(contains(refusal(given), "--rendezvous 'host'"));
  given.rendezvous = std::string("host:1");
  given.ranks = std::string("2");
  CHECK(contains(refusal(given), "--ranks '2'"));
}

TEST_CASE("in a job every process starts its share of the ranks") {
  PerfArguments given = arguments();
  PerfOptions options = check_in_job(given);
  CHECK(options.ranks == 3);
  CHECK(options.first_rank == 1);
  CHECK(options.ranks_here == 1);
  REQUIRE(options.job);
  CHECK(options.job->processes == 3);
  given.ranks = std::string("4");
  options = check_in_job(given);
  CHECK(options.ranks == 12);
  CHECK(options.first_rank == 4);
  CHECK(options.ranks_here == 4);
  given.ranks = std::string("342");
  CHECK(contains(refusal_in_job(given), "--ranks '342': must be a whole number from 1 to 341"));
}

TEST_CASE("a job on several hosts needs an address") {
  PerfArguments given = arguments();
  const std::string message = refusal_in_job(given, "2");
  INFO(message);
  CHECK(contains(message, "OMPI_COMM_WORLD_LOCAL_SIZE '2'"));
  CHECK(contains(message, "--rendezvous HOST:PORT"));
  CHECK(contains(message, "ROCENANTE_SECRET"));
  given.rendezvous = std::string("node0:7000");
  CHECK(check_in_job(given, "2").rendezvous == "node0:7000");
  given.rendezvous = std::string("node0");
  CHECK(contains(refusal_in_job(given, "2"), "--rendezvous 'node0'"));
}

TEST_CASE("what is given by hand wins over a job") {
  PerfArguments given = arguments();
  given.launcher = std::string("none");
  CHECK_FALSE(check_in_job(given).job);
  CHECK(check_in_job(given).ranks == 2);
  given.launcher = std::string("auto");
  given.rank = std::string("0");
  given.world = std::string("2");
  given.rendezvous = std::string("[::1]:7000");
  CHECK_FALSE(check_in_job(given).job);
  CHECK(check_in_job(given).ranks == 2);
  // A rank that this program started is told who it is.
  given = arguments();
  given.launched = std::string("5:9:12");
  CHECK_FALSE(check_in_job(given).job);
  CHECK(check_in_job(given).ranks == 12);
  CHECK(check_in_job(given).first_rank == 5);
}
