// SPDX-License-Identifier: Apache-2.0
//
// A transport between ranks of one process that maps nothing and does everything a network may do, from a
// seed: delays, order that differs between peers, payload read late and in pieces before its signal, a send
// queue that is full until the sender makes progress, completion errors. It keeps what a reliable
// connection keeps: per pair, order.
#pragma once

#include <cstdint>
#include <memory>

#include "transports/transport.h"

namespace rocenante::test {

struct Faults {
  std::uint64_t seed = 1;
  std::uint32_t delay_percent = 50;   // chance that a look at a connection moves nothing
  std::uint64_t piece_bytes = 48;     // most payload moved by one look
  std::uint32_t queue_slots = 2;      // puts that wait at the receiver; more stay with the sender
  std::uint64_t fail_after_puts = 0;  // that many puts of one rank succeed, then progress() fails; 0: never
  std::uint32_t failing_rank = 0;
};

// A catalog with the one transport "faulty", for the ranks (threads) of one test. Outlives their
// communicators.
class FaultyCatalog final : public TransportCatalog {
 public:
  explicit FaultyCatalog(const Faults& faults);
  ~FaultyCatalog() override;

  std::span<const char* const> names() const override;
  bool reachable(std::string_view name, const HostIdentity& a, const HostIdentity& b) const override;
  Result<std::unique_ptr<Transport>> make(std::string_view name) const override;

  struct Network;

 private:
  std::unique_ptr<Network> network_;
};

}  // namespace rocenante::test
