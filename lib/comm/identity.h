// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "transports/transport.h"

namespace rocenante {

// What ranks tell each other of themselves, as a message.
std::string encode_identity(const HostIdentity& identity);
// False when the bytes are no identity.
bool decode_identity(std::string_view bytes, HostIdentity* identity);

}  // namespace rocenante
