// SPDX-License-Identifier: Apache-2.0
//
// Devices by the names that ROCENANTE_DEVICE gives them.
#pragma once

#include <memory>
#include <string_view>

#include "lib/base/status.h"
#include "lib/device/device.h"

namespace rocenante {

// The calling thread's device of one kind; communicators keep it alive.
using OpenDevice = Result<std::shared_ptr<Device>> (*)();

// Adds a kind, under a name that ROCENANTE_DEVICE accepts from now on; replaces one of the same name.
// `name` lives for ever. Any thread.
void register_device(const char* name, OpenDevice open);

// The calling thread's device of the kind `name`, a value of ROCENANTE_DEVICE; auto is host memory.
// InvalidUsage for a kind that this build does not have, else what opening it says.
Result<std::shared_ptr<Device>> open_device(std::string_view name);

}  // namespace rocenante
