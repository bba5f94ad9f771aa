// SPDX-License-Identifier: Apache-2.0
//
// Launches of the device kernels. No CUDA types: streams are cudaStream_t. In builds with CUDA only.
#pragma once

#include "lib/base/status.h"
#include "reduce_kernels/call_launch.h"

namespace rocenante::reduce {

// Loads every kernel onto the calling thread's current device, so that no launch loads one beside a kernel
// that waits. Once per device, before the first launch; again it is cheap.
Status load_kernels();

// Enqueues the call on the stream, on the calling thread's current device. InvalidArgument for a call that
// no kernel makes, else what CUDA says.
Status launch_all_reduce(const CallLaunch& call, void* stream);

}  // namespace rocenante::reduce
