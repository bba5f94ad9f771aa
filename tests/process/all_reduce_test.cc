// SPDX-License-Identifier: Apache-2.0
//
// All-reduce through the C API against the scalar oracle, bit by bit.
#include <rocenante/rocenante.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/world.h"
#include "tests/unit/reduce_oracle.h"

namespace {

using rocenante::reduce::DataType;
using rocenante::reduce::element_size;
using rocenante::reduce::Operator;
using rocenante::test::failure;
using rocenante::test::Rank;
using rocenante::test::run_threads;
namespace oracle = rocenante::reduce::oracle;
using Bytes = std::vector<std::uint8_t>;

// Random bits: includes NaN, infinities and denormals by itself for the small types; every 7th element is a
// special one.
Bytes contribution(DataType type, std::size_t count, int rank, std::uint64_t seed) {
  std::mt19937_64 random(seed * 1000003 + static_cast<std::uint64_t>(rank));
  Bytes bytes(count * element_size(type));
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  if (oracle::is_float(type)) {
    for (std::size_t i = 0; i < count; i += 7) {
      if ((random() & 1) != 0) oracle::set_bits(type, bytes.data(), i, oracle::canonical_nan(type));
    }
  }
  return bytes;
}

struct Case {
  DataType type = DataType::kFloat32;
  Operator op = Operator::kSum;
  std::size_t count = 0;
  bool in_place = false;
  std::size_t misalign = 0;
  std::uint64_t seed = 0;
};

Bytes expected(const Case& c, int ranks) {
  std::vector<Bytes> inputs;
  std::vector<const void*> pointers;
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back(contribution(c.type, c.count, rank, c.seed));
  for (const Bytes& input : inputs) pointers.push_back(input.data());
  return oracle::reduce(c.type, c.op, pointers, c.count);
}

// Runs one case on one rank; "" if every bit is right and nothing around the output changed.
std::string run_case(Rank& self, const Case& c) {
  const Bytes input = contribution(c.type, c.count, self.rank(), c.seed);
  constexpr std::uint8_t kGuard = 0xa5;
  Bytes send(input.size() + 64, kGuard), receive(input.size() + 64, kGuard);
  std::uint8_t* const from = send.data() + 16 + c.misalign;
  std::uint8_t* const to = c.in_place ? from : receive.data() + 16 + c.misalign;
  if (!input.empty()) std::memcpy(from, input.data(), input.size());
  const std::string error = failure(rcnAllReduce(from, to, c.count, static_cast<rcnDataType_t>(c.type),
                                                 static_cast<rcnRedOp_t>(c.op), self.comm(), nullptr),
                                    "rcnAllReduce");
  if (!error.empty()) return error;
  const Bytes want = expected(c, self.ranks());
  const std::string name = std::string(oracle::type_name(c.type)) + " " + oracle::operator_name(c.op) +
                           " count " + std::to_string(c.count) + " seed " + std::to_string(c.seed);
  if (!want.empty() && std::memcmp(to, want.data(), want.size()) != 0) return "wrong bits: " + name;
  const Bytes& written = c.in_place ? send : receive;
  for (std::size_t i = 0; i < written.size(); ++i) {
    const bool inside = i >= 16 + c.misalign && i < 16 + c.misalign + input.size();
    if (!inside && written[i] != kGuard) return "byte outside the output changed: " + name;
  }
  if (!c.in_place && !input.empty() && std::memcmp(from, input.data(), input.size()) != 0) {
    return "the input changed: " + name;
  }
  return "";
}

std::string run_cases(Rank& self, const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    if (std::string error = run_case(self, c); !error.empty()) return error;
  }
  return "";
}

std::vector<Case> every_type_and_operator(const std::vector<std::size_t>& counts) {
  std::vector<Case> cases;
  std::uint64_t seed = 1;
  for (int type = 0; type < rcnNumTypes; ++type) {
    for (int op = 0; op < rcnNumOps; ++op) {
      for (const std::size_t count : counts) {
        cases.push_back({static_cast<DataType>(type), static_cast<Operator>(op), count, (seed & 1) != 0,
                         seed % 9, seed});
        ++seed;
      }
    }
  }
  return cases;
}

