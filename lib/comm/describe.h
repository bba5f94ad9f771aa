// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "lib/base/status.h"

namespace rocenante {

// The texts of rcnDescribe: "info", "config", "config.md".
Result<std::string> describe(std::string_view topic);

}  // namespace rocenante
