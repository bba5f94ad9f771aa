// SPDX-License-Identifier: Apache-2.0
//
// Memory for users' buffers (rcnMemAlloc, ncclMemAlloc).
#pragma once

#include <cstddef>

#include "lib/base/config.h"
#include "lib/base/status.h"

namespace rocenante {

// Zeroed memory of the device that the settings name, for the calling thread; null for 0 bytes.
Result<void*> allocate_user_memory(const Config& config, std::size_t bytes);
// True if it was ours and is given back; false if it is not ours.
bool free_user_memory(void* pointer);

}  // namespace rocenante
