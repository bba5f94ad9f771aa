// SPDX-License-Identifier: Apache-2.0
//
// One peer's data connection: frames out, frames in, never waiting.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "lib/base/status.h"
#include "lib/net/fork.h"
#include "transports/tcp/frame.h"
#include "transports/transport.h"

namespace rocenante::tcp {

class Connection {
 public:
  // `window`: how far sending may be ahead of receiving within an epoch, in bytes.
  Connection(net::SocketFd fd, std::uint32_t peer, const Inlet& inlet, std::uint64_t window);

  std::uint32_t peer() const { return peer_; }
  int fd() const { return fd_.get(); }

  // Appends to what is to be sent; the payload must stay until it is. InternalError when two rounds are
  // under way already, which the protocol excludes.
  Status queue(const Put& put);
  bool has_output() const { return queued_ != 0; }
  // Sends what the window and the socket take. A connection that is broken takes everything and forgets it:
  // whether anybody needs that peer is for the operation to say.
  void flush();
  // The socket took less than it was given.
  bool is_congested() const { return is_congested_; }

  // Reads what is there, as FrameStream::received; the end of the connection is no error.
  Status receive(std::uint64_t own_epoch);
  // Epoch of the last frame that has come to its end.
  std::uint64_t completed() const { return stream_.completed(); }
  // Nothing more will come; `end()` then says why, naming the peer.
  bool has_ended() const { return has_ended_; }
  const std::string& end() const { return end_; }

  // Nothing more will be sent; the other side sees the end once it has read everything.
  void finish_sending();

  std::uint32_t watched = 0;  // for these events of epoll: bookkeeping of whoever sleeps on the connection

 private:
  // So little is sent in one piece with its header, which the kernel takes quicker than two.
  static constexpr std::uint64_t kTogether = 480;
  struct Outgoing {
    std::array<std::byte, kHeaderBytes + kTogether> front;  // the header, and the payload if it is small
    std::uint64_t front_bytes = 0;
    const std::byte* payload = nullptr;
    std::uint64_t bytes = 0;  // of header and payload
    std::uint64_t epoch = 0;
  };

  // Bytes of header and payload that may have been sent by now.
  std::uint64_t allowed(const Outgoing& out) const;
  // False when the socket took not all, or nothing more can be sent.
  bool send_up_to(const Outgoing& out, std::uint64_t limit);
  void note_end(int error);

  net::SocketFd fd_;
  const std::uint32_t peer_;
  const std::uint64_t window_;
  FrameStream stream_;
  // A round and, at most, the next: a peer that has not all of e holds back its e+1.
  std::array<Outgoing, protocol::kParities> outgoing_;
  std::uint32_t queued_ = 0;
  std::uint32_t first_ = 0;
  std::uint64_t sent_ = 0;  // of the first
  bool is_congested_ = false;
  bool is_broken_ = false;  // nothing can be sent any more
  bool has_ended_ = false;
  std::string end_;
};

}  // namespace rocenante::tcp
