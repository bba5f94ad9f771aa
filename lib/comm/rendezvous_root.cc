// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/rendezvous_root.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "lib/comm/control.h"
#include "lib/net/crypto.h"

namespace rocenante {
namespace {

using net::Deadline;
using net::kNanosecondsPerSecond;

// How long an authenticated connection may take to say who it is.
constexpr std::uint64_t kJoinTimeNs = 10 * kNanosecondsPerSecond;
// How long a failed root stays to tell ranks that come late.
constexpr std::uint64_t kFailedTimeNs = 5 * kNanosecondsPerSecond;
// A reply is far smaller than an empty socket buffer, so this only bounds the absurd.
constexpr std::uint64_t kReplyTimeNs = kNanosecondsPerSecond;

void send_reply(int fd, RootMessage type, std::string_view body) {
  const std::string frame = net::encode_frame(static_cast<std::uint16_t>(type), body);
  // Whoever is gone is noticed when its connection is read.
  (void)net::send_all(fd, frame, Deadline::after_ns(kReplyTimeNs), "rank");
}

}  // namespace

RendezvousRoot::RendezvousRoot(net::SocketFd listener, int wake, const UniqueIdContents& id,
                               std::uint64_t init_timeout_ns)
    : wake_(wake), init_timeout_ns_(init_timeout_ns) {
  acceptor_.emplace(std::move(listener), id.secret,
                    net::Identity{kJoinPurpose, net::kNoRank, id.rendezvous.text()});
}

void RendezvousRoot::run() {
  while (phase_ != Phase::kOver && poll_once()) {
    check_deadlines();
    if (phase_ == Phase::kFailed) end_if_all_have_gone();
  }
  acceptor_.reset();
  arrivals_.clear();
  members_.clear();
  is_over_.store(true, std::memory_order_relaxed);
}

Deadline RendezvousRoot::next_deadline() const {
  Deadline next = deadline_;
  if (acceptor_) next = next.sooner(acceptor_->next_deadline());
  if (!arrivals_.empty()) next = next.sooner(Deadline::at_ns(arrivals_.front().came_ns + kJoinTimeNs));
  return next;
}

// False when the thread shall end. The order in polls_: wake, arrivals, members, acceptor.
bool RendezvousRoot::poll_once() {
  polls_.clear();
  polls_.push_back({wake_, POLLIN, 0});
  for (const Arrival& arrival : arrivals_) polls_.push_back({arrival.fd.get(), POLLIN, 0});
  for (const Member& member : members_) polls_.push_back({member.fd.get(), POLLIN, 0});
  if (acceptor_) acceptor_->append_polls(&polls_);
  // A failure leaves nothing to read: every signal is blocked, but a tracer interrupts all the same.
  if (::poll(polls_.data(), polls_.size(), next_deadline().poll_ms()) < 0) return true;
  if (polls_.front().revents != 0) return false;
  read_ready();
  return true;
}

void RendezvousRoot::read_ready() {
  // Both grow meanwhile; what is new was not polled.
  const std::size_t arrivals = arrivals_.size();
  const std::size_t members = members_.size();
  for (std::size_t i = 0; i < members; ++i) {
    if (polls_[1 + arrivals + i].revents != 0 && members_[i].fd) read_member(&members_[i]);
  }
  for (std::size_t i = 0; i < arrivals; ++i) {
    if (polls_[1 + i].revents != 0) read_arrival(&arrivals_[i]);
  }
  std::erase_if(arrivals_, [](const Arrival& arrival) { return !arrival.fd; });
  if (!acceptor_) return;
  const auto polled = std::span(polls_).subspan(1 + arrivals + members);
  for (net::Acceptor::Connection& one : acceptor_->step(polled)) {
    net::set_stream_options(one.fd.get(), init_timeout_ns_ / net::kNanosecondsPerMillisecond);
    arrivals_.push_back({.fd = std::move(one.fd),
                         .rank = one.peer.rank,
                         .text = std::move(one.text),
                         .came_ns = net::monotonic_ns()});
    read_arrival(&arrivals_.back());
    if (!arrivals_.back().fd) arrivals_.pop_back();
  }
  if (phase_ == Phase::kConnecting) {
    acceptor_.reset();
    arrivals_.clear();
  }
}

void RendezvousRoot::check_deadlines() {
  const std::uint64_t now = net::monotonic_ns();
  std::erase_if(arrivals_, [&](const Arrival& arrival) { return now - arrival.came_ns >= kJoinTimeNs; });
  if (!deadline_.passed()) return;
  if (phase_ == Phase::kJoining) {
    fail(make_error(Code::kTimeout, "{} did not come within {:.3f} s", missing_text(),
                    static_cast<double>(net::monotonic_ns() - first_came_ns_) / 1e9));
  } else {
    phase_ = Phase::kOver;
  }
}

std::string RendezvousRoot::missing_text() const {
  const std::uint32_t nranks = members_.front().join.nranks;
  std::vector<std::uint32_t> missing;
  for (std::uint32_t rank = 0; rank < nranks; ++rank) {
    if (!ranks_.contains(rank)) missing.push_back(rank);
  }
  return fmt::format("{} of {}", rank_list(missing), nranks);
}

void RendezvousRoot::read_arrival(Arrival* arrival) {
  const auto drop = [&](std::string_view reason) {
    log_info(-1, "rendezvous: connection of {} as rank {} dropped: {}", arrival->text, arrival->rank,
             reason);
    arrival->fd.reset();
  };
  const Result<bool> filled = arrival->reader.fill(arrival->fd.get(), arrival->text);
  if (!filled.ok()) return drop(filled.status().text());
  const Result<std::optional<net::Frame>> frame = arrival->reader.next(arrival->text);
  if (!frame.ok()) return drop(frame.status().text());
  if (!frame.value()) return;
  std::optional<JoinMessage> join;
  if (frame.value()->type == static_cast<std::uint16_t>(RootMessage::kJoin)) {
    join = decode_join(frame.value()->body);
  }
  const bool is_sound =
      join && join->rank == arrival->rank && join->nranks <= kMaxRanks && join->rank < join->nranks;
  if (!is_sound) return drop("it sent no sound join message");
  admit(std::move(arrival->fd), std::move(arrival->reader), *std::move(join));
}

Status RendezvousRoot::conflict_with_others(const JoinMessage& join) const {
  const auto same = std::find_if(members_.begin(), members_.end(),
                                 [&](const Member& member) { return member.join.rank == join.rank; });
  if (same != members_.end()) {
    return make_error(Code::kInvalidUsage, "rank {} came twice: {}:{} and {}:{}", join.rank,
                      same->join.host, same->join.pid, join.host, join.pid);
  }
  if (members_.empty()) return {};
  // In the order of ranks, not of arrival: the same words whoever was quicker.
  const JoinMessage& earlier = members_.front().join;
  const JoinMessage& a = earlier.rank < join.rank ? earlier : join;
  const JoinMessage& b = earlier.rank < join.rank ? join : earlier;
  if (a.version != b.version) {
    return make_error(Code::kInvalidUsage, "ranks run different versions: {} has {}, {} has {}", a.who(),
                      a.version, b.who(), b.version);
  }
  if (a.nranks != b.nranks) {
    return make_error(Code::kInvalidUsage, "nranks differs: {} has {}, {} has {}", a.who(), a.nranks,
                      b.who(), b.nranks);
  }
  const auto difference = first_difference(a.agreed_settings, b.agreed_settings);
  if (!difference) return {};
  return make_error(Code::kInvalidUsage, "{} must be the same on all ranks: {} has {}, {} has {}",
                    difference->name, a.who(), difference->first, b.who(), difference->second);
}

void RendezvousRoot::admit(net::SocketFd fd, net::FrameReader reader, JoinMessage join) {
  if (phase_ == Phase::kConnecting || phase_ == Phase::kOver) {
    const Status late =
        make_error(Code::kInvalidUsage, "{} comes to a communicator that all {} ranks have joined",
                   join.who(), members_.size());
    log_info(-1, "rendezvous: {}", late.text());
    return send_reply(fd.get(), RootMessage::kFailure, encode_status(late));
  }
  const Status conflict = phase_ == Phase::kJoining ? conflict_with_others(join) : Status();
  if (members_.empty()) {
    first_came_ns_ = net::monotonic_ns();
    deadline_ = Deadline::after_ns(init_timeout_ns_);
    net::make_room_for_descriptors(std::size_t{join.nranks} * 2);
    acceptor_->set_half_open_limit(4 * std::size_t{join.nranks} + 64);
  }
  // Whoever gives up first shall be told who was missing.
  if (phase_ == Phase::kJoining) deadline_ = deadline_.sooner(Deadline::after_ns(join.patience_ns));
  ranks_.insert(join.rank);
  members_.push_back({.fd = std::move(fd), .reader = std::move(reader), .join = std::move(join)});
  if (phase_ == Phase::kFailed) {
    tell_failure(members_.back());
  } else if (!conflict.ok()) {
    fail(conflict);
  } else if (ranks_.size() == members_.front().join.nranks) {
    welcome_all();
  }
}

void RendezvousRoot::welcome_all() {
  const auto zero = std::find_if(members_.begin(), members_.end(),
                                 [](const Member& member) { return member.join.rank == 0; });
  Welcome welcome{zero->join.control, {}};
  if (welcome.control.port() == 0) {
    return fail(make_error(Code::kInternalError, "{} sent no address to connect to", zero->join.who()));
  }
  net::random_bytes(welcome.nonce);
  const std::string body = encode_welcome(welcome);
  phase_ = Phase::kConnecting;
  deadline_ = Deadline::after_ns(init_timeout_ns_);
  for (const Member& member : members_) send_reply(member.fd.get(), RootMessage::kWelcome, body);
}

void RendezvousRoot::handle_frame(Member* member, const net::Frame& frame) {
  if (phase_ == Phase::kFailed) return;
  if (phase_ == Phase::kConnecting && frame.type == static_cast<std::uint16_t>(RootMessage::kDone)) {
    member->is_done = true;
    const bool all =
        std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.is_done; });
    if (all) phase_ = Phase::kOver;
    return;
  }
  std::optional<Status> reason;
  if (frame.type == static_cast<std::uint16_t>(RootMessage::kFailure)) reason = decode_status(frame.body);
  member->fd.reset();
  fail(make_error(Code::kRemoteError, "{} gave up: {}", member->join.who(),
                  reason ? reason->text() : "it sent a malformed message"));
}

