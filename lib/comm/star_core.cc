// SPDX-License-Identifier: Apache-2.0
//
// Entry points: what callers and the monitor ask of a star. star_messages.cc handles what peers say.
#include "lib/comm/star_core.h"

#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "lib/base/log.h"

namespace rocenante {
namespace {

using net::Deadline;

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
// How long connections may take to close, before they are cut.
constexpr std::uint64_t kCloseTimeNs = 2 * net::kNanosecondsPerSecond;
// How long after a process's end its goodbye may still arrive.
constexpr std::uint64_t kLastWordsNs = net::kNanosecondsPerSecond;

std::chrono::steady_clock::time_point time_point(Deadline deadline) {
  // The steady clock is CLOCK_MONOTONIC; half the range keeps clear of overflow in the library.
  const std::uint64_t most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / 2;
  return std::chrono::steady_clock::time_point(
      std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(deadline.ns(), most))));
}

}  // namespace

StarCore::StarCore(std::uint32_t rank, std::uint32_t nranks, std::vector<ControlLink> links,
                   std::uint64_t heartbeat_ns)
    : rank_(rank),
      nranks_(nranks),
      heartbeat_ns_(heartbeat_ns),
      last_heard_(nranks),
      links_(std::move(links)),
      fates_(nranks, Fate::kPresent),
      heard_since_beat_(nranks),
      due_ns_(kNever) {}

Status StarCore::start_events(ControlListener* listener) {
  {
    const std::lock_guard tell_lock(tell_mutex_);
    listener_ = listener;
  }
  Monitor::ClientId client = Monitor::kNoClient;
  {
    const std::lock_guard lock(mutex_);
    if (client_ != Monitor::kNoClient)
      return make_error(Code::kInternalError, "events were started before");
    const std::uint64_t now = net::monotonic_ns();
    for (auto& heard : last_heard_) heard.store(now, std::memory_order_relaxed);
    // At once: the first beat also reads what came in during initialisation.
    next_beat_ns_ = now;
    update_due();
  }
  RCN_ASSIGN(client, Monitor::add(shared_from_this()));
  const std::lock_guard lock(mutex_);
  client_ = client;
  for (std::size_t i = 0; i < links_.size(); ++i) {
    ControlLink& link = links_[i];
    link.reader.set_longest_body(kLongestNotice);
    if (!link.fd) continue;
    const std::uint32_t events = EPOLLIN | (link.awaits_room ? std::uint32_t{EPOLLOUT} : 0);
    RCN_TRY(Monitor::watch(client_, static_cast<std::uint32_t>(i), link.fd.get(), events));
  }
  return {};
}

void StarCore::stop_events() {
  const std::lock_guard lock(tell_mutex_);
  listener_ = nullptr;
}

Status StarCore::watch_process(std::uint32_t rank, Fd pidfd) {
  const std::lock_guard lock(mutex_);
  if (rank >= nranks_ || rank == rank_) {
    return make_error(Code::kInvalidArgument, "rank {}: expected another rank of {}", rank, nranks_);
  }
  // Behind the links' indexes, of which there are fewer than ranks.
  RCN_TRY(Monitor::watch(client_, nranks_ + rank, pidfd.get(), EPOLLIN));
  processes_[rank] = std::move(pidfd);
  return {};
}

void StarCore::broadcast_abort(std::uint64_t word, std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_abort_known_, true)) return;
  send_to_all(control_frame(ControlMessage::kAbort, encode_abort({rank_, word, std::string(text)})), rank_);
}

void StarCore::say_goodbye() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(fates_[rank_], Fate::kLeft) == Fate::kLeft) return;
  send_to_all(control_frame(ControlMessage::kLeft, encode_left(rank_)), rank_);
}

bool StarCore::wait_for_goodbyes(const std::vector<bool>& from, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto all_have_left = [&] {
    for (std::uint32_t rank = 0; rank < std::min<std::size_t>(from.size(), nranks_); ++rank) {
      if (from[rank] && rank != rank_ && fates_[rank] == Fate::kPresent) return false;
    }
    return true;
  };
  changed_.wait_until(lock, time_point(deadline), [&] { return all_have_left() || is_control_lost_; });
  return all_have_left();
}

