// SPDX-License-Identifier: Apache-2.0
//
// For the tests of libnccl.so.2 with the recording library behind it: NCCL's names, the recorder, and
// worlds whose ranks are threads.
#pragma once

#include <dlfcn.h>

#include <cstdlib>

#include "tests/abi/nccl_ranks.h"
#include "tests/abi/recorder/recorder.h"

namespace rocenante::test {

enum Row : std::uint32_t {
#define RCN_RECORDED(name, returns, arguments) k##name,
#include "recorded.inc"
#undef RCN_RECORDED
  kRows
};

inline const Recorder& recorder() {
  static const Recorder& instance = [&]() -> const Recorder& {
    void* const handle = ::dlopen(std::getenv("ROCENANTE_NCCL_PATH"), RTLD_NOW | RTLD_LOCAL);
    auto* const api = reinterpret_cast<const Recorder* (*)()>(::dlsym(handle, "recorder_api"));
    return *api();
  }();
  return instance;
}

}  // namespace rocenante::test
