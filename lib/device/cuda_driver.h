// SPDX-License-Identifier: Apache-2.0
//
// The NVIDIA driver, found at run time.
#pragma once

#include "lib/base/status.h"
#include "lib/device/gpu_facts.h"

namespace rocenante {

// What the driver says of a device. Creates no context.
Result<GpuFacts> gpu_facts(int ordinal);

// The number of devices; an error that says why none can be used.
Result<int> gpu_count();

}  // namespace rocenante
