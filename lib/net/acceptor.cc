// SPDX-License-Identifier: Apache-2.0
#include "lib/net/acceptor.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "lib/base/log.h"

namespace rocenante::net {
namespace {

constexpr std::uint64_t kPauseNs = 100 * kNanosecondsPerMillisecond;
// Strangers must not be able to fill somebody's disk.
constexpr std::uint64_t kLoggedRejections = 16;

// Errors of accept(2) that concern one caller; after any other the next try would fail as well.
bool concerns_one_caller(int error) {
  return is_network_error(error) || error == EPROTO || error == ENOPROTOOPT || error == EOPNOTSUPP ||
         error == EPERM;
}

}  // namespace

Acceptor::Acceptor(SocketFd listener, const SecretKey& key, Identity self, AcceptorLimits limits)
    : listener_(std::move(listener)), key_(key), self_(std::move(self)), limits_(limits) {}

void Acceptor::append_polls(std::vector<pollfd>* polls) const {
  const std::uint64_t now = monotonic_ns();
  const bool may_accept = now >= paused_until_ns_ && (!is_full() || oldest_may_go(now));
  // A negative descriptor is skipped by poll(2) and keeps the places fixed.
  polls->push_back({may_accept ? listener_.get() : -1, POLLIN, 0});
  for (const Caller& caller : callers_) polls->push_back({caller.fd.get(), caller.events, 0});
}

Deadline Acceptor::next_deadline() const {
  const std::uint64_t now = monotonic_ns();
  Deadline next = now < paused_until_ns_ ? Deadline::at_ns(paused_until_ns_) : Deadline::never();
  if (callers_.empty()) return next;
  const bool waits_for_place = is_full() && !oldest_may_go(now);
  const std::uint64_t allowed = waits_for_place ? limits_.least_time_ns : limits_.handshake_time_ns;
  return next.sooner(Deadline::at_ns(callers_.front().came_ns + allowed));
}

void Acceptor::reject(Caller* caller, const std::string& reason) {
  caller->is_over = true;
  last_rejection_ = fmt::format("{}: {}", caller->text, reason);
  if (++rejected_ <= kLoggedRejections) {
    log_info(-1, "connection for '{}' refused: {}{}", self_.purpose, last_rejection_,
             rejected_ == kLoggedRejections ? " (further ones are not logged)" : "");
  }
}

// Everybody who is overdue goes; when no place is left and somebody waits for one, so does the oldest,
// provided that it has had a fair chance.
void Acceptor::make_room(std::uint64_t now, bool somebody_waits) {
  for (Caller& caller : callers_) {
    if (now - caller.came_ns >= limits_.handshake_time_ns) reject(&caller, "the handshake took too long");
  }
  std::erase_if(callers_, [](const Caller& caller) { return caller.is_over; });
  if (!somebody_waits || !is_full() || !oldest_may_go(now)) return;
  reject(&callers_.front(), "all places for unfinished handshakes are taken");
  callers_.erase(callers_.begin());
}

void Acceptor::accept_callers(std::uint64_t now) {
  while (!is_full() && now >= paused_until_ns_) {
    int error = 0;
    Result<SocketFd> accepted = accept_from(listener_.get(), &error);
    if (!accepted.ok()) {
      if (concerns_one_caller(error)) continue;
      if (paused_until_ns_ == 0) {
        log_warn(-1, "connections for '{}' must wait: {}{}", self_.purpose, accepted.status().text(),
                 error == EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
      }
      paused_until_ns_ = now + kPauseNs;
      return;
    }
    if (!accepted.value()) {
      if (error == EAGAIN || error == EWOULDBLOCK) return;
      continue;
    }
    SocketFd fd = accepted.take();
    const Result<SocketAddress> address = peer_address(fd.get());
    Result<Handshake> handshake = Handshake::make(Handshake::Role::kServer, key_, self_);
    if (!handshake.ok()) return;
    callers_.push_back({std::move(fd), handshake.take(),
                        address.ok() ? address.value().text() : "(unknown address)", now, POLLIN});
  }
}

void Acceptor::advance(Caller* caller, std::vector<Connection>* done) {
  const Result<Handshake::Progress> progress = caller->handshake.advance(caller->fd.get(), caller->text);
  if (!progress.ok()) {
    reject(caller, progress.status().text());
  } else if (progress.value() == Handshake::Progress::kDone) {
    done->push_back({std::move(caller->fd), caller->handshake.peer(), caller->text});
    caller->is_over = true;
  } else {
    caller->events = progress.value() == Handshake::Progress::kNeedsInput ? POLLIN : POLLOUT;
  }
}

std::vector<Acceptor::Connection> Acceptor::step(std::span<const pollfd> polls) {
  const std::uint64_t now = monotonic_ns();
  std::vector<Connection> done;
  for (std::size_t i = 1; i < polls.size() && i <= callers_.size(); ++i) {
    if (polls[i].revents != 0) advance(&callers_[i - 1], &done);
  }
  std::erase_if(callers_, [](const Caller& caller) { return caller.is_over; });
  const bool somebody_waits = !polls.empty() && polls[0].revents != 0;
  make_room(now, somebody_waits);
  if (somebody_waits) accept_callers(now);
  return done;
}

}  // namespace rocenante::net