void StarCore::close_in_order(Deadline deadline) {
  bool has_events = false;
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    close_by_ns_ = is_relaying() ? kNever : net::monotonic_ns() + kCloseTimeNs;
    has_events = client_ != Monitor::kNoClient;
  }
  // Given up during initialisation: the monitor closes the connections all the same. The other end may not
  // be read until its own initialisation fails, so nobody waits for its answer.
  if (!has_events && !start_events(nullptr).ok()) return;
  std::unique_lock lock(mutex_);
  for (ControlLink& link : links_) flush(&link);
  finish_if_closed();
  update_due();
  Monitor::wake();
  changed_.wait_until(lock, time_point(deadline),
                      [&] { return is_finished() || ((is_center() || !has_events) && is_flushed()); });
}

void StarCore::on_ready(std::uint32_t index, std::uint32_t ready) {
  Events events;
  {
    const std::lock_guard lock(mutex_);
    if (index < links_.size()) {
      ControlLink& link = links_[index];
      if ((ready & EPOLLOUT) != 0 && link.fd) flush(&link);
      if ((ready & ~std::uint32_t{EPOLLOUT}) != 0 && link.fd) read_link(&link, &events);
    } else if (const auto process = processes_.find(index - nranks_); process != processes_.end()) {
      Monitor::forget(client_, process->second.get());
      processes_.erase(process);
      ended_[index - nranks_] = net::monotonic_ns() + kLastWordsNs;
    }
    finish_if_closed();
    update_due();
    changed_.notify_all();
  }
  tell(events);
}

void StarCore::on_time(std::uint64_t now_ns) {
  Events events;
  {
    const std::lock_guard lock(mutex_);
    if (next_beat_ns_ <= now_ns) {
      for (ControlLink& link : links_) read_frames(&link, &events);
      beat(now_ns);
      events.push_back({Event::Kind::kBeat});
    }
    check_processes(now_ns, &events);
    if (is_closing_ && close_by_ns_ <= now_ns) {
      for (ControlLink& link : links_) drop_link(&link);
    }
    finish_if_closed();
    update_due();
    changed_.notify_all();
  }
  tell(events);
}

void StarCore::beat(std::uint64_t now_ns) {
  // On multiples of the period, so that the stars of a process share their wake-ups.
  next_beat_ns_ = (now_ns / heartbeat_ns_ + 1) * heartbeat_ns_;
  heard_since_beat_[rank_] = true;
  note_heard(rank_, now_ns);
  const std::string frame =
      control_frame(ControlMessage::kHeartbeat, is_center() ? encode_heard(heard_since_beat_) : "");
  heard_since_beat_.assign(nranks_, false);
  for (ControlLink& link : links_) {
    // A peer that does not read need not be told twice that we live; this also bounds the outbox.
    if (link.outbox.empty()) send_to(&link, frame);
  }
}

void StarCore::check_processes(std::uint64_t now_ns, Events* events) {
  std::vector<std::uint32_t> due;
  for (const auto& [rank, when] : ended_) {
    if (when <= now_ns) due.push_back(rank);
  }
  for (const std::uint32_t rank : due) {
    ended_.erase(rank);
    mark_gone(rank, "its process has ended without a goodbye", events);
  }
}

void StarCore::update_due() {
  std::uint64_t due = is_finished() ? kNever : next_beat_ns_;
  for (const auto& [rank, when] : ended_) due = std::min(due, when);
  if (is_closing_) due = std::min(due, close_by_ns_);
  due_ns_.store(due, std::memory_order_relaxed);
}

bool StarCore::is_flushed() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const ControlLink& link) { return !link.fd || link.outbox.empty(); });
}

void StarCore::finish_if_closed() {
  if (!is_closing_ || is_finished()) return;
  const bool is_open = std::any_of(links_.begin(), links_.end(),
                                   [](const ControlLink& link) { return static_cast<bool>(link.fd); });
  if (is_open) return;
  is_finished_.store(true, std::memory_order_relaxed);
  changed_.notify_all();
}

void StarCore::tell(const Events& events) {
  const std::lock_guard lock(tell_mutex_);
  for (const Event& event : events) {
    if (listener_ == nullptr) return;
    switch (event.kind) {
      case Event::Kind::kGone:
        listener_->on_gone(event.rank, event.text);
        break;
      case Event::Kind::kLeft:
        listener_->on_left(event.rank);
        break;
      case Event::Kind::kAbort:
        listener_->on_abort(event.rank, event.word, event.text);
        break;
      case Event::Kind::kControlLost:
        listener_->on_control_lost(event.text);
        break;
      case Event::Kind::kBeat:
        listener_->on_beat();
        break;
    }
  }
}

}  // namespace rocenante
