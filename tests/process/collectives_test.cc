// SPDX-License-Identifier: Apache-2.0
//
// The collectives beside all-reduce through the C API, bit by bit: copies against the senders' bytes, and
// reductions against the scalar oracle.
#include <rocenante/rocenante.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
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

constexpr std::array<rcnColl_t, 6> kAll = {rcnCollAllReduce, rcnCollAllGather, rcnCollReduceScatter,
                                           rcnCollBroadcast, rcnCollReduce,    rcnCollAlltoAll};
constexpr std::array<const char*, 6> kNames = {"all_reduce", "all_gather", "reduce_scatter",
                                               "broadcast",  "reduce",     "alltoall"};
constexpr std::uint8_t kGuard = 0xa5;
constexpr std::size_t kMargin = 32;

struct Case {
  rcnColl_t collective = rcnCollAllReduce;
  DataType type = DataType::kFloat32;
  Operator op = Operator::kSum;
  std::size_t count = 0;
  int root = 0;
  bool in_place = false;
  std::size_t misalign = 0;
  std::uint64_t seed = 0;
};

std::size_t block_bytes(const Case& c) {
  return c.count * element_size(c.type);
}
std::size_t send_blocks(const Case& c, int ranks) {
  const bool many = c.collective == rcnCollReduceScatter || c.collective == rcnCollAlltoAll;
  return many ? static_cast<std::size_t>(ranks) : 1;
}
std::size_t receive_blocks(const Case& c, int ranks) {
  const bool many = c.collective == rcnCollAllGather || c.collective == rcnCollAlltoAll;
  return many ? static_cast<std::size_t>(ranks) : 1;
}