void RendezvousRoot::read_member(Member* member) {
  const Result<bool> filled = member->reader.fill(member->fd.get(), member->join.who());
  for (;;) {
    Result<std::optional<net::Frame>> frame = member->reader.next(member->join.who());
    if (!frame.ok()) {
      handle_frame(member, {});
      return;
    }
    if (!frame.value()) break;
    handle_frame(member, *frame.value());
    if (!member->fd) return;
  }
  if (filled.ok()) return;
  member->fd.reset();
  if (phase_ == Phase::kFailed || phase_ == Phase::kOver || member->is_done) return;
  fail(make_error(Code::kRemoteError, "{} went away while the ranks were meeting: {}", member->join.who(),
                  filled.status().text()));
}

void RendezvousRoot::tell_failure(const Member& member) {
  if (!member.fd) return;
  send_reply(member.fd.get(), RootMessage::kFailure, encode_status(failure_));
  ::shutdown(member.fd.get(), SHUT_WR);
}

void RendezvousRoot::fail(Status failure) {
  failure_ = std::move(failure);
  has_failed_.store(true, std::memory_order_relaxed);
  phase_ = Phase::kFailed;
  deadline_ = Deadline::after_ns(kFailedTimeNs);
  log_info(-1, "rendezvous failed: {}", failure_.text());
  for (const Member& member : members_) tell_failure(member);
}

void RendezvousRoot::end_if_all_have_gone() {
  const bool is_open = std::any_of(members_.begin(), members_.end(),
                                   [](const Member& member) { return static_cast<bool>(member.fd); });
  std::uint32_t expected = 0;
  for (const Member& member : members_) expected = std::max(expected, member.join.nranks);
  if (!is_open && (ranks_.size() >= expected || !acceptor_)) phase_ = Phase::kOver;
}

}  // namespace rocenante
