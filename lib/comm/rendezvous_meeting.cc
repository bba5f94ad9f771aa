// SPDX-License-Identifier: Apache-2.0
//
// The ranks' side of the rendezvous.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "lib/comm/rendezvous_messages.h"
#include "lib/net/handshake.h"

namespace rocenante {
namespace {

using net::Deadline;
using net::kNanosecondsPerMillisecond;
using net::kNanosecondsPerSecond;

// How much longer a rank waits for the root's word, which names who is missing, than for anything else.
constexpr std::uint64_t kGraceNs = 3 * kNanosecondsPerSecond;
constexpr std::uint64_t kConnectTimeNs = 5 * kNanosecondsPerSecond;
constexpr std::uint64_t kHandshakeTimeNs = 10 * kNanosecondsPerSecond;
constexpr std::uint64_t kReportTimeNs = kNanosecondsPerSecond;
constexpr std::uint64_t kFirstPauseNs = 10 * kNanosecondsPerMillisecond;
constexpr std::uint64_t kLongestPauseNs = 500 * kNanosecondsPerMillisecond;
constexpr std::size_t kLongestHostName = 128;

std::string host_name() {
  std::array<char, kLongestHostName> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown-host";
}

struct Attempt {
  net::SocketFd fd;  // authenticated, or
  Status reason;     // why not
  bool is_final = false;
};

Attempt try_root(const UniqueIdContents& id, std::uint32_t rank, Deadline deadline) {
  const std::string where = id.rendezvous.text();
  int error = 0;
  Result<net::SocketFd> fd =
      net::connect_to(id.rendezvous, deadline.sooner(Deadline::after_ns(kConnectTimeNs)), &error);
  if (!fd.ok() && error == ECONNREFUSED && id.is_listening) {
    return {{},
            make_error(Code::kInvalidUsage,
                       "the rendezvous of this id at {} has ended: the id was used before, its "
                       "initialisation has failed, or the process that made it has ended",
                       where),
            true};
  }
  if (!fd.ok()) return {{}, fd.status(), false};
  net::set_stream_options(fd.value().get(), kConnectTimeNs / kNanosecondsPerMillisecond);
  const Result<net::SocketAddress> own = net::local_address(fd.value().get());
  const net::Identity self{kJoinPurpose, rank, own.ok() ? own.value().text() : ""};
  const Result<net::PeerIdentity> root = net::handshake_client(
      fd.value().get(), id.secret, self, deadline.sooner(Deadline::after_ns(kHandshakeTimeNs)));
  if (root.ok()) return {fd.take(), {}, true};
  // Closed or silent: the root may be crowded by strangers, or about to start where another ends.
  const Code code = root.status().code();
  const bool may_pass = code == Code::kRemoteError || code == Code::kTimeout || code == Code::kSystemError;
  return {{}, make_error(code, "rendezvous at {}: {}", where, root.status().text()), !may_pass};
}

Result<net::SocketFd> reach_root(const UniqueIdContents& id, std::uint32_t rank, Deadline deadline) {
  const std::uint64_t start = net::monotonic_ns();
  std::uint64_t pause = kFirstPauseNs;
  for (;;) {
    Attempt attempt = try_root(id, rank, deadline);
    if (attempt.fd) return std::move(attempt.fd);
    if (attempt.is_final) return attempt.reason;
    if (deadline.remaining_ns() <= pause) {
      return make_error(Code::kTimeout, "rank {} could not reach the rendezvous at {} within {:.3f} s: {}",
                        rank, id.rendezvous.text(), static_cast<double>(net::monotonic_ns() - start) / 1e9,
                        attempt.reason.text());
    }
    net::sleep_ns(pause);
    pause = std::min(kLongestPauseNs, 2 * pause);
  }
}

net::SecretKey session_key(const UniqueIdContents& id, const Welcome& welcome) {
  net::WireWriter number;
  number.integer(id.number);
  return net::derive_key(
      id.secret, {net::bytes_of("rocenante.communicator"), net::bytes_of(number.bytes()), welcome.nonce});
}

}  // namespace

Result<Meeting> Meeting::join(const UniqueIdContents& id, const JoinRequest& request, Deadline deadline) {
  net::SocketFd root;
  RCN_ASSIGN(root, reach_root(id, request.rank, deadline));
  Meeting meeting(std::move(root), fmt::format("the rendezvous at {}", id.rendezvous.text()));
  JoinMessage message;
  message.version = build_version();
  message.rank = request.rank;
  message.nranks = request.nranks;
  message.agreed_settings = request.agreed_settings;
  message.host = host_name();
  message.pid = static_cast<std::uint32_t>(::getpid());
  message.control = request.control;
  message.patience_ns = deadline.remaining_ns();
  const std::string frame =
      net::encode_frame(static_cast<std::uint16_t>(RootMessage::kJoin), encode_join(message));
  const Deadline last = deadline.later_by_ns(kGraceNs);
  // Where the root failed meanwhile, sending may fail while its reason waits to be read.
  const Status sent = net::send_all(meeting.fd(), frame, last, meeting.root_text_);
  if (!sent.ok() && sent.code() != Code::kRemoteError) return sent;
  RCN_TRY(meeting.await_welcome(id, last));
  return meeting;
}

Status Meeting::await_welcome(const UniqueIdContents& id, Deadline deadline) {
  net::Frame frame;
  const Result<net::Frame> received = net::receive_frame(fd(), &reader_, deadline, root_text_);
  if (!received.ok()) {
    const Code code = received.status().code();
    return make_error(code, "{}; the ranks have not all met", received.status().text());
  }
  frame = received.value();
  if (frame.type == static_cast<std::uint16_t>(RootMessage::kWelcome)) {
    if (const std::optional<Welcome> welcome = decode_welcome(frame.body)) {
      control_ = welcome->control;
      key_ = session_key(id, *welcome);
      return {};
    }
  } else if (frame.type == static_cast<std::uint16_t>(RootMessage::kFailure)) {
    if (const std::optional<Status> failure = decode_status(frame.body)) return *failure;
  }
  return make_error(Code::kInternalError, "{} sent a malformed message (type {})", root_text_, frame.type);
}

Status Meeting::check() {
  if (!root_) return {};
  const Result<bool> filled = reader_.fill(fd(), root_text_);
  const Result<std::optional<net::Frame>> frame = reader_.next(root_text_);
  if (frame.ok() && frame.value() &&
      frame.value()->type == static_cast<std::uint16_t>(RootMessage::kFailure)) {
    if (std::optional<Status> failure = decode_status(frame.value()->body)) return *std::move(failure);
  }
  // The root's end alone harms nobody: all have met.
  if (!filled.ok()) root_.reset();
  return {};
}

void Meeting::report(const Status& status) {
  if (!root_) return;
  const RootMessage type = status.ok() ? RootMessage::kDone : RootMessage::kFailure;
  const std::string body = status.ok() ? std::string() : encode_status(status);
  (void)net::send_all(fd(), net::encode_frame(static_cast<std::uint16_t>(type), body),
                      Deadline::after_ns(kReportTimeNs), root_text_);
  root_.reset();
}

}  // namespace rocenante
