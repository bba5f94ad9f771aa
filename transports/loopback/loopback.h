// SPDX-License-Identifier: Apache-2.0
//
// Ranks of one process (threads, or several communicators on one thread): a peer's regions are reached by
// their own addresses, and a reference keeps them alive until the last rank that may touch them has let go.
#pragma once

#include <memory>

#include "transports/transport.h"

namespace rocenante {

std::unique_ptr<Transport> make_loopback_transport();

}  // namespace rocenante
