// SPDX-License-Identifier: Apache-2.0
//
// All-reduce on a device, bit by bit: against the scalar oracle, and against the host's kernels where that
// would take too long.
#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "reduce_kernels/reduce.h"
#include "tests/gpu/ranks.h"
#include "tests/support/catch.h"
#include "tests/unit/reduce_oracle.h"

namespace {

using rocenante::reduce::DataType;
using rocenante::reduce::element_size;
using rocenante::reduce::Operator;
using rocenante::test::gpu;
using rocenante::test::run_on_gpu;
using rocenante::test::Seat;
using rocenante::test::succeed;
namespace oracle = rocenante::reduce::oracle;
using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kGuard = 64;
constexpr std::uint8_t kUntouched = 0xa5;

struct Case {
  DataType type = DataType::kFloat32;
  Operator op = Operator::kSum;
  std::size_t count = 0;
  bool in_place = false;
  std::size_t misalign = 0;
  std::uint64_t seed = 0;
};

Bytes contribution(const Case& c, int rank) {
  std::mt19937_64 random(c.seed * 1000003 + static_cast<std::uint64_t>(rank));
  Bytes bytes(c.count * element_size(c.type));
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

Bytes expected(const Case& c, int ranks, bool by_oracle) {
  std::vector<Bytes> inputs;
  std::vector<const void*> pointers;
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back(contribution(c, rank));
  for (const Bytes& input : inputs) pointers.push_back(input.data());
  if (by_oracle) return oracle::reduce(c.type, c.op, pointers, c.count);
  Bytes output(inputs[0].size());
  const rocenante::reduce::ScopedFpEnvironment environment;
  const rocenante::reduce::Kernels& host = *rocenante::reduce::find_kernels("auto");
  host.reduce[static_cast<std::size_t>(c.type)][static_cast<std::size_t>(c.op)](
      output.data(), pointers.data(), static_cast<std::uint32_t>(ranks), c.count);
  return output;
}

std::string name_of(const Case& c) {
  return std::string(oracle::type_name(c.type)) + " " + oracle::operator_name(c.op) + " count " +
         std::to_string(c.count) + " misaligned by " + std::to_string(c.misalign) + " seed " +
         std::to_string(c.seed);
}

// Buffers for the largest case, made before the first call.
struct Place {
  Place(Seat& seat, std::size_t bytes)
      : stream(seat.stream()),
        send(seat.buffer(bytes + 2 * kGuard)),
        receive(seat.buffer(bytes + 2 * kGuard)),
        host(seat.staging(bytes + 2 * kGuard)) {}
  void* stream;
  std::uint8_t* send;
  std::uint8_t* receive;
  std::uint8_t* host;
};

std::string run_case(Seat& seat, const Place& place, const Case& c, const Bytes& want) {
  const Bytes input = contribution(c, seat.rank.rank());
  const std::size_t at = kGuard / 2 + c.misalign;
  const std::size_t bytes = input.size() + kGuard;
  std::uint8_t* const target = c.in_place ? place.send : place.receive;
  std::memset(place.host, kUntouched, bytes);
  gpu().copy(target, place.host, bytes, place.stream);
  gpu().synchronise(place.stream);
  if (!input.empty()) std::memcpy(place.host + at, input.data(), input.size());
  gpu().copy(place.send, place.host, bytes, place.stream);
  seat.all_reduce(place.send + at, target + at, c.count, static_cast<rcnDataType_t>(c.type),
                  static_cast<rcnRedOp_t>(c.op), seat.rank.comm(), place.stream);
  gpu().copy(place.host, target, bytes, place.stream);
  gpu().synchronise(place.stream);
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (place.host[at + i] == want[i]) continue;
    return "byte " + std::to_string(i) + " is " + std::to_string(place.host[at + i]) + ", expected " +
           std::to_string(want[i]) + ": " + name_of(c);
  }
  for (std::size_t i = 0; i < bytes; ++i) {
    const bool inside = i >= at && i < at + input.size();
    if (!inside && place.host[i] != kUntouched) return "a byte outside the output changed: " + name_of(c);
  }
  return "";
}

std::string run_cases(Seat& seat, const std::vector<Case>& cases, const std::vector<Bytes>& want) {
  std::size_t most = 0;
  for (const Case& c : cases) most = std::max(most, c.count * element_size(c.type));
  const Place place(seat, most);
  seat.meet();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (std::string error = run_case(seat, place, cases[i], want[i]); !error.empty()) return error;
  }
  return "";
}

