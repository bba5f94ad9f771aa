// SPDX-License-Identifier: Apache-2.0
//
// Between any two hosts: one authenticated TCP connection for each pair of ranks.
#pragma once

#include <memory>

#include "transports/transport.h"

namespace rocenante {

std::unique_ptr<Transport> make_tcp_transport();

}  // namespace rocenante
