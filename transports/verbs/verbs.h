// SPDX-License-Identifier: Apache-2.0
//
// RDMA between hosts: reliable queue pairs, one for each peer and rail. Without libibverbs at build time
// the functions are still there and say so.
#pragma once

#include <memory>

#include "transports/transport.h"

namespace rocenante {

struct VerbsApi;

// Whether libibverbs can be loaded; if not, why.
Status verbs_usable();

// `api` null: that of libibverbs. It outlives the transport.
Result<std::unique_ptr<Transport>> make_verbs_transport(const VerbsApi* api = nullptr);

}  // namespace rocenante
