// SPDX-License-Identifier: Apache-2.0
//
// The listening end of the data connections: authenticates whoever calls, on a thread of its own, and keeps
// the connections of the ranks that belong here.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "lib/base/status.h"
#include "lib/net/acceptor.h"
#include "lib/net/deadline.h"
#include "lib/net/socket.h"

namespace rocenante::tcp {

class DataServer {
 public:
  // Takes connections of the ranks below `rank`, at `address` (port 0: any).
  static Result<std::unique_ptr<DataServer>> start(const net::SocketAddress& address,
                                                   const net::SecretKey& key, std::uint32_t rank,
                                                   std::uint32_t ranks);
  ~DataServer();
  DataServer(const DataServer&) = delete;
  DataServer& operator=(const DataServer&) = delete;

  const net::SocketAddress& address() const { return address_; }

  // The connection that `peer` has opened; waits for it. Timeout naming the peer.
  Result<net::SocketFd> take(std::uint32_t peer, net::Deadline deadline);

 private:
  DataServer(net::Acceptor acceptor, net::SocketFd wake, const net::SocketAddress& address,
             std::uint32_t rank);
  void serve();
  void admit(net::Acceptor::Connection connection);

  net::Acceptor acceptor_;  // the thread's
  net::SocketFd wake_;
  const net::SocketAddress address_;
  const std::uint32_t rank_;
  std::mutex mutex_;
  std::condition_variable admitted_;
  std::map<std::uint32_t, net::SocketFd> connections_;  // by rank, not yet taken
  std::thread thread_;
};

// Opens the data connection to `peer`, which serves at `address`; returns once it has taken us in.
// RemoteError, InvalidUsage or Timeout naming the peer.
Result<net::SocketFd> open_data_connection(const net::SocketAddress& address, const net::SecretKey& key,
                                           std::uint32_t rank, std::uint32_t peer, net::Deadline deadline);

}  // namespace rocenante::tcp