// The statistics of a communicator that has performed all-reduces of so many floats, and nothing else.
std::string rows_after(Rank& self, const std::vector<std::size_t>& counts,
                       std::vector<rcnStatsEntry_t>* rows) {
  std::vector<float> data(*std::max_element(counts.begin(), counts.end()), 1.0f);
  for (const std::size_t count : counts) {
    std::string error =
        failure(rcnAllReduce(data.data(), data.data(), count, rcnFloat, rcnMax, self.comm(), nullptr),
                "rcnAllReduce");
    if (!error.empty()) return error;
  }
  rows->resize(8);
  rcnCommStats_t stats = RCN_COMM_STATS_INITIALIZER;
  stats.entries = rows->data();
  stats.capacity = 8;
  std::string error = failure(rcnCommGetStats(self.comm(), &stats), "rcnCommGetStats");
  rows->resize(std::min<std::size_t>(stats.count, 8));
  if (error.empty() && stats.count != rows->size()) error = "more rows than there is room for";
  return error;
}

}  // namespace

TEST_CASE("Every type and operator is bit-exact for 1 to 8 ranks as threads", "[threads]") {
  const std::string transport = GENERATE("auto", "tcp");
  const int ranks = GENERATE(1, 2, 3, 4, 5, 7, 8);
  if (transport == "tcp" && ranks != 2 && ranks != 3 && ranks != 8) return;  // the reduction is the same
  const std::vector<Case> cases = every_type_and_operator({0, 1, 13, 57, 700});
  INFO(transport);
  REQUIRE(run_threads(ranks, "ROCENANTE_TRANSPORT=" + transport,
                      [&](Rank& self) { return run_cases(self, cases); }) == "");
}

TEST_CASE("Calls larger than a slot run in rounds, whatever the slot size", "[threads]") {
  const int ranks = GENERATE(2, 3, 5);
  const std::string slot = GENERATE("4096", "5000", "8192");
  const std::string transport = GENERATE("auto", "tcp");
  const std::string chunk = GENERATE("128", "4097", "1M");
  if (transport == "tcp" && chunk != "1M") return;  // its rounds are slots, and the window cuts them
  std::vector<Case> cases;
  for (const std::size_t count : {1u, 28u, 29u, 1023u, 1024u, 1025u, 5001u}) {
    cases.push_back({DataType::kFloat32, Operator::kSum, count, count % 2 == 0, 3, count});
    cases.push_back({DataType::kBfloat16, Operator::kAvg, count, count % 2 == 1, 1, count + 7});
    cases.push_back({DataType::kInt8, Operator::kProd, count, false, 5, count + 9});
  }
  const std::string options = "ROCENANTE_SLOT_BYTES=" + slot + ";ROCENANTE_CHUNK_BYTES=" + chunk +
                              ";ROCENANTE_TCP_WINDOW=4096;ROCENANTE_TRANSPORT=" + transport;
  INFO(options);
  REQUIRE(run_threads(ranks, options, [&](Rank& self) { return run_cases(self, cases); }) == "");
}

// Pieces that the ranks do not divide, shorter than a slice for each, of whole slots and one byte more.
TEST_CASE("Two rounds give the bits of one, whatever the sizes", "[threads]") {
  const std::string transport = GENERATE("auto", "tcp");
  const std::string slot = GENERATE("4096", "5000", "64K");
  const int ranks = GENERATE(3, 4, 5, 8);
  // Eight ranks take long on few processors, and tcp cares for neither.
  if (ranks == 8 && slot != "4096") return;
  if (transport == "tcp" && (slot != "5000" || ranks > 4)) return;
  std::vector<Case> cases;
  for (const std::size_t count : {113u, 127u, 128u, 129u, 1023u, 1024u, 1025u, 4096u, 4097u, 9001u}) {
    cases.push_back({DataType::kUint8, Operator::kSum, count, count % 2 == 0, count % 5, count});
    cases.push_back({DataType::kFloat32, Operator::kSum, count, count % 2 == 1, 3, count + 5});
    cases.push_back({DataType::kBfloat16, Operator::kAvg, count, count % 4 == 0, 1, count + 7});
    cases.push_back({DataType::kFloat64, Operator::kProd, count, false, 0, count + 9});
  }
  const std::string options =
      "ROCENANTE_TWO_ROUND_BYTES=113;ROCENANTE_TCP_WINDOW=4096;ROCENANTE_SLOT_BYTES=" + slot +
      ";ROCENANTE_TRANSPORT=" + transport;
  INFO(options << " ranks " << ranks);
  REQUIRE(run_threads(ranks, options, [&](Rank& self) { return run_cases(self, cases); }) == "");
}

