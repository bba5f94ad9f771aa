// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <thread>

#include "lib/base/status.h"

namespace rocenante::net {

// Starts a thread that receives none of the process's signals. `name` is at most 15 characters.
// SystemError.
Result<std::thread> start_quiet_thread(const char* name, std::function<void()> body);

}  // namespace rocenante::net