std::vector<Bytes> all_expected(const std::vector<Case>& cases, int ranks, bool by_oracle) {
  std::vector<Bytes> want;
  want.reserve(cases.size());
  for (const Case& c : cases) want.push_back(expected(c, ranks, by_oracle));
  return want;
}

std::vector<Case> every_type_and_operator() {
  std::vector<Case> cases;
  std::uint64_t seed = 1;
  for (int type = 0; type < rcnNumTypes; ++type) {
    for (int op = 0; op < rcnNumOps; ++op) {
      for (const std::size_t count : {0, 1, 7, 28, 57, 700}) {
        cases.push_back({static_cast<DataType>(type), static_cast<Operator>(op), count, (seed & 1) != 0,
                         seed % 17, seed});
        ++seed;
      }
    }
  }
  return cases;
}

std::string run_everything(int ranks, const std::string& options) {
  const std::vector<Case> cases = every_type_and_operator();
  const std::vector<Bytes> want = all_expected(cases, ranks, true);
  return run_on_gpu(ranks, options, [&](Seat& seat) { return run_cases(seat, cases, want); });
}

}  // namespace

TEST_CASE("Every type and operator has the oracle's bits, at any size and alignment") {
  REQUIRE(run_everything(GENERATE(2, 3, 4), "") == "");
}

TEST_CASE("So has a rank alone", "[alone]") {
  REQUIRE(run_everything(1, "") == "");
}

TEST_CASE("So have ranks that map each other's memory", "[shm]") {
  REQUIRE(run_everything(3, "ROCENANTE_TRANSPORT=shm") == "");
}

TEST_CASE("So have ranks whose puts a progress thread carries", "[carried]") {
  REQUIRE(run_everything(GENERATE(2, 3), "ROCENANTE_TRANSPORT=tcp") == "");
}

TEST_CASE("Large calls have the bits of the host's kernels") {
  const int ranks = GENERATE(2, 4);
  std::vector<Case> cases;
  std::uint64_t seed = 1;
  for (const DataType type : {DataType::kBfloat16, DataType::kFloat16, DataType::kFloat32,
                              DataType::kFloat64, DataType::kFloat8e4m3, DataType::kInt8}) {
    for (const std::size_t bytes : {8192, 49152 + 24, 1048576, 3000000}) {
      if (gpu().runs(100) < 100 && bytes > 50000) continue;
      const auto op = static_cast<Operator>(seed % rcnNumOps);
      cases.push_back({type, op, bytes / element_size(type), (seed & 1) != 0, 3 * (seed % 6), seed});
      ++seed;
    }
  }
  const std::vector<Bytes> want = all_expected(cases, ranks, false);
  REQUIRE(run_on_gpu(ranks, "", [&](Seat& seat) { return run_cases(seat, cases, want); }) == "");
}

