// SPDX-License-Identifier: Apache-2.0
//
// The two switches: ROCENANTE_FALLBACK says what becomes of the real library, ROCENANTE_DEVICE which memory
// our side handles. Together with whether there is a GPU they choose the world of ids made here; afterwards
// the id itself says it.
#pragma once

#include "lib/base/config.h"
#include "lib/base/status.h"
#include "nccl_shim/libnccl/real.h"

namespace rocenante::nccl {

enum class World : std::uint8_t { kOwn, kReal };

// Whether this machine has a GPU that this process may use. Looked up once.
bool has_gpu();

// The world of what this process begins: ids, memory, groups.
World chosen_world(const Config& config);

// The device whose memory ncclMemAlloc gives where it is ours.
const char* memory_device(const Config& config);

// Whether our side can take part beside the real library: where calls work on host memory, or on a GPU that
// ROCENANTE_DEVICE=cuda gives us and CUDA can use. Logs why not.
bool own_side_possible(const Config& config);

// The real library where the configuration wants it, loading it if need be; null where it does not. An
// error where it does and there is none.
Result<const RealLibrary*> wanted_real();

// Why no real library is in use, for error texts.
std::string why_no_real();

}  // namespace rocenante::nccl
