// SPDX-License-Identifier: Apache-2.0
//
// Where the ranks of a communicator first meet. The maker of the id runs the root, a thread that waits for
// all ranks, checks that they agree, and gives each the address of rank 0.
#pragma once

#include <cstdint>
#include <string>

#include "lib/base/status.h"
#include "lib/comm/unique_id.h"
#include "lib/net/crypto.h"
#include "lib/net/deadline.h"
#include "lib/net/socket.h"

namespace rocenante {

// Starts the root's thread in this process. It waits for the first rank for as long as the process lives,
// then `init_timeout_ns` for all others, and ends when all are connected or an error has been told to all.
// SystemError.
Status start_rendezvous(net::SocketFd listener, const UniqueIdContents& id, std::uint64_t init_timeout_ns);

// Ends roots at `address` that have failed and only stay to tell ranks that come late, so that the address
// can be listened on again.
void stop_finished_rendezvous(const net::SocketAddress& address);

// Ends every root at `address`, whatever it waits for.
void stop_rendezvous(const net::SocketAddress& address);

// Ends every root of this process and waits for its thread; ranks that wait there get an error. Called when
// the library is unloaded or the process exits, too.
void stop_all_rendezvous();

// What a rank says of itself.
struct JoinRequest {
  std::uint32_t rank = 0;
  std::uint32_t nranks = 0;
  std::string agreed_settings;  // Config::agreed_text()
  net::SocketAddress control;   // rank 0 only: where it listens for the others
};

// A rank's place at the root, from all having met until all are connected. Not thread-safe.
class Meeting {
 public:
  // Comes to the root, trying again while it cannot be reached, and waits for the others. Errors as
  // ControlStar::join.
  static Result<Meeting> join(const UniqueIdContents& id, const JoinRequest& request,
                              net::Deadline deadline);

  const net::SocketAddress& control() const { return control_; }
  // Of this communicator and no other, not even of one made from the same id later.
  const net::SecretKey& key() const { return key_; }

  // Readable when there is something for check(); -1 once the root has ended.
  int fd() const { return root_.get(); }
  // An error when another rank died or gave up meanwhile.
  Status check();
  // Last word: this rank is connected, or why it cannot be.
  void report(const Status& status);

 private:
  Meeting(net::SocketFd root, std::string root_text)
      : root_(std::move(root)), root_text_(std::move(root_text)), reader_(kLongestReply) {}

  static constexpr std::size_t kLongestReply = 16 * 1024;

  Status await_welcome(const UniqueIdContents& id, net::Deadline deadline);

  net::SocketFd root_;
  std::string root_text_;
  net::FrameReader reader_;
  net::SocketAddress control_;
  net::SecretKey key_;
};

}  // namespace rocenante
