// SPDX-License-Identifier: Apache-2.0
#include "reduce_kernels/cuda/launch.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <string>

#include "reduce_kernels/cuda/kernel_arguments.h"
#include "reduce_kernels/device_formats.h"

// The compiled families, for all architectures (kernel_images.S).
extern "C" const unsigned char rocenante_kernels_float[], rocenante_kernels_half[], rocenante_kernels_fp8[],
    rocenante_kernels_integer[], rocenante_kernels_order[];

namespace rocenante::reduce {

namespace {

constexpr std::uint32_t kFewThreads = 128;
// Of a round, for each group: two packs for each thread. CTAs are an engine's as well.
constexpr std::uint64_t kGroupBytes = 2 * kMostThreads * kPackBytes;

// Numbers of ranks with kernels of their own, after the place for any.
constexpr std::uint32_t kRankKinds = 4;
constexpr std::uint32_t rank_kind(std::uint32_t ranks) {
  return ranks == 2 ? 1 : ranks == 4 ? 2 : ranks == 8 ? 3 : 0;
}

struct Listed {
  const unsigned char* image;
  const char* name;
  KernelId id;
  std::uint32_t ranks;  // 0: any
};

constexpr Listed kListed[] = {
#define ROCENANTE_X(family, name, spec) {rocenante_kernels_##family, "rocenante_" #name, KernelId::name, 0},
    ROCENANTE_DEVICE_KERNELS(ROCENANTE_X)
#undef ROCENANTE_X
#define ROCENANTE_X(family, name, ranks, spec) \
  {rocenante_kernels_##family, "rocenante_" #name "_" #ranks, KernelId::name, ranks},
        ROCENANTE_LATENCY_KERNELS(ROCENANTE_X)
#undef ROCENANTE_X
};

Status failed(cudaError_t error, const std::string& what) {
  return make_error(Code::kUnhandledCudaError, "{}: {}: {}", what, cudaGetErrorName(error),
                    cudaGetErrorString(error));
}

constexpr std::size_t kNumKernels = static_cast<std::size_t>(KernelId::kCount);

// Every kernel's handle, which serves on all devices. Never unloaded: launches and graphs may outlive every
// static object.
struct Table {
  cudaKernel_t kernels[kNumKernels][kRankKinds] = {};
};

Result<cudaLibrary_t> load_image(const unsigned char* image) {
  cudaLibrary_t library = nullptr;
  const cudaError_t error = cudaLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (error != cudaSuccess) return failed(error, "loading the reduction kernels");
  return library;
}

Result<Table> make_table() {
  Table table;
  std::map<const unsigned char*, cudaLibrary_t> libraries;
  for (const Listed& listed : kListed) {
    if (libraries.count(listed.image) == 0) {
      RCN_ASSIGN(libraries[listed.image], load_image(listed.image));
    }
    cudaKernel_t& kernel = table.kernels[static_cast<std::size_t>(listed.id)][rank_kind(listed.ranks)];
    const cudaError_t error = cudaLibraryGetKernel(&kernel, libraries[listed.image], listed.name);
    if (error != cudaSuccess) return failed(error, std::string("finding the kernel ") + listed.name);
  }
  return table;
}

// Made once; what went wrong then goes wrong again.
const Result<Table>& table() {
  static const auto& made = *new Result<Table>(make_table());
  return made;
}

// One of the kernels makes the call, and its numbers are within what they can count.
Status check(const CallLaunch& call) {
  if (call.ranks == 0 || call.ranks > kMaxInputs)
    return make_error(Code::kInvalidArgument, "ranks: {}: must be 1 to {}", call.ranks, kMaxInputs);
  if (std::min(call.exchange.bytes, call.exchange.piece_bytes) >= kMostPieceBytes)
    return make_error(Code::kInvalidArgument, "bytes of a round: {}: must be less than {}",
                      call.exchange.piece_bytes, kMostPieceBytes);
  return {};
}

// A small call needs few threads, and fewer meet faster.
std::uint32_t threads_for(const CallLaunch& call, std::uint32_t groups) {
  const std::uint64_t piece = std::min(call.exchange.bytes, call.exchange.piece_bytes) / groups;
  return piece <= kFewThreads * kPackBytes ? kFewThreads : kMostThreads;
}

}  // namespace

Status load_kernels() {
  if (!table().ok()) return table().status();
  for (const auto& kinds : table().value().kernels) {
    for (const cudaKernel_t kernel : kinds) {
      if (kernel == nullptr) continue;
      cudaFuncAttributes attributes{};
      const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);  // loads it
      if (error != cudaSuccess) return failed(error, "loading a reduction kernel");
    }
  }
  return {};
}

Status launch_all_reduce(const CallLaunch& call, void* stream) {
  RCN_TRY(check(call));
  if (!table().ok()) return table().status();
  const KernelChoice choice = choose_kernel(call.type, call.op, call.scaled);
  const auto& kinds = table().value().kernels[static_cast<std::size_t>(choice.id)];
  const cudaKernel_t special = kinds[rank_kind(call.ranks)];
  const cudaKernel_t kernel = special != nullptr ? special : kinds[0];

  const std::uint32_t groups = protocol::groups_for(call.exchange, kGroupBytes, call.groups);
  KernelArguments arguments{
      call.lane, call.exchange, {}, static_cast<std::uint32_t>(std::countr_zero(groups))};
  std::memcpy(&arguments.reduction.scalar, call.scalar.data(), sizeof(arguments.reduction.scalar));
  arguments.reduction.flip = choice.flip;
  arguments.reduction.ranks = call.ranks;
  void* parameters[] = {&arguments};
  const cudaError_t error = cudaLaunchKernel(kernel, dim3(groups), dim3(threads_for(call, groups)),
                                             parameters, 0, static_cast<cudaStream_t>(stream));
  if (error != cudaSuccess) return failed(error, "launching an all-reduce");
  return {};
}

}  // namespace rocenante::reduce
