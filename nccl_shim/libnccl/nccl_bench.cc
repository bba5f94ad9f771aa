// SPDX-License-Identifier: Apache-2.0
//
// What it costs to stand before the real library: the same function called directly and through
// libnccl.so.2, and our look-up of a communicator, in one run.
//
//   nccl_bench OUR_LIBNCCL REAL_LIBNCCL [Google Benchmark's options]
//
// The real library needs no GPU for the plain forwarder; the calls on a communicator need one that makes
// communicators without a GPU, as the tests' recording library does.
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "lib/device/registry.h"
#include "nccl_shim/libnccl/abi.h"
#include "nccl_shim/libnccl/side_table.h"

namespace {

void* ours;
void* theirs;

template <class Function>
Function* symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

void calc_slots(benchmark::State& state, void* library) {
  auto* const function = symbol<int(int, int)>(library, "ncclLLA2ACalcSlots");
  for (auto _ : state) benchmark::DoNotOptimize(function(1000, 8));
}

// A communicator the real library made through ours.
void* communicator() {
  static void* const comm = []() -> void* {
    rcnUniqueId id;
    void* made = nullptr;
    if (symbol<rcnResult_t(rcnUniqueId*)>(ours, "ncclGetUniqueId")(&id) != rcnSuccess) return nullptr;
    auto* const init = symbol<rcnResult_t(void**, int, rcnUniqueId, int)>(ours, "ncclCommInitRank");
    return init(&made, 1, id, 0) == rcnSuccess ? made : nullptr;
  }();
  return comm;
}

void comm_count(benchmark::State& state, void* library) {
  auto* const function = symbol<rcnResult_t(void*, int*)>(library, "ncclCommCount");
  void* const comm = communicator();
  if (comm == nullptr) return state.SkipWithError("the real library makes no communicator here");
  int count = 0;
  for (auto _ : state) benchmark::DoNotOptimize(function(comm, &count));
}

// An operator that is not ours: looked up, counted, forwarded. One element, so that little else is
// measured.
void all_reduce(benchmark::State& state, void* library) {
  auto* const function =
      symbol<rcnResult_t(const void*, void*, size_t, int, int, void*, void*)>(library, "ncclAllReduce");
  void* const comm = communicator();
  if (comm == nullptr) return state.SkipWithError("the real library makes no communicator here");
  constexpr int kCustomOperator = 7;
  float value = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(function(&value, &value, 1, rcnFloat32, kCustomOperator, comm, nullptr));
  }
}

void look_up(benchmark::State& state, bool present) {
  alignas(64) static unsigned char comms[64][64];
  for (auto& comm : comms) {
    auto entry = std::make_unique<rocenante::nccl::SideEntry>(0, 1, rocenante::Config::load().take(),
                                                              rocenante::open_device("host"));
    if (!rocenante::nccl::add_side(&comm, std::move(entry)).ok()) return state.SkipWithError("no entry");
  }
  static unsigned char other[64];
  const void* const wanted = present ? static_cast<void*>(comms[17]) : other;
  for (auto _ : state) {
    const rocenante::nccl::SidePin side(wanted);
    benchmark::DoNotOptimize(static_cast<bool>(side));
  }
  for (auto& comm : comms) (void)rocenante::nccl::remove_side(&comm);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "Usage: nccl_bench OUR_LIBNCCL REAL_LIBNCCL [options of Google Benchmark]\n");
    return 2;
  }
  ::setenv("ROCENANTE_FALLBACK", "require", 1);
  ::setenv("ROCENANTE_DEVICE", "host", 1);
  ::setenv("ROCENANTE_NCCL_PATH", argv[2], 1);
  ours = ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  theirs = ::dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
  if (ours == nullptr || theirs == nullptr) {
    std::fprintf(stderr, "%s\n", ::dlerror());
    return 1;
  }
  if (void* const api = ::dlsym(theirs, "recorder_silence"); api != nullptr)
    reinterpret_cast<void (*)()>(api)();
  for (const bool direct : {true, false}) {
    void* const library = direct ? theirs : ours;
    const std::string suffix = direct ? "/direct" : "/through_ours";
    benchmark::RegisterBenchmark(("forward" + suffix).c_str(), calc_slots, library);
    benchmark::RegisterBenchmark(("comm_count" + suffix).c_str(), comm_count, library);
    benchmark::RegisterBenchmark(("all_reduce" + suffix).c_str(), all_reduce, library);
  }
  benchmark::RegisterBenchmark("look_up/present", look_up, true);
  benchmark::RegisterBenchmark("look_up/absent", look_up, false);
  argc -= 2;
  argv[2] = argv[0];
  char** arguments = argv + 2;
  benchmark::Initialize(&argc, arguments);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
