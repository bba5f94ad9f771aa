// SPDX-License-Identifier: Apache-2.0
//
// Ranks that come to a meeting only to say that they do not take part, so that the others need not wait for
// them; on a thread of their own, because their own calls may not wait either.
#pragma once

#include <cstdint>

#include "lib/base/status.h"
#include "lib/comm/unique_id.h"

namespace rocenante::nccl {

// SystemError if there is no thread to be had. Ends by itself, at the latest when the library goes.
Status vote_no(const UniqueId& id, int rank, int ranks);

}  // namespace rocenante::nccl
