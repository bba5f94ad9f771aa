// SPDX-License-Identifier: Apache-2.0
//
// CUDA devices, as far as others need to know: no CUDA header is needed to include this. In a build without
// CUDA everything here says so.
#pragma once

#include <memory>
#include <string>

#include "lib/base/status.h"
#include "lib/device/device.h"

namespace rocenante {

// Whether this process can use a GPU; the error says why not: no such build, no driver, a driver that is
// too old, no GPU, or a process forked from one that used it. Loads the driver and initialises it, but
// creates no context. Any thread.
Status cuda_available();

// The CUDA device of this number, or the calling thread's current one (kCurrentDevice), its kernels loaded.
// Made at the first call and never destroyed, so nobody owns it. Any thread, but not while kernels of this
// process wait for this thread.
Result<std::shared_ptr<Device>> cuda_device(int number);

// For `rocenante info`: each device and the choices made for it, or why there is none; a line each,
// indented but for the first.
std::string describe_cuda();

}  // namespace rocenante
