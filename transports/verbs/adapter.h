// SPDX-License-Identifier: Apache-2.0
//
// One opened device: its protection domain, its completion queue and the communicator's memory registered
// with it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lib/device/device.h"
#include "transports/verbs/api.h"

namespace rocenante {

class Adapter {
 public:
  // `entries`: completions that may wait at once. Errors name the device and what the administrator can do.
  static Result<std::unique_ptr<Adapter>> open(const VerbsApi& api, const std::string& device,
                                               const Region& inbox, const Region& outbox,
                                               std::uint32_t entries, bool sleeps);

  // Whether the adapter can register dma-bufs; if not, why.
  Status can_register_dma_bufs() const;
  // Lets peers write a device's memory under its address there, too. Errors leave the adapter as it was.
  Status register_device_inbox(const DeviceInbox& inbox);
  void forget_device_inbox() { device_inbox_.reset(); }

  const std::string& device() const { return device_; }
  ibv_pd* domain() const { return domain_.get().object; }
  ibv_cq* completions() const { return completions_.get().object; }
  std::uint32_t inbox_rkey() const { return inbox_.get()->rkey; }
  std::uint32_t device_inbox_rkey() const { return device_inbox_.get()->rkey; }
  std::uint32_t outbox_lkey() const { return outbox_lkey_; }

  // The MTU of a port, which must be active.
  Result<ibv_mtu> port_mtu(std::uint32_t port) const;

  // Readable after arm() once there is another completion; -1 where nobody sleeps.
  int event_fd() const { return channel_ ? channel_.get()->fd : -1; }
  // Takes what made event_fd() readable and asks for the next event. Completions that were there before
  // cause none.
  Status arm();

  // For a forked child, in which these are the parent's.
  void forget();

  std::uint32_t pending = 0;  // completions that will come

 private:
  std::uint32_t outbox_lkey_ = 0;  // beside `pending`: every post reads both

  Adapter(const VerbsApi& api, std::string device) : api_(api), device_(std::move(device)) {}

  const VerbsApi& api_;
  const std::string device_;
  // Destroyed from the last to the first.
  DeviceContext context_;
  ProtectionDomain domain_;
  CompletionChannel channel_;
  CompletionQueue completions_;
  MemoryRegion inbox_;
  MemoryRegion outbox_;
  MemoryRegion device_inbox_;  // empty where peers write host memory alone
};

}  // namespace rocenante
