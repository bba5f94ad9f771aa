// SPDX-License-Identifier: Apache-2.0
//
// The reduction kernels: bytes read and written per second for two, four and eight ranks beside memcpy,
// and the time of one element, which an 8-byte all-reduce has on its critical path.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "reduce_kernels/reduce.h"

namespace {

using rocenante::reduce::built_targets;
using rocenante::reduce::CopyFn;
using rocenante::reduce::DataType;
using rocenante::reduce::element_size;
using rocenante::reduce::find_kernels;
using rocenante::reduce::Kernels;
using rocenante::reduce::Operator;
using rocenante::reduce::ReduceFn;
using rocenante::reduce::ScopedFpEnvironment;

struct NamedType {
  const char* name;
  DataType type;
};

constexpr NamedType kTypes[] = {
    {"fp32", DataType::kFloat32},       {"fp16", DataType::kFloat16},       {"bf16", DataType::kBfloat16},
    {"fp64", DataType::kFloat64},       {"int32", DataType::kInt32},        {"int8", DataType::kInt8},
    {"fp8e4m3", DataType::kFloat8e4m3}, {"fp8e5m2", DataType::kFloat8e5m2},
};

struct NamedOperator {
  const char* name;
  Operator op;
};

constexpr NamedOperator kOperators[] = {
    {"sum", Operator::kSum}, {"avg", Operator::kAvg}, {"max", Operator::kMax}};

// Ranks' buffers as the library lays them out: page-aligned slots.
class Slots {
 public:
  Slots(std::uint32_t n, std::size_t bytes) : storage_((n + 1) * bytes + kPage) {
    auto* base = storage_.data() + (kPage - reinterpret_cast<std::uintptr_t>(storage_.data()) % kPage);
    // Small numbers in every float format, none of them NaN or subnormal.
    for (std::size_t i = 0; i < n * bytes; ++i) base[i] = static_cast<unsigned char>(0x38 + i % 7);
    for (std::uint32_t r = 0; r < n; ++r) inputs_.push_back(base + r * bytes);
    out_ = base + n * bytes;
  }
  void* out() const { return out_; }
  const void* const* inputs() const { return inputs_.data(); }

 private:
  static constexpr std::size_t kPage = 4096;
  std::vector<unsigned char> storage_;
  std::vector<const void*> inputs_;
  void* out_ = nullptr;
};

void report_traffic(benchmark::State& state, std::size_t bytes_per_call) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes_per_call));
}

void run_reduce(benchmark::State& state, ReduceFn reduce, std::uint32_t n, std::size_t bytes,
                std::size_t count) {
  const ScopedFpEnvironment environment;
  const Slots slots(n, bytes);
  for (auto _ : state) {
    reduce(slots.out(), slots.inputs(), n, count);
    benchmark::ClobberMemory();
  }
  report_traffic(state, (n + 1) * bytes);
}

void run_copy(benchmark::State& state, CopyFn copy, std::size_t bytes) {
  const Slots slots(1, bytes);
  for (auto _ : state) {
    copy(slots.out(), slots.inputs()[0], bytes);
    benchmark::ClobberMemory();
  }
  report_traffic(state, 2 * bytes);
}

void run_environment(benchmark::State& state) {
  for (auto _ : state) {
    const ScopedFpEnvironment environment;
    benchmark::ClobberMemory();
  }
}

void add_copies(const std::string& name, CopyFn copy) {
  for (const std::size_t kibibytes : {16, 64, 1024}) {
    benchmark::RegisterBenchmark((name + "/" + std::to_string(kibibytes) + "KiB").c_str(), run_copy, copy,
                                 kibibytes << 10);
  }
}

void add_target(const Kernels* kernels) {
  add_copies(std::string(kernels->target) + "/copy", kernels->copy);
  for (const NamedType& type : kTypes) {
    for (const NamedOperator& op : kOperators) {
      const ReduceFn reduce =
          kernels->reduce[static_cast<std::size_t>(type.type)][static_cast<std::size_t>(op.op)];
      const std::string prefix = std::string(kernels->target) + "/" + type.name + "/" + op.name;
      for (const std::uint32_t n : {2u, 3u, 4u, 8u}) {
        const std::string with_ranks = prefix + "/n" + std::to_string(n);
        for (const std::size_t bytes : {std::size_t{64} << 10, std::size_t{1} << 20}) {
          benchmark::RegisterBenchmark((with_ranks + "/" + std::to_string(bytes >> 10) + "KiB").c_str(),
                                       run_reduce, reduce, n, bytes, bytes / element_size(type.type));
        }
        for (const std::size_t count : {std::size_t{1}, std::size_t{4}}) {
          benchmark::RegisterBenchmark((with_ranks + "/" + std::to_string(count) + "elem").c_str(),
                                       run_reduce, reduce, n, std::size_t{4096}, count);
        }
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  add_copies("memcpy", [](void* out, const void* in, std::size_t bytes) { std::memcpy(out, in, bytes); });
  benchmark::RegisterBenchmark("fp_environment", run_environment);
  for (const char* const* name = built_targets(); *name != nullptr; ++name) {
    if (const Kernels* kernels = find_kernels(*name)) add_target(kernels);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
