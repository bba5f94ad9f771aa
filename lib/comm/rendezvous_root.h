// SPDX-License-Identifier: Apache-2.0
//
// The root's side of the rendezvous: one poll(2) loop in a thread of its own.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/comm/rendezvous_messages.h"
#include "lib/net/acceptor.h"

namespace rocenante {

class RendezvousRoot {
 public:
  // `wake` becomes readable when the thread shall end.
  RendezvousRoot(net::SocketFd listener, int wake, const UniqueIdContents& id,
                 std::uint64_t init_timeout_ns);

  // Returns when all ranks are connected, or an error has been told, or `wake` is readable.
  void run();

  // Any thread: nobody can succeed here any more, and run() is about to return or only tells late comers.
  bool has_failed() const {
    // Relaxed, as is_over: lone flags; the thread's join orders everything else.
    return has_failed_.load(std::memory_order_relaxed);
  }
  // Any thread: run() has closed all connections and is returning.
  bool is_over() const { return is_over_.load(std::memory_order_relaxed); }

 private:
  enum class Phase {
    kJoining,     // until the last rank has come
    kConnecting,  // all are welcome and connect to rank 0; the root watches for deaths
    kFailed,      // the error is told, also to those that come late
    kOver,
  };
  // Authenticated, has not said who it is.
  struct Arrival {
    net::SocketFd fd;
    net::FrameReader reader{kLongestJoin};
    std::uint32_t rank;
    std::string text;
    std::uint64_t came_ns;
  };
  struct Member {
    net::SocketFd fd;  // empty once closed
    net::FrameReader reader{kLongestJoin};
    JoinMessage join;
    bool is_done = false;
  };

  bool poll_once();
  void read_ready();
  net::Deadline next_deadline() const;
  void check_deadlines();
  void read_arrival(Arrival* arrival);
  void admit(net::SocketFd fd, net::FrameReader reader, JoinMessage join);
  Status conflict_with_others(const JoinMessage& join) const;
  void welcome_all();
  void read_member(Member* member);
  void handle_frame(Member* member, const net::Frame& frame);
  void fail(Status failure);
  void tell_failure(const Member& member);
  void end_if_all_have_gone();
  std::string missing_text() const;

  std::optional<net::Acceptor> acceptor_;  // none once all have come
  int wake_;
  std::uint64_t init_timeout_ns_;
  std::uint64_t first_came_ns_ = 0;
  Phase phase_ = Phase::kJoining;
  net::Deadline deadline_ = net::Deadline::never();  // of the phase
  std::vector<Arrival> arrivals_;
  std::vector<Member> members_;
  std::set<std::uint32_t> ranks_;  // that have come
  Status failure_;
  std::atomic<bool> has_failed_{false};
  std::atomic<bool> is_over_{false};
  std::vector<pollfd> polls_;
};

}  // namespace rocenante