TEST_CASE("With more ranks than slices have bytes for, two rounds are right", "[threads]") {
  const int ranks = GENERATE(13, 16);
  std::vector<Case> cases;
  for (const std::size_t count : {113u, 127u, 257u, 3000u})
    cases.push_back({DataType::kUint8, Operator::kSum, count, count == 127, 1, count});
  REQUIRE(run_threads(ranks, "ROCENANTE_TWO_ROUND_BYTES=113;ROCENANTE_SLOT_BYTES=4096",
                      [&](Rank& self) { return run_cases(self, cases); }) == "");
}

TEST_CASE("Sizes around what tcp cuts at are bit-exact", "[threads]") {
  // Header and signal line; one read of the receiver; the window; the slot.
  std::vector<Case> cases;
  for (const std::size_t bytes : {112u, 113u, 16383u, 16384u, 16385u, 16416u, 65503u, 65504u, 65535u,
                                  65536u, 65537u, 262143u, 262144u, 262145u}) {
    cases.push_back({DataType::kUint8, Operator::kSum, bytes, bytes % 2 == 0, bytes % 5, bytes});
  }
  const int ranks = GENERATE(2, 3);
  const std::string options = "ROCENANTE_TRANSPORT=tcp;ROCENANTE_SLOT_BYTES=256K";
  REQUIRE(run_threads(ranks, options, [&](Rank& self) { return run_cases(self, cases); }) == "");
}

TEST_CASE("Every SIMD target gives the same bits", "[threads]") {
  const std::string target = GENERATE("auto", "avx512", "avx2", "sse4", "neon", "scalar");
  const std::vector<Case> cases = every_type_and_operator({37});
  const std::string result =
      run_threads(3, "ROCENANTE_SIMD=" + target, [&](Rank& self) { return run_cases(self, cases); });
  if (result.find("not built or not supported by this processor") != std::string::npos) {
    REQUIRE(target != "auto");
    REQUIRE(target != "scalar");
    WARN("skipped: this processor or build lacks " << target);
    return;
  }
  REQUIRE(result == "");
}

TEST_CASE("Random sequences of calls are bit-exact", "[threads]") {
  const std::string transport = GENERATE("auto", "tcp");
  const std::uint64_t seed = GENERATE(11u, 12u, 13u);
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const std::string two_rounds = GENERATE("2000", "1G");
  std::vector<Case> cases;
  for (int i = 0; i < 150; ++i) {
    const std::size_t largest = (random() & 3) == 0 ? 20000 : 200;
    cases.push_back({static_cast<DataType>(random() % rcnNumTypes),
                     static_cast<Operator>(random() % rcnNumOps),
                     static_cast<std::size_t>(random() % largest), (random() & 1) != 0,
                     static_cast<std::size_t>(random() % 17), random()});
  }
  const int ranks = static_cast<int>(2 + random() % 4);
  REQUIRE(run_threads(ranks,
                      "ROCENANTE_SLOT_BYTES=16K;ROCENANTE_CHUNK_BYTES=8K;ROCENANTE_TWO_ROUND_BYTES=" +
                          two_rounds + ";ROCENANTE_TRANSPORT=" + transport,
                      [&](Rank& self) { return run_cases(self, cases); }) == "");
}

