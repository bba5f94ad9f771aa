// SPDX-License-Identifier: Apache-2.0
//
// What a star hears and says. Everything here runs under the core's mutex.
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "lib/comm/star_core.h"

namespace rocenante {
namespace {

// Reads of one link before others get their turn; the rest stays ready.
constexpr int kReadsAtOnce = 16;

}  // namespace

void StarCore::read_link(ControlLink* link, Events* events) {
  for (int i = 0; i < kReadsAtOnce && link->fd; ++i) {
    int error = 0;
    const Result<bool> filled = link->reader.fill(link->fd.get(), link->who, &error);
    // What came before the end counts: a goodbye, say.
    read_frames(link, events);
    if (!filled.ok()) {
      if (link->fd) lose_link(link, error, filled.status().text(), events);
      return;
    }
    if (!filled.value()) return;
  }
}

void StarCore::read_frames(ControlLink* link, Events* events) {
  while (link->fd) {
    const Result<std::optional<net::Frame>> frame = link->reader.next(link->who);
    if (frame.ok() && !frame.value()) return;
    if (frame.ok() && handle_frame(link, *frame.value(), events)) continue;
    const std::string reason = frame.ok()
                                   ? fmt::format("malformed message of type {} and {} bytes from {}",
                                                 frame.value()->type, frame.value()->body.size(), link->who)
                                   : frame.status().text();
    // While leaving, the rest of an exchange that was given up is nothing to speak of.
    if (!is_closing_) log_warn(static_cast<int>(rank_), "control: {}; its connection is closed", reason);
    lose_link(link, 0, reason, events);
  }
}

// Where whoever is heard through `rank` has had no chance to be heard, because that one or this process
// itself made a pause, their silence begins anew.
void StarCore::note_heard(std::uint32_t rank, std::uint64_t now_ns) {
  const bool passes_on = rank == 0 || rank == rank_;
  if (passes_on && now_ns - last_heard_[rank].load(std::memory_order_relaxed) > 2 * heartbeat_ns_) {
    for (auto& heard : last_heard_) heard.store(now_ns, std::memory_order_relaxed);
  }
  // Release: who sees this one sees the others renewed.
  last_heard_[rank].store(now_ns, std::memory_order_release);
}

// False when the frame is malformed.
bool StarCore::handle_frame(ControlLink* link, const net::Frame& frame, Events* events) {
  note_heard(link->peer, net::monotonic_ns());
  heard_since_beat_[link->peer] = true;
  switch (static_cast<ControlMessage>(frame.type)) {
    case ControlMessage::kHeartbeat:
      return handle_heartbeat(*link, frame.body);
    case ControlMessage::kAbort:
      return handle_abort(*link, frame.body, events);
    case ControlMessage::kLeft:
      return handle_left(*link, frame.body, events);
    case ControlMessage::kGone:
      return handle_gone(*link, frame.body, events);
    case ControlMessage::kFailure:
      // A star that was given up during initialisation: the end of the connection says the rest.
      return !is_center();
    case ControlMessage::kReady:
    case ControlMessage::kBlob:
    case ControlMessage::kGathered:
      break;
  }
  return is_closing_;  // leaving in the middle of an exchange
}

bool StarCore::handle_heartbeat(const ControlLink& /*link*/, std::string_view body) {
  if (is_center()) return body.empty();
  const std::optional<std::vector<bool>> heard = decode_heard(body, nranks_);
  if (!heard) return false;
  const std::uint64_t now = net::monotonic_ns();
  for (std::uint32_t rank = 0; rank < nranks_; ++rank) {
    if ((*heard)[rank]) last_heard_[rank].store(now, std::memory_order_relaxed);
  }
  return true;
}

bool StarCore::handle_abort(const ControlLink& link, std::string_view body, Events* events) {
  const std::optional<AbortNotice> notice = decode_abort(body);
  if (!notice || notice->from >= nranks_ || (is_center() && notice->from != link.peer)) return false;
  // Rank 0 passes on the first it knows, so that all are told the same; the others believe it even when
  // they have just given a cause of their own.
  const bool was_known = std::exchange(is_abort_known_, true);
  if (is_center() && was_known) return true;
  if (is_center()) send_to_all(control_frame(ControlMessage::kAbort, body), notice->from);
  events->push_back({Event::Kind::kAbort, notice->from, notice->word, notice->text});
  return true;
}

bool StarCore::handle_left(const ControlLink& link, std::string_view body, Events* events) {
  const std::optional<std::uint32_t> rank = decode_left(body);
  if (!rank || *rank >= nranks_ || *rank == rank_ || (is_center() && *rank != link.peer)) return false;
  mark_left(*rank, events);
  return true;
}

bool StarCore::handle_gone(const ControlLink& link, std::string_view body, Events* events) {
  const std::optional<GoneNotice> notice = decode_gone(body);
  if (!notice || is_center() || notice->rank >= nranks_ || notice->rank == link.peer) return false;
  if (notice->rank != rank_) mark_gone(notice->rank, notice->how, events);
  return true;
}

void StarCore::mark_left(std::uint32_t rank, Events* events) {
  if (fates_[rank] != Fate::kPresent) return;
  fates_[rank] = Fate::kLeft;
  ended_.erase(rank);
  if (is_center()) send_to_all(control_frame(ControlMessage::kLeft, encode_left(rank)), rank);
  events->push_back({Event::Kind::kLeft, rank});
}

void StarCore::mark_gone(std::uint32_t rank, const std::string& how, Events* events) {
  if (fates_[rank] != Fate::kPresent) return;
  fates_[rank] = Fate::kGone;
  ended_.erase(rank);
  if (is_center()) send_to_all(control_frame(ControlMessage::kGone, encode_gone({rank, how})), rank);
  events->push_back({Event::Kind::kGone, rank, 0, how});
}

// `error` is 0 when the peer closed in order or broke the protocol.
void StarCore::lose_link(ControlLink* link, int error, const std::string& reason, Events* events) {
  drop_link(link);
  const bool is_evidence = !net::is_network_error(error);
  if (!is_center()) is_control_lost_ = true;
  if (fates_[link->peer] == Fate::kPresent && is_evidence) {
    mark_gone(link->peer, reason, events);
  } else if (fates_[link->peer] == Fate::kPresent) {
    events->push_back({Event::Kind::kControlLost, link->peer, 0, reason});
  } else if (!is_center() && fates_[link->peer] == Fate::kLeft) {
    events->push_back(
        {Event::Kind::kControlLost, link->peer, 0, "rank 0 has left and its process has ended"});
  }
}

void StarCore::drop_link(ControlLink* link) {
  if (!link->fd) return;
  if (client_ != Monitor::kNoClient) Monitor::forget(client_, link->fd.get());
  link->fd.reset();
  link->outbox.clear();
}

void StarCore::send_to(ControlLink* link, std::string_view frame) {
  if (!link->fd || link->is_write_closed) return;
  link->outbox += frame;
  flush(link);
}

void StarCore::send_to_all(std::string_view frame, std::uint32_t except) {
  for (ControlLink& link : links_) {
    if (link.peer != except) send_to(&link, frame);
  }
}

void StarCore::flush(ControlLink* link) {
  while (link->fd && !link->outbox.empty()) {
    const Result<std::size_t> sent = net::send_some(link->fd.get(), link->outbox, link->who);
    // The reading side learns why, with all that the peer said before.
    if (!sent.ok()) link->outbox.clear();
    if (!sent.ok() || sent.value() == 0) break;
    link->outbox.erase(0, sent.value());
  }
  if (!link->fd) return;
  const bool awaits_room = !link->outbox.empty();
  if (awaits_room != link->awaits_room) {
    link->awaits_room = awaits_room;
    if (client_ != Monitor::kNoClient) {
      const std::uint32_t events = EPOLLIN | (awaits_room ? std::uint32_t{EPOLLOUT} : 0);
      Monitor::change(client_, static_cast<std::uint32_t>(link - links_.data()), link->fd.get(), events);
    }
  }
  if (awaits_room || !is_closing_ || is_relaying() || link->is_write_closed) return;
  // No more from us; the peer's answer is to close, which is read, so that nothing of ours is lost.
  link->is_write_closed = true;
  ::shutdown(link->fd.get(), SHUT_WR);
}

}  // namespace rocenante
