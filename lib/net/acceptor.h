// SPDX-License-Identifier: Apache-2.0
//
// A listener that authenticates all its callers at once: one that says nothing, little or nonsense delays
// nobody, costs one of a bounded number of places, and is dropped when its time is up.
#pragma once

#include <poll.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lib/base/status.h"
#include "lib/net/handshake.h"
#include "lib/net/socket.h"

namespace rocenante::net {

struct AcceptorLimits {
  std::size_t half_open = 256;  // connections whose handshake is not done
  // Each handshake's time. When all places are taken, the oldest one loses its place after `least_time_ns`.
  std::uint64_t handshake_time_ns = 10 * kNanosecondsPerSecond;
  std::uint64_t least_time_ns = kNanosecondsPerSecond;
};

// Driven by its owner's poll(2) loop. Not thread-safe.
class Acceptor {
 public:
  struct Connection {
    SocketFd fd;
    PeerIdentity peer;
    std::string text;  // the peer's address as the kernel says, for messages
  };

  // `self.purpose` must outlive the acceptor (a literal).
  Acceptor(SocketFd listener, const SecretKey& key, Identity self, AcceptorLimits limits = {});

  // For communicators whose size becomes known later.
  void set_half_open_limit(std::size_t limit) { limits_.half_open = limit; }
  std::size_t half_open() const { return callers_.size(); }
  std::uint64_t rejected() const { return rejected_; }
  const std::string& last_rejection() const { return last_rejection_; }

  // Adds what to wait for; step() then gets the same elements back, with what poll(2) said.
  void append_polls(std::vector<pollfd>* polls) const;
  // When step() must be called even if nothing is ready.
  Deadline next_deadline() const;
  // Accepts, advances every handshake, drops the overdue; never waits. Returns those that are done.
  std::vector<Connection> step(std::span<const pollfd> polls);

 private:
  struct Caller {
    SocketFd fd;
    Handshake handshake;
    std::string text;
    std::uint64_t came_ns;
    short events;
    bool is_over = false;
  };

  bool is_full() const { return callers_.size() >= limits_.half_open; }
  bool oldest_may_go(std::uint64_t now) const {
    return !callers_.empty() && now - callers_.front().came_ns >= limits_.least_time_ns;
  }
  void make_room(std::uint64_t now, bool somebody_waits);
  void accept_callers(std::uint64_t now);
  void advance(Caller* caller, std::vector<Connection>* done);
  void reject(Caller* caller, const std::string& reason);

  SocketFd listener_;
  SecretKey key_;
  Identity self_;
  AcceptorLimits limits_;
  std::vector<Caller> callers_;        // in the order they came
  std::uint64_t paused_until_ns_ = 0;  // out of descriptors or memory
  std::uint64_t rejected_ = 0;
  std::string last_rejection_;
};

}  // namespace rocenante::net
