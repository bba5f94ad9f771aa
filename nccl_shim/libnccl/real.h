// SPDX-License-Identifier: Apache-2.0
//
// The real NCCL, loaded at most once and never unloaded: it has threads of its own.
#pragma once

#include <array>
#include <atomic>
#include <string>

#include "lib/base/status.h"
#include "nccl_shim/libnccl/exports.h"

namespace rocenante::nccl {

struct RealLibrary {
  std::string path;
  int version = 0;
  std::array<void*, kNumExports> functions{};  // null: it lacks that one

  bool has(Export which) const { return functions[static_cast<std::size_t>(which)] != nullptr; }
};

// What load_real has loaded so far; null if nothing. Any thread, lock-free.
const RealLibrary* loaded_real();

// Finds and loads it, once; every later call has the same answer. `path` is ROCENANTE_NCCL_PATH: empty
// searches. SystemError saying what was tried and why each did not do.
Result<const RealLibrary*> load_real(const std::string& path);

}  // namespace rocenante::nccl