// Random bits, which for the small types are every kind of NaN and infinity too.
Bytes contribution(const Case& c, int rank, int ranks) {
  std::mt19937_64 random(c.seed * 1000003 + static_cast<std::uint64_t>(rank));
  Bytes bytes(block_bytes(c) * send_blocks(c, ranks));
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

Bytes block(const Bytes& bytes, std::size_t size, int index) {
  const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(size * static_cast<std::size_t>(index));
  return Bytes(from, from + static_cast<std::ptrdiff_t>(size));
}

// What `rank` must receive.
Bytes expected(const Case& c, int rank, int ranks) {
  const std::size_t size = block_bytes(c);
  const bool many = send_blocks(c, ranks) != 1;
  std::vector<Bytes> inputs;
  for (int r = 0; r < ranks; ++r) {
    const Bytes all = contribution(c, r, ranks);
    inputs.push_back(many ? block(all, size, rank) : all);
  }
  if (c.collective == rcnCollBroadcast) return inputs[static_cast<std::size_t>(c.root)];
  if (c.collective == rcnCollAllGather || c.collective == rcnCollAlltoAll) {
    Bytes joined;
    for (const Bytes& input : inputs) joined.insert(joined.end(), input.begin(), input.end());
    return joined;
  }
  std::vector<const void*> pointers;
  for (const Bytes& input : inputs) pointers.push_back(input.data());
  return oracle::reduce(c.type, c.op, pointers, c.count);
}

rcnResult_t call(const Case& c, const void* from, void* to, rcnRedOp_t op, rcnComm_t comm) {
  const auto type = static_cast<rcnDataType_t>(c.type);
  switch (c.collective) {
    case rcnCollAllGather:
      return rcnAllGather(from, to, c.count, type, comm, nullptr);
    case rcnCollReduceScatter:
      return rcnReduceScatter(from, to, c.count, type, op, comm, nullptr);
    case rcnCollBroadcast:
      return rcnBroadcast(from, to, c.count, type, c.root, comm, nullptr);
    case rcnCollReduce:
      return rcnReduce(from, to, c.count, type, op, c.root, comm, nullptr);
    case rcnCollAlltoAll:
      return rcnAlltoAll(from, to, c.count, type, comm, nullptr);
    default:
      return rcnAllReduce(from, to, c.count, type, op, comm, nullptr);
  }
}

// The buffers of one case on one rank, with guards around them.
class Buffers {
 public:
  Buffers(const Case& c, int rank, int ranks)
      : case_(c), rank_(rank), ranks_(ranks), input_(contribution(c, rank, ranks)) {
    const std::size_t own = block_bytes(c) * static_cast<std::size_t>(rank);
    const std::size_t receive = block_bytes(c) * receive_blocks(c, ranks);
    const std::size_t margin = kMargin + c.misalign;
    in_place_ = c.in_place && c.collective != rcnCollAlltoAll;
    send_.assign(input_.size() + 2 * margin, kGuard);
    receive_.assign(receive + 2 * margin, kGuard);
    to_ = receive_.data() + margin;
    from_ = send_.data() + margin;
    if (in_place_ && c.collective == rcnCollReduceScatter) {
      to_ = from_ + own;
    } else if (in_place_) {
      from_ = to_ + (c.collective == rcnCollAllGather ? own : 0);
    }
    if (!input_.empty()) std::memcpy(from_, input_.data(), input_.size());
    // Nobody looks at these.
    if (c.collective == rcnCollBroadcast && rank != c.root && c.misalign % 2 == 0) from_ = nullptr;
    if (c.collective == rcnCollReduce && rank != c.root && c.misalign % 2 == 0) to_ = nullptr;
  }

  const void* from() const { return from_; }
  void* to() const { return to_; }

  // "" if every byte is as it must be.
  std::string check() const {
    const std::string name = std::string(kNames[case_.collective]) + " " + oracle::type_name(case_.type) +
                             " " + oracle::operator_name(case_.op) + " count " +
                             std::to_string(case_.count) + " root " + std::to_string(case_.root) +
                             (in_place_ ? " in place" : "") + " seed " + std::to_string(case_.seed);
    const bool receives = case_.collective != rcnCollReduce || rank_ == case_.root;
    Bytes want_send = send_, want_receive = receive_;
    const std::size_t margin = kMargin + case_.misalign;
    std::fill(want_send.begin(), want_send.end(), kGuard);
    std::copy(input_.begin(), input_.end(), want_send.begin() + static_cast<std::ptrdiff_t>(margin));
    if (in_place_ && case_.collective != rcnCollReduceScatter) want_send = send_;
    std::fill(want_receive.begin(), want_receive.end(), kGuard);
    if (receives) {
      const Bytes want = expected(case_, rank_, ranks_);
      const bool in_send = in_place_ && case_.collective == rcnCollReduceScatter;
      Bytes& written = in_send ? want_send : want_receive;
      const std::size_t at = margin + (in_send ? want.size() * static_cast<std::size_t>(rank_) : 0);
      std::copy(want.begin(), want.end(), written.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (in_place_) {
      std::copy(input_.begin(), input_.end(), want_receive.begin() + static_cast<std::ptrdiff_t>(margin));
    }
    if (receive_ != want_receive) return "wrong bytes in or around the receive buffer: " + name;
    if (send_ != want_send) return "wrong bytes in or around the send buffer: " + name;
    return "";
  }

 private:
  const Case case_;
  const int rank_;
  const int ranks_;
  const Bytes input_;
  bool in_place_ = false;
  Bytes send_, receive_;
  std::uint8_t* from_ = nullptr;
  std::uint8_t* to_ = nullptr;
};

std::string run_cases(Rank& self, const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const Buffers buffers(c, self.rank(), self.ranks());
    const std::string error =
        failure(call(c, buffers.from(), buffers.to(), static_cast<rcnRedOp_t>(c.op), self.comm()),
                kNames[c.collective]);
    if (!error.empty()) return error;
    if (std::string wrong = buffers.check(); !wrong.empty()) return wrong;
  }
  return "";
}

std::vector<Case> every_type_and_operator(int ranks) {
  std::vector<Case> cases;
  std::uint64_t seed = 1;
  for (const rcnColl_t collective : kAll) {
    if (collective == rcnCollAllReduce) continue;
    const bool reduces = collective == rcnCollReduceScatter || collective == rcnCollReduce;
    for (int type = 0; type < rcnNumTypes; ++type) {
      for (int op = 0; op < (reduces ? rcnNumOps : 1); ++op) {
        for (const std::size_t count : {0u, 1u, 13u, 301u}) {
          cases.push_back({collective, static_cast<DataType>(type), static_cast<Operator>(op), count,
                           static_cast<int>(seed) % ranks, seed % 3 == 0, seed % 9, seed});
          ++seed;
        }
      }
    }
  }
  return cases;
}

std::vector<Case> random_cases(std::uint64_t seed, int ranks, int calls) {
  std::mt19937_64 random(seed);
  std::vector<Case> cases;
  for (int i = 0; i < calls; ++i) {
    const std::size_t largest = (random() & 3) == 0 ? 9000 : 100;
    cases.push_back({kAll[random() % kAll.size()], static_cast<DataType>(random() % rcnNumTypes),
                     static_cast<Operator>(random() % rcnNumOps), random() % largest,
                     static_cast<int>(random() % static_cast<std::uint64_t>(ranks)), (random() & 1) != 0,
                     random() % 17, random()});
  }
  return cases;
}

// Both texts, whichever rank is first to see the other's signal.
std::string expect_mismatch(rcnResult_t code, const char* first, const char* second) {
  const std::string text = rcnGetLastError(nullptr);
  if (code != rcnInvalidUsage) return "code " + std::to_string(code) + ": " + text;
  const bool names_both = text.find(first) != std::string::npos && text.find(second) != std::string::npos;
  return names_both ? "" : "text: " + text;
}

}  // namespace

TEST_CASE("Every collective, type and operator is exact for 1 to 8 ranks as threads", "[threads]") {
  const std::string transport = GENERATE("auto", "tcp");
  const int ranks = GENERATE(1, 2, 3, 5, 8);
  if (transport == "tcp" && ranks != 2 && ranks != 5) return;  // the arithmetic is the same
  const std::vector<Case> cases = every_type_and_operator(ranks);
  INFO(transport << ", " << ranks << " ranks");
  REQUIRE(run_threads(ranks, "ROCENANTE_TRANSPORT=" + transport,
                      [&](Rank& self) { return run_cases(self, cases); }) == "");
}

TEST_CASE("Collectives larger than a slot run in rounds, from every root", "[threads]") {
  const int ranks = GENERATE(2, 3, 9);
  const std::string transport = GENERATE("auto", "tcp");
  const std::string chunk = GENERATE("128", "4097");  // 128 holds no chunk for each of 9 ranks
  if (transport == "tcp" && chunk != "128") return;
  std::vector<Case> cases;
  for (const rcnColl_t collective : kAll) {
    for (int root = 0; root<ranks; root += ranks> 3 ? 4 : 1) {
      for (const std::size_t count : {1u, 28u, 1025u}) {
        const auto seed = static_cast<std::uint64_t>(root) * 100 + count;
        cases.push_back(
            {collective, DataType::kBfloat16, Operator::kAvg, count, root, seed % 2 == 0, 1, seed});
        cases.push_back(
            {collective, DataType::kFloat64, Operator::kSum, count / 3, root, seed % 2 == 1, 2, seed});
      }
    }
  }
  const std::string options = "ROCENANTE_SLOT_BYTES=4096;ROCENANTE_CHUNK_BYTES=" + chunk +
                              ";ROCENANTE_TCP_WINDOW=4096;ROCENANTE_TRANSPORT=" + transport;
  INFO(options);
  REQUIRE(run_threads(ranks, options, [&](Rank& self) { return run_cases(self, cases); }) == "");
}

TEST_CASE("Random sequences of mixed collectives are exact", "[threads]") {
  const std::string transport = GENERATE("auto", "tcp");
  const int ranks = GENERATE(2, 4, 7);
  const auto seed = static_cast<std::uint64_t>(ranks) * 7 + (transport == "tcp" ? 1 : 0);
  const std::vector<Case> cases = random_cases(seed, ranks, 150);
  INFO(transport << ", " << ranks << " ranks, seed " << seed);
  REQUIRE(run_threads(ranks,
                      "ROCENANTE_SLOT_BYTES=16K;ROCENANTE_CHUNK_BYTES=8K;ROCENANTE_TRANSPORT=" + transport,
                      [&](Rank& self) { return run_cases(self, cases); }) == "");
}

TEST_CASE("Mixed collectives between processes are exact", "[processes]") {
  const std::vector<Case> cases = random_cases(5, 3, 100);
  auto processes = rocenante::test::start_processes(3, "ROCENANTE_SLOT_BYTES=16K",
                                                    [&](Rank& self) { return run_cases(self, cases); });
  for (auto& process : processes) {
    const rocenante::test::Ended ended = rocenante::test::wait_for(process, std::chrono::seconds(100));
    CHECK(ended.text == "");
    CHECK(ended.code == 0);
  }
}

TEST_CASE("A group performs different collectives in their order", "[threads]") {
  const std::vector<Case> cases = random_cases(77, 3, 40);
  REQUIRE(run_threads(3, "ROCENANTE_CHUNK_BYTES=4096", [&](Rank& self) -> std::string {
            std::vector<Buffers> buffers;
            buffers.reserve(cases.size());
            std::string error = failure(rcnGroupStart(), "start");
            for (const Case& c : cases) {
              if (!error.empty()) return error;
              buffers.emplace_back(c, self.rank(), self.ranks());
              error = failure(call(c, buffers.back().from(), buffers.back().to(),
                                   static_cast<rcnRedOp_t>(c.op), self.comm()),
                              kNames[c.collective]);
            }
            error = failure(rcnGroupEnd(), "end");
            for (std::size_t i = 0; i < buffers.size() && error.empty(); ++i) error = buffers[i].check();
            return error;
          }) == "");
}

TEST_CASE("A pre-multiplied sum is scaled before it is reduced, in blocks too", "[threads]") {
  const rcnColl_t collective = GENERATE(rcnCollReduceScatter, rcnCollReduce);
  const std::size_t count = GENERATE(1u, 5u, 3000u);
  const std::string transport = GENERATE("auto", "tcp");
  REQUIRE(run_threads(
              3, "ROCENANTE_CHUNK_BYTES=4096;ROCENANTE_SLOT_BYTES=8K;ROCENANTE_TRANSPORT=" + transport,
              [&](Rank& self) -> std::string {
                const auto me = static_cast<std::size_t>(self.rank());
                const Case c{collective, DataType::kFloat32, Operator::kSum, count, 1, false, 0, 9};
                constexpr float kFactors[] = {0.3f, -1.7f, 2.1f};
                std::vector<Bytes> scaled;
                std::vector<const void*> pointers;
                for (int rank = 0; rank < 3; ++rank) {
                  Bytes input = contribution(c, rank, 3);
                  if (collective == rcnCollReduceScatter) input = block(input, block_bytes(c), self.rank());
                  scaled.push_back(oracle::scale(c.type, input.data(), count, &kFactors[rank]));
                }
                for (const Bytes& values : scaled) pointers.push_back(values.data());
                const Bytes want = oracle::reduce(c.type, c.op, pointers, count);
                float factor = kFactors[me];
                rcnRedOp_t op;
                std::string error = failure(
                    rcnRedOpCreatePreMulSum(&op, &factor, rcnFloat32, rcnScalarHostImmediate, self.comm()),
                    "create");
                if (!error.empty()) return error;
                const Bytes input = contribution(c, self.rank(), 3);
                Bytes output(want.size());
                error = failure(call(c, input.data(), output.data(), op, self.comm()), "call");
                if (!error.empty()) return error;
                const bool receives = collective != rcnCollReduce || self.rank() == c.root;
                return !receives || output == want ? "" : "wrong bits";
              }) == "");
}

TEST_CASE("Ranks that name different roots, or collectives, are told so", "[threads]") {
  const std::string transport = GENERATE("auto", "tcp");
  const std::string options = "ROCENANTE_TRANSPORT=" + transport;
  REQUIRE(run_threads(2, options, [](Rank& self) {
            std::vector<float> data(100, 1.0f);
            return expect_mismatch(
                rcnBroadcast(data.data(), data.data(), 100, rcnFloat, self.rank(), self.comm(), nullptr),
                "broadcast of 100 float32 from root 0", "broadcast of 100 float32 from root 1");
          }) == "");
  REQUIRE(run_threads(2, options, [](Rank& self) {
            std::vector<float> data(100, 1.0f), out(200);
            const rcnResult_t code =
                self.rank() == 0
                    ? rcnReduce(data.data(), out.data(), 100, rcnFloat, rcnMax, 1, self.comm(), nullptr)
                    : rcnAllGather(data.data(), out.data(), 100, rcnFloat, self.comm(), nullptr);
            return expect_mismatch(code, "reduce of 100 float32 max to root 1",
                                   "all_gather of 100 float32");
          }) == "");
}

TEST_CASE("Statistics count each collective by the larger of its buffers", "[threads]") {
  REQUIRE(run_threads(2, "", [](Rank& self) -> std::string {
            for (const rcnColl_t collective : kAll) {
              const std::string error =
                  run_cases(self, {{collective, DataType::kFloat32, Operator::kSum, 50, 0, false, 0, 1}});
              if (!error.empty()) return error;
            }
            rcnStatsEntry_t rows[8];
            rcnCommStats_t stats = RCN_COMM_STATS_INITIALIZER;
            stats.entries = rows;
            stats.capacity = 8;
            if (rcnCommGetStats(self.comm(), &stats) != rcnSuccess || stats.count != 6) return "rows";
            for (std::uint32_t i = 0; i < 6; ++i) {
              const bool one_block = i == rcnCollAllReduce || i == rcnCollBroadcast || i == rcnCollReduce;
              if (rows[i].collective != i || rows[i].calls != 1 || rows[i].bytes != (one_block ? 200 : 400))
                return std::string("row of ") + kNames[i];
            }
            return "";
          }) == "");
}
