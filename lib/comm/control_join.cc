// SPDX-License-Identifier: Apache-2.0
//
// From an id to a connected star: all meet at the rendezvous, then all connect to rank 0.
#include "lib/comm/control_join.h"

#include <poll.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "lib/comm/rendezvous.h"
#include "lib/comm/rendezvous_messages.h"
#include "lib/net/acceptor.h"
#include "lib/net/handshake.h"
#include "lib/net/interfaces.h"

namespace rocenante {
namespace {

using net::Deadline;
using net::kNanosecondsPerSecond;

// Ranks that met at the last moment still get this long to connect.
constexpr std::uint64_t kConnectTimeNs = 10 * kNanosecondsPerSecond;
constexpr std::uint64_t kAttemptTimeNs = 10 * kNanosecondsPerSecond;
constexpr std::uint64_t kPauseNs = 50 * net::kNanosecondsPerMillisecond;

// Both sides of a connection: who and how long.
struct Joining {
  std::uint32_t rank;
  std::uint32_t nranks;
  std::uint64_t user_timeout_ms;
  Deadline deadline;
};

Status check_arguments(std::uint32_t rank, std::uint32_t nranks) {
  if (nranks < 1 || nranks > kMaxRanks) {
    return make_error(Code::kInvalidArgument, "nranks is {}: expected 1 to {}", nranks, kMaxRanks);
  }
  if (rank >= nranks) {
    return make_error(Code::kInvalidArgument, "rank is {}: expected 0 to {} for nranks {}", rank,
                      nranks - 1, nranks);
  }
  return {};
}

std::string who_is(std::uint32_t rank, std::string_view where) {
  return fmt::format("rank {} ({})", rank, where);
}

// Rank 0: accepts all the others.
class Gate {
 public:
  Gate(net::SocketFd listener, const Meeting& meeting, const Joining& joining)
      : joining_(joining),
        acceptor_(std::move(listener), meeting.key(),
                  net::Identity{kControlPurpose, 0, meeting.control().text()},
                  net::AcceptorLimits{.half_open = 4 * std::size_t{joining.nranks} + 64}),
        links_(joining.nranks - 1) {}

  Result<std::vector<ControlLink>> admit_all(Meeting* meeting) {
    std::vector<pollfd> polls;
    while (connected_ < links_.size()) {
      polls.assign(1, {meeting->fd(), POLLIN, 0});
      acceptor_.append_polls(&polls);
      const Deadline next = joining_.deadline.sooner(acceptor_.next_deadline());
      if (::poll(polls.data(), polls.size(), next.poll_ms()) < 0) continue;
      if (polls.front().revents != 0) RCN_TRY(meeting->check());
      for (net::Acceptor::Connection& one : acceptor_.step(std::span(polls).subspan(1))) admit(&one);
      if (connected_ < links_.size() && joining_.deadline.passed()) return missing(*meeting);
    }
    const std::string ready = control_frame(ControlMessage::kReady, {});
    for (const ControlLink& link : links_) {
      // A rank that has just died is found out by the first all_gather.
      (void)net::send_all(link.fd.get(), ready, joining_.deadline, link.who);
    }
    return std::move(links_);
  }

 private:
  void admit(net::Acceptor::Connection* one) {
    const std::uint32_t rank = one->peer.rank;
    if (rank == 0 || rank >= joining_.nranks) return;
    ControlLink& link = links_[rank - 1];
    // A rank whose first attempt was cut comes again; the later connection is the one it uses.
    if (!link.fd) ++connected_;
    net::set_stream_options(one->fd.get(), joining_.user_timeout_ms);
    link.fd = std::move(one->fd);
    link.peer = rank;
    link.who = who_is(rank, one->text);
  }

  Status missing(const Meeting& meeting) const {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t rank = 1; rank < joining_.nranks; ++rank) {
      if (!links_[rank - 1].fd) ranks.push_back(rank);
    }
    return make_error(Code::kTimeout, "{} of {} did not connect to rank 0 at {} in time{}{}",
                      rank_list(ranks), joining_.nranks, meeting.control().text(),
                      acceptor_.rejected() == 0 ? "" : "; last refused: ", acceptor_.last_rejection());
  }

