// SPDX-License-Identifier: Apache-2.0
//
// The one sleeping thread per process that watches control connections. Started with its first client,
// ended with its last, or when the library is unloaded or the process exits. It receives no signals and
// is named "rcn-monitor".
#pragma once

#include <cstdint>
#include <memory>

#include "lib/base/status.h"

namespace rocenante {

// What the monitor watches over. on_ready and on_time are called by the monitor's thread only, one at a
// time; the others must be lock-free and safe from any thread.
class MonitorClient {
 public:
  virtual ~MonitorClient() = default;
  // The descriptor given to Monitor::watch with `index` has some of `events` (epoll(7)).
  virtual void on_ready(std::uint32_t index, std::uint32_t events) = 0;
  // due_ns() has come.
  virtual void on_time(std::uint64_t now_ns) = 0;
  virtual std::uint64_t due_ns() const = 0;
  // The monitor lets go of the client; it makes no further calls.
  virtual bool is_finished() const = 0;
};

// All functions are safe from any thread, and take no lock but the monitor's own, which is never held
// while a client is called.
class Monitor {
 public:
  using ClientId = std::uint64_t;
  static constexpr ClientId kNoClient = 0;

  // Keeps `client` until it is finished or the process ends. InvalidUsage when the library is being
  // unloaded, SystemError.
  static Result<ClientId> add(std::shared_ptr<MonitorClient> client);
  // Level-triggered; `index` below 65536. The owner forgets a descriptor before closing it.
  static Status watch(ClientId id, std::uint32_t index, int fd, std::uint32_t events);
  static void change(ClientId id, std::uint32_t index, int fd, std::uint32_t events);
  static void forget(ClientId id, int fd);
  // Makes the thread look at due_ns() and is_finished() again.
  static void wake();
  // Is this the monitor's thread?
  static bool is_own_thread();
};

}  // namespace rocenante