TEST_CASE("A pre-multiplied sum has the oracle's bits") {
  constexpr std::size_t kCount = 301;
  const Case c{DataType::kBfloat16, Operator::kSum, kCount, false, 0, 5};
  const std::uint16_t scalar = 0x3e80;  // 0.25
  std::vector<Bytes> scaled;
  std::vector<const void*> pointers;
  for (int rank = 0; rank < 3; ++rank) {
    scaled.push_back(oracle::scale(c.type, contribution(c, rank).data(), kCount, &scalar));
  }
  for (const Bytes& input : scaled) pointers.push_back(input.data());
  const Bytes want = oracle::reduce(c.type, c.op, pointers, kCount);
  REQUIRE(
      run_on_gpu(3, "", [&](Seat& seat) -> std::string {
        const Place place(seat, want.size());
        rcnRedOp_t op{};
        std::uint16_t value = scalar;
        succeed(rcnRedOpCreatePreMulSum(&op, &value, rcnBfloat16, rcnScalarHostImmediate, seat.rank.comm()),
                "rcnRedOpCreatePreMulSum");
        seat.meet();
        const Bytes input = contribution(c, seat.rank.rank());
        std::memcpy(place.host, input.data(), input.size());
        gpu().copy(place.send, place.host, input.size(), place.stream);
        seat.all_reduce(place.send, place.receive, kCount, rcnBfloat16, op, seat.rank.comm(), place.stream);
        gpu().copy(place.host, place.receive, want.size(), place.stream);
        gpu().synchronise(place.stream);
        return std::memcmp(place.host, want.data(), want.size()) == 0 ? "" : "wrong bits";
      }) == "");
}

TEST_CASE("Calls that are enqueued without waiting each see their own payload") {
  constexpr std::size_t kCount = 1000, kBytes = kCount * 4;
  const int calls = gpu().runs(400);
  REQUIRE(run_on_gpu(2, "", [&](Seat& seat) -> std::string {
            const auto total = static_cast<std::size_t>(calls) * kBytes;
            void* const stream = seat.stream();
            std::uint8_t* const memory = seat.buffer(kBytes);
            std::uint8_t* const in = seat.staging(total);
            std::uint8_t* const out = seat.staging(total);
            const auto value = [&](int call, std::size_t i, int rank) {
              return static_cast<std::uint32_t>(call) * 2654435761U +
                     static_cast<std::uint32_t>(i) * 40503U + static_cast<std::uint32_t>(rank) * 97U;
            };
            for (std::size_t k = 0; k < static_cast<std::size_t>(calls) * kCount; ++k) {
              const std::uint32_t v = value(static_cast<int>(k / kCount), k % kCount, seat.rank.rank());
              std::memcpy(in + k * 4, &v, 4);
            }
            seat.meet();
            for (int call = 0; call < calls; ++call) {
              const std::size_t at = static_cast<std::size_t>(call) * kBytes;
              gpu().copy(memory, in + at, kBytes, stream);
              seat.all_reduce(memory, memory, kCount, rcnUint32, rcnSum, seat.rank.comm(), stream);
              gpu().copy(out + at, memory, kBytes, stream);
            }
            gpu().synchronise(stream);
            for (std::size_t k = 0; k < static_cast<std::size_t>(calls) * kCount; ++k) {
              const int call = static_cast<int>(k / kCount);
              std::uint32_t got = 0;
              std::memcpy(&got, out + k * 4, 4);
              if (got != value(call, k % kCount, 0) + value(call, k % kCount, 1)) {
                return "call " + std::to_string(call) + " has the wrong sum";
              }
            }
            return "";
          }) == "");
}

TEST_CASE("Buffers that the device cannot reach are refused by name") {
  if (gpu().reaches_all_memory()) return;
  REQUIRE(run_on_gpu(1, "", [&](Seat& seat) -> std::string {
            std::vector<float> host(100);
            auto* const memory = reinterpret_cast<float*>(seat.buffer(400));
            void* const stream = seat.stream();
            for (const bool sending : {true, false}) {
              const char* const argument = sending ? "sendbuff" : "recvbuff";
              const rcnResult_t result =
                  rcnAllReduce(sending ? host.data() : memory, sending ? memory : host.data(), 100,
                               rcnFloat32, rcnSum, seat.rank.comm(), stream);
              if (result != rcnInvalidArgument) return std::string(argument) + " was not refused";
              const std::string text = rcnGetLastError(nullptr);
              if (text.find(argument) == std::string::npos)
                return "does not name " + std::string(argument) + ": " + text;
            }
            return "";
          }) == "");
}