TEST_CASE("A pre-multiplied sum rounds each product once and is exact", "[threads]") {
  const std::size_t count = GENERATE(1u, 5u, 3000u);
  const std::string rounds = GENERATE("1G", "113");
  REQUIRE(run_threads(
              3, "ROCENANTE_CHUNK_BYTES=4096;ROCENANTE_TWO_ROUND_BYTES=" + rounds,
              [&](Rank& self) -> std::string {
                for (int type = 0; type < rcnNumTypes; ++type) {
                  const auto data_type = static_cast<DataType>(type);
                  // A different scalar on each rank: allowed, and all must use their own.
                  std::vector<Bytes> inputs, scalars, scaled;
                  std::vector<const void*> pointers;
                  for (int rank = 0; rank < self.ranks(); ++rank) {
                    inputs.push_back(
                        contribution(data_type, count, rank, 77 + static_cast<std::uint64_t>(type)));
                    scalars.push_back(contribution(data_type, 1, rank, 99));
                    scaled.push_back(
                        oracle::scale(data_type, inputs.back().data(), count, scalars.back().data()));
                  }
                  for (const Bytes& values : scaled) pointers.push_back(values.data());
                  const Bytes want = oracle::reduce(data_type, Operator::kSum, pointers, count);
                  const auto me = static_cast<std::size_t>(self.rank());
                  rcnRedOp_t op;
                  std::string error = failure(
                      rcnRedOpCreatePreMulSum(&op, scalars[me].data(), static_cast<rcnDataType_t>(type),
                                              rcnScalarHostImmediate, self.comm()),
                      "create");
                  if (!error.empty()) return error;
                  Bytes out = inputs[me];
                  error = failure(rcnAllReduce(out.data(), out.data(), count,
                                               static_cast<rcnDataType_t>(type), op, self.comm(), nullptr),
                                  "rcnAllReduce");
                  if (!error.empty()) return error;
                  if (out != want) return std::string("wrong bits: ") + oracle::type_name(data_type);
                  error = failure(rcnRedOpDestroy(op, self.comm()), "destroy");
                  if (!error.empty()) return error;
                }
                return "";
              }) == "");
}

TEST_CASE("Statistics tell the calls that took two rounds", "[threads]") {
  REQUIRE(run_threads(3, "ROCENANTE_TWO_ROUND_BYTES=4000", [](Rank& self) -> std::string {
            std::vector<rcnStatsEntry_t> rows;
            if (std::string error = rows_after(self, {999u, 1000u}, &rows); !error.empty()) return error;
            if (rows.size() != 2) return "wrong number of rows";
            const std::string below = rcnPathName(rows[0].path), from = rcnPathName(rows[1].path);
            if (below != "one_shot" || from != "two_round" || rows[1].bytes != 4000)
              return below + ", " + from;
            return "";
          }) == "");
}

TEST_CASE("Statistics name the path of each call", "[threads]") {
  REQUIRE(run_threads(2, "ROCENANTE_CHUNK_BYTES=4096", [](Rank& self) -> std::string {
            std::vector<rcnStatsEntry_t> rows;
            if (std::string error = rows_after(self, {2u, 2u, 1000u, 4096u}, &rows); !error.empty())
              return error;
            if (rows.size() != 3) return "wrong number of rows";
            if (std::string(rcnPathName(rows[0].path)) != "one_shot_inline" || rows[0].calls != 2 ||
                rows[0].bytes != 16 || rows[0].size_class != 3) {
              return "wrong first row";
            }
            if (std::string(rcnPathName(rows[1].path)) != "one_shot") return "wrong second row";
            if (std::string(rcnPathName(rows[2].path)) != "one_shot_rounds") return "wrong third row";
            return "";
          }) == "");
}

TEST_CASE("Ranks that call different things are told so, both sides named", "[threads]") {
  const std::string transport = GENERATE("auto", "tcp");
  const std::string result =
      run_threads(2, "ROCENANTE_TRANSPORT=" + transport, [](Rank& self) -> std::string {
        std::vector<float> data(100, 1.0f);
        const std::size_t count = self.rank() == 0 ? 100 : 99;
        const rcnResult_t code =
            rcnAllReduce(data.data(), data.data(), count, rcnFloat, rcnSum, self.comm(), nullptr);
        const std::string text = rcnGetLastError(self.comm());
        // Whoever sees the other's signal first reports; either way both counts are named.
        if (code != rcnInvalidUsage) return "code " + std::to_string(code) + ": " + text;
        if (text.find("all_reduce of 99 float32 sum") == std::string::npos ||
            text.find("all_reduce of 100 float32 sum") == std::string::npos) {
          return "text: " + text;
        }
        // Poisoned: later calls answer at once.
        if (rcnAllReduce(data.data(), data.data(), 1, rcnFloat, rcnSum, self.comm(), nullptr) ==
            rcnSuccess) {
          return "a poisoned communicator took a call";
        }
        return "";
      });
  REQUIRE(result == "");
}
