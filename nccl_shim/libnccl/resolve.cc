// SPDX-License-Identifier: Apache-2.0
//
// The C++ side of the forwarders: what a slot becomes at its first use, and what a call returns that has no
// function behind it.
#include <atomic>

#include "nccl_shim/libnccl/api.h"
#include "nccl_shim/libnccl/policy.h"

extern "C" {
// Addresses to jump to, not functions that C++ could call.
void rcn_nccl_missing_entry();
#include "checked.inc"

// Where each forwarder jumps; written once each, from what resolve.S put there to the function itself.
extern void* rcn_nccl_slots[rocenante::nccl::kNumExports];
// Where the forwarders that look at the communicator jump after it.
void* rcn_nccl_real[rocenante::nccl::kNumExports];

void* rcn_nccl_resolve(std::uint32_t index);
std::uint64_t rcn_nccl_missing(std::uint32_t index);
}

namespace rocenante::nccl {
namespace {

constexpr ExportRow kRows[] = {
#define RCN_NCCL_EXPORT(name, since, returns, checked) {#name, since, Returns::returns},
#include "exports.inc"
#undef RCN_NCCL_EXPORT
};
static_assert(std::size(kRows) == kNumExports);

using Target = void (*)();
constexpr Target kChecked[] = {
#define RCN_NCCL_EXPORT(name, since, returns, checked) checked,
#include "exports.inc"
#undef RCN_NCCL_EXPORT
};

// Nothing to say about a call of a function that returns no status, but who looks finds it.
Status why_missing(const ExportRow& row) {
  const RealLibrary* const library = loaded_real();
  if (library == nullptr) {
    return make_error(rocenante::Code::kInvalidUsage,
                      "nccl{}: RoCEnante does not do this itself, and no real NCCL is in use: {}", row.name,
                      why_no_real());
  }
  if (!library->has(static_cast<Export>(&row - kRows))) {
    return make_error(rocenante::Code::kInvalidUsage, "nccl{}: {} is NCCL {}.{}.{} and lacks it (since {})",
                      row.name, library->path, library->version / 10000, library->version / 100 % 100,
                      library->version % 100, row.since);
  }
  return make_error(rocenante::Code::kInvalidUsage,
                    "nccl{}: not possible on a communicator that RoCEnante made without the real NCCL",
                    row.name);
}

void* resolve(std::uint32_t index) {
  void* const missing = reinterpret_cast<void*>(rcn_nccl_missing_entry);
  const Result<const RealLibrary*> library = wanted_real();
  if (!library.ok() || library.value() == nullptr) return missing;
  void* const function = library.value()->functions[index];
  if (function == nullptr) return missing;
  // Release: the function is there before the jump that leads to it.
  std::atomic_ref<void*>(rcn_nccl_real[index]).store(function, std::memory_order_release);
  void* const target = kChecked[index] != nullptr ? reinterpret_cast<void*>(kChecked[index]) : function;
  std::atomic_ref<void*>(rcn_nccl_slots[index]).store(target, std::memory_order_release);
  return target;
}

}  // namespace

const ExportRow& export_row(std::size_t index) {
  return kRows[index];
}

}  // namespace rocenante::nccl

void* rcn_nccl_resolve(std::uint32_t index) {
  void* target = reinterpret_cast<void*>(rcn_nccl_missing_entry);
  (void)rocenante::guarded([&]() -> rocenante::Status {
    target = rocenante::nccl::resolve(index);
    return {};
  });
  return target;
}

// What the caller finds in its first return register.
std::uint64_t rcn_nccl_missing(std::uint32_t index) {
  using rocenante::nccl::Returns;
  const rocenante::nccl::ExportRow& row = rocenante::nccl::export_row(index);
  const rcnResult_t result = rocenante::nccl::answer([&] { return rocenante::nccl::why_missing(row); });
  return row.returns == Returns::kResult ? static_cast<std::uint64_t>(result) : 0;
}
