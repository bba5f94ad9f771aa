// SPDX-License-Identifier: Apache-2.0
//
// The NVIDIA driver, found at run time.
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/base/handle.h"
#include "lib/base/status.h"
#include "lib/device/context_scope.h"
#include "lib/device/gpu_facts.h"

namespace rocenante {

// What the driver says of a device. Creates no context.
Result<GpuFacts> gpu_facts(int ordinal);

// The number of devices; an error that says why none can be used.
Result<int> gpu_count();

// The primary context of a device, made if the process has none yet and kept until it ends.
Result<DeviceContext> primary_context(int ordinal);

// That of the calling thread.
ContextStack& context_stack();

// Success, or "TEXT: CUDA_ERROR_NAME".
Status driver_status(int error, std::string_view what);

// A dma-buf of a range of the memory of the device that is current. Both are multiples of the host's page.
Result<Fd> dma_buf_of(const void* address, std::uint64_t bytes);

// The device of a stream that somebody has created, most likely in the context `usual`.
Result<int> device_of_stream(const void* stream, const DeviceContext& usual);

}  // namespace rocenante
