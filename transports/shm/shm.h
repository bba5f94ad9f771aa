// SPDX-License-Identifier: Apache-2.0
//
// Processes of one host: each maps the other's sealed memfds, handed over an authenticated Unix socket in
// the abstract namespace, which leaves no name behind.
#pragma once

#include <memory>

#include "transports/transport.h"

namespace rocenante {

std::unique_ptr<Transport> make_shm_transport();

}  // namespace rocenante
