// SPDX-License-Identifier: Apache-2.0
//
// Handing memory to the other processes of this host: an abstract Unix socket (no name in any file system,
// gone with its process), the common handshake, then both regions' descriptors in one message.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "lib/base/handle.h"
#include "lib/base/status.h"
#include "lib/net/acceptor.h"
#include "lib/net/deadline.h"

namespace rocenante {

// What a process gets of another: descriptors of its regions and their sizes, as it says; the receiver
// checks.
struct HandedOver {
  Fd inbox;
  Fd outbox;
  std::uint64_t inbox_bytes = 0;
  std::uint64_t outbox_bytes = 0;
  pid_t pid = 0;  // of the process that listens, from the kernel; 0 if it is in another pid namespace
};

// Serves one rank's regions while peers connect, on a thread of its own.
class HandOverServer {
 public:
  static Result<std::unique_ptr<HandOverServer>> start(const net::SecretKey& key, std::uint32_t rank,
                                                       std::uint32_t ranks, HandedOver regions);
  ~HandOverServer();
  HandOverServer(const HandOverServer&) = delete;
  HandOverServer& operator=(const HandOverServer&) = delete;

  // Name of the socket in the abstract namespace, without the leading NUL.
  const std::string& name() const { return name_; }

 private:
  HandOverServer(net::Acceptor acceptor, net::SocketFd wake, std::string name, HandedOver regions);
  void serve();
  void send_regions(const net::Acceptor::Connection& connection) const;

  net::Acceptor acceptor_;
  net::SocketFd wake_;
  std::string name_;
  HandedOver regions_;
  std::thread thread_;
};

// Fetches `peer`'s regions from the socket called `name`. Any thread.
Result<HandedOver> receive_regions(std::string_view name, const net::SecretKey& key, std::uint32_t rank,
                                   std::uint32_t peer, net::Deadline deadline);

}  // namespace rocenante