  Joining joining_;
  net::Acceptor acceptor_;
  std::vector<ControlLink> links_;
  std::size_t connected_ = 0;
};

// Connects and authenticates. Tries again when the connection was cut on the way, as it is when strangers
// crowd rank 0's port.
Result<ControlLink> connect_to_center(const net::SocketAddress& address, const net::SecretKey& key,
                                      const Joining& joining) {
  for (;;) {
    const Deadline attempt = joining.deadline.sooner(Deadline::after_ns(kAttemptTimeNs));
    net::SocketFd fd;
    RCN_ASSIGN(fd, net::connect_to(address, attempt));
    net::set_stream_options(fd.get(), joining.user_timeout_ms);
    const Result<net::SocketAddress> own = net::local_address(fd.get());
    const net::Identity self{kControlPurpose, joining.rank, own.ok() ? own.value().text() : ""};
    const Result<net::PeerIdentity> peer = net::handshake_client(fd.get(), key, self, attempt);
    if (peer.ok() && peer.value().rank != 0) {
      return make_error(Code::kInternalError, "{} says that it is rank {}, not 0", address.text(),
                        peer.value().rank);
    }
    if (peer.ok()) {
      ControlLink link;
      link.fd = std::move(fd);
      link.who = who_is(0, address.text());
      return link;
    }
    const bool may_pass =
        peer.status().code() == Code::kRemoteError || peer.status().code() == Code::kTimeout;
    if (!may_pass || joining.deadline.passed()) return peer.status();
    net::sleep_ns(kPauseNs);
  }
}

// Until rank 0 says that all are connected; the rendezvous says when one has died meanwhile.
Status await_ready(ControlLink* link, Meeting* meeting, Deadline deadline) {
  for (;;) {
    std::optional<net::Frame> frame;
    RCN_ASSIGN(frame, link->reader.next(link->who));
    if (frame) {
      if (frame->type == static_cast<std::uint16_t>(ControlMessage::kReady)) return {};
      return make_error(Code::kInternalError, "malformed message of type {} from {}", frame->type,
                        link->who);
    }
    pollfd polls[] = {{link->fd.get(), POLLIN, 0}, {meeting->fd(), POLLIN, 0}};
    const int count = ::poll(polls, 2, deadline.poll_ms());
    if (count < 0 && errno != EINTR) return errno_error("poll on the connection to {}", link->who);
    if (count == 0 && deadline.passed()) {
      return make_error(Code::kTimeout, "not all ranks connected to {} in time", link->who);
    }
    if (count <= 0) continue;
    if (polls[1].revents != 0) RCN_TRY(meeting->check());
    if (polls[0].revents == 0) continue;
    const Result<bool> filled = link->reader.fill(link->fd.get(), link->who);
    if (!filled.ok()) return filled.status();
  }
}

Result<std::vector<ControlLink>> connect_star(net::SocketFd listener, Meeting* meeting,
                                              const Config& config, const Joining& joining) {
  if (joining.rank == 0) return Gate(std::move(listener), *meeting, joining).admit_all(meeting);
  std::vector<ControlLink> links(1);
  const net::SocketAddress center = net::as_seen_from_here(meeting->control(), config);
  RCN_ASSIGN(links.front(), connect_to_center(center, meeting->key(), joining));
  // Rank 0 waits a little longer for the ranks than they for it: it can say who is missing.
  RCN_TRY(await_ready(&links.front(), meeting, joining.deadline.later_by_ns(kNanosecondsPerSecond)));
  return links;
}

// That a connection ended or could not be made is weaker news than what the rendezvous says about the peer.
Status better_reason(Meeting* meeting, Status status) {
  if (status.code() == Code::kTimeout || meeting->fd() < 0) return status;
  if (!net::wait_for(meeting->fd(), POLLIN, Deadline::after_ns(kNanosecondsPerSecond), "").ok())
    return status;
  Status said = meeting->check();
  return said.ok() ? status : said;
}

}  // namespace

Result<net::SocketFd> listen_for_ranks(const UniqueIdContents& id, const Config& config) {
  if (id.is_local_only) return net::listen_at(id.rendezvous.with_port(0));
  net::Interface interface;
  RCN_ASSIGN(interface, net::configured_interface(config));
  return net::listen_at(interface.address);
}

Result<JoinedStar> join_star(const UniqueId& id, std::uint32_t rank, std::uint32_t nranks,
                             const Config& config, Deadline deadline) {
  RCN_TRY(check_arguments(rank, nranks));
  UniqueIdContents contents;
  RCN_ASSIGN(contents, decode_unique_id(id));
  contents.rendezvous = net::as_seen_from_here(contents.rendezvous, config);

  JoinRequest request;
  request.rank = rank;
  request.nranks = nranks;
  request.agreed_settings = config.agreed_text();
  net::SocketFd listener;
  if (rank == 0) {
    // Its links, and the root's connections if that runs here.
    net::make_room_for_descriptors(2 * std::size_t{nranks});
    RCN_ASSIGN(listener, listen_for_ranks(contents, config));
    RCN_ASSIGN(request.control, net::local_address(listener.get()));
  }
  Result<Meeting> meeting = Meeting::join(contents, request, deadline);
  if (!meeting.ok()) return meeting.status();

  const Joining joining{rank, nranks, config.nanoseconds(Key::kSuspectS) / net::kNanosecondsPerMillisecond,
                        Deadline::at_ns(std::max(deadline.ns(), Deadline::after_ns(kConnectTimeNs).ns()))};
  Result<std::vector<ControlLink>> links =
      connect_star(std::move(listener), &meeting.value(), config, joining);
  Status status = links.ok() ? Status() : better_reason(&meeting.value(), links.status());
  meeting.value().report(status);
  if (!status.ok()) return status;
  // A peer is suspect after kSuspectS of silence, so several beats must fit into that.
  const std::uint64_t heartbeat =
      std::min(config.nanoseconds(Key::kHeartbeatS), config.nanoseconds(Key::kSuspectS) / 4);
  return JoinedStar{std::make_shared<StarCore>(rank, nranks, links.take(),
                                               std::max(heartbeat, net::kNanosecondsPerMillisecond)),
                    meeting.value().key()};
}

}  // namespace rocenante
