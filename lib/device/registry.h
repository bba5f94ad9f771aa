// SPDX-License-Identifier: Apache-2.0
//
// Devices by the names that ROCENANTE_DEVICE gives them.
#pragma once

#include <memory>
#include <string_view>

#include "lib/base/status.h"
#include "lib/device/device.h"

namespace rocenante {

// Instead of a device's number: the one that is current on the calling thread.
inline constexpr int kCurrentDevice = -1;

// A device of one kind, by its number or kCurrentDevice; communicators keep it alive.
using OpenDevice = Result<std::shared_ptr<Device>> (*)(int number);

// Adds a kind, under a name that ROCENANTE_DEVICE accepts from now on; replaces one of the same name.
// `name` lives for ever. Any thread.
void register_device(const char* name, OpenDevice open);

// The device of the kind `name`, a value of ROCENANTE_DEVICE: that of this number, or the calling thread's
// current one, which is why nobody opens a device on another thread than its client's. auto is host memory,
// of which there is one. InvalidUsage for a kind that this build does not have, else what opening it says.
Result<std::shared_ptr<Device>> open_device(std::string_view name, int number = kCurrentDevice);

}  // namespace rocenante
