// SPDX-License-Identifier: Apache-2.0
//
// Ranks of one process that write into each other's memory as a NIC does: payload, then signal, at the
// moment of the post and without anything of the receiver's. Alone, or beside memory that is mapped.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "transports/transport.h"

namespace rocenante::test {

class OneSidedCatalog final : public TransportCatalog {
 public:
  // With `mixed` all ranks but the last map each other's memory.
  explicit OneSidedCatalog(bool mixed) : mixed_(mixed) {}

  std::span<const char* const> names() const override;
  bool reachable(std::string_view, const HostIdentity&, const HostIdentity&) const override { return true; }
  Result<std::unique_ptr<Transport>> make(std::string_view name) const override;

  // The ranks' memory.
  struct Network {
    std::mutex mutex;
    std::map<std::uint32_t, TransportContext> ranks;
  };

 private:
  const bool mixed_;
  mutable Network network_;
};

}  // namespace rocenante::test
