// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "lib/base/config.h"
#include "lib/comm/star_core.h"
#include "lib/comm/unique_id.h"

namespace rocenante {

struct JoinedStar {
  std::shared_ptr<StarCore> core;
  net::SecretKey key;  // the communicator's
};

// Where a rank listens for others. Without a secret everything stays where the rendezvous is: on loopback.
Result<net::SocketFd> listen_for_ranks(const UniqueIdContents& id, const Config& config);

// ControlStar::join.
Result<JoinedStar> join_star(const UniqueId& id, std::uint32_t rank, std::uint32_t nranks,
                             const Config& config, net::Deadline deadline);

}  // namespace rocenante
