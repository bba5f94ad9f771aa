// SPDX-License-Identifier: Apache-2.0
//
// What ends a wait other than a signal: dead peers, silence, deadlines, aborts (the failure contract).
#include <sys/eventfd.h>

#include <algorithm>

#include "lib/base/log.h"
#include "lib/comm/call_text.h"
#include "lib/comm/communicator.h"

namespace rocenante {
namespace {

// How long a call waits for another thread to take up the ranks that now seem to be this thread's.
constexpr std::uint64_t kDriverGraceNs = 200'000'000;
// How long one sign that a peer is gone waits for the other.
constexpr std::uint64_t kDoubtNs = 1'000'000'000;
// Looks at a lost peer whose first line has come. One step of the operation lies between two; a line that a
// completion brings needs the transport's turn before that.
constexpr std::uint32_t kLooksAtMissed = 3;
// Between looks at what another thread will change.
constexpr std::uint64_t kNapNs = 1'000'000;

}  // namespace

Status Communicator::async_error() {
  if (streams_ != nullptr) look_at_device();
  return abort_.raised() ? abort_.status() : Status();
}

void Communicator::abort(protocol::AbortCause cause, Status status) {
  const std::string text = status.text();
  if (!abort_.raise(cause, std::move(status))) return;
  log_warn(rank_, "{}", text);
  if (control_ != nullptr) control_->broadcast_abort(abort_.word(), text);
  if (streams_ != nullptr) streams_->mirror_abort(abort_.word());
  wake_own_thread();
}

// A peer that has aborted closes its ends of the transports, and its word, which names the first cause, may
// still be on its way.
void Communicator::fail_transport(Status status, std::uint64_t epoch) {
  const std::uint64_t limit = monotonic_ns() + kFirstCauseNs;
  while (!abort_.raised() && monotonic_ns() < limit) net::sleep_ns(kNapNs);
  abort({protocol::AbortReason::kTransport, protocol::kNoPeer, epoch}, std::move(status));
}

void Communicator::abort_by_user() {
  abort({protocol::AbortReason::kExplicit, rank_, epoch_},
        make_error(Code::kRemoteError, "rank {} aborted the communicator", rank_));
}

void Communicator::wake_own_thread() {
  if (inbox_ == nullptr) return;
  auto* const own =
      reinterpret_cast<protocol::WakeLine*>(inbox_->address() + protocol::Geometry::wake_offset());
  env_.fence();
  protocol::notify_if_sleeping(env_, own);
  if (wake_fd_) (void)::eventfd_write(wake_fd_.get(), 1);
}

std::uint64_t Communicator::first_line(std::uint32_t peer) const {
  const protocol::PeerLink& link = links_[peer];
  return std::max(env_.load_acquire(&link.inbound[0]->epoch), env_.load_acquire(&link.inbound[1]->epoch));
}

// Notices of what a device has received stand in any line.
std::uint64_t Communicator::last_signal(std::uint32_t peer) const {
  const protocol::PeerLink& link = links_[peer];
  std::uint64_t last = first_line(peer);
  for (std::uint32_t line = 1; line < link.rails; ++line) {
    for (const protocol::SignalLine* const signal : link.inbound)
      last = std::max(last, env_.load_acquire(&signal[line].epoch));
  }
  return last;
}

std::string Communicator::describe_wait(std::uint64_t epoch, std::uint32_t peer) const {
  return fmt::format("{}, epoch {}, waiting for rank {} over {} (its last signal was epoch {})",
                     describe_call(current_), epoch, peer, transport_names_[peer], last_signal(peer));
}

// Empty as long as a signal of `peer` may still come. What a mapped peer stored is there when its absence
// is; what a carried one sent may be behind the news, so the end of its connection must be seen as well.
// Either alone counts only after a while: by then the control star has said who was the first to go, and a
// host that has vanished closes nothing.
std::string Communicator::why_lost(std::uint32_t peer) {
  const bool is_absent = absences_[peer].absent.load(std::memory_order_acquire);
  const Transport& transport = *transport_of_[peer];
  if (transport.caps().maps_memory && !is_absent) return {};
  const Status connection = transport.connection(peer);
  if (connection.ok() && !is_absent) return {};
  if (!transport.caps().maps_memory && connection.ok() == is_absent) {
    const std::uint64_t now = monotonic_ns();
    if (first_doubt_ns_[peer] == 0) first_doubt_ns_[peer] = now;
    if (now - first_doubt_ns_[peer] < kDoubtNs) return {};
  }
  return is_absent ? fmt::format("rank {} {}", peer, absences_[peer].text) : connection.text();
}

// Whether a signal of a lost peer is missing. Its first line says so at once. Of a payload that comes over
// several rails each brings a line, and how many there are the operation knows, which waits for one peer
// after the other: it has stepped since its peer was found lost, and what it waits for even then does not
// come.
bool Communicator::misses(std::uint32_t peer, std::uint64_t epoch, std::uint32_t missing) {
  if (first_line(peer) < epoch) return true;
  if (peer != missing) return false;
  if (missed_.peer != peer || missed_.epoch != epoch) missed_ = {epoch, peer, 0};
  return ++missed_.looks >= kLooksAtMissed;
}

void Communicator::look_after(Operation& operation, std::uint64_t waited_ns) {
  if (net::cancelled()) [[unlikely]]
    return abort_by_user();
  const std::uint64_t epoch = operation.epoch();
  const std::uint32_t missing = operation.missing();
  if (missing >= ranks_ || missing == rank_) {
    // All signals are here; what is waited for is that the own puts leave.
    if (waited_ns >= timeout_ns()) {
      abort({protocol::AbortReason::kDeadline, protocol::kNoPeer, epoch},
            make_error(Code::kTimeout, "{}, epoch {}: a peer did not take this rank's data within {:.3f} s",
                       describe_call(current_), epoch, static_cast<double>(timeout_ns()) / 1e9));
    }
    return;
  }
  // Acquire: whatever the peer stored before it ended is visible to the look at its signal that follows, so
  // a rank that signalled and left harms nobody (failure rule 5).
  if (absent_count_.load(std::memory_order_acquire) != 0 || !carriers_.empty()) {
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      if (peer == rank_) continue;
      const std::string why = why_lost(peer);
      if (why.empty() || !misses(peer, epoch, missing)) continue;
      abort({protocol::AbortReason::kPeerGone, peer, epoch},
            make_error(Code::kRemoteError, "{}: needed by {}", why, describe_wait(epoch, peer)));
      return;
    }
  }
  if (waited_ns >= timeout_ns()) {
    abort({protocol::AbortReason::kDeadline, missing, epoch},
          make_error(Code::kTimeout, "rank {} did not come within {:.3f} s: {}", missing,
                     static_cast<double>(timeout_ns()) / 1e9, describe_wait(epoch, missing)));
    return;
  }
  if (waited_ns < suspect_ns_ || !is_silent(missing)) return;
  abort({protocol::AbortReason::kSuspect, missing, epoch},
        make_error(Code::kRemoteError, "{}: {}", describe_silence(missing), describe_wait(epoch, missing)));
}

std::string Communicator::describe_silence(std::uint32_t peer) const {
  const std::string cut_off =
      peer != 0 && has_lost_rank_0()
          ? fmt::format(" (rank 0 {}, and nobody is heard without it)", absences_[0].text)
          : std::string();
  return fmt::format("rank {} has been silent for {:g} s{}", peer, static_cast<double>(suspect_ns_) / 1e9,
                     cut_off);
}

bool Communicator::has_lost_rank_0() const {
  return absences_[0].absent.load(std::memory_order_acquire) && absences_[0].without_goodbye;
}

// Peers are heard by this process's monitor, and through rank 0: after a pause of either their silence says
// nothing. Unless rank 0 has died: then no later call can succeed, and waiting longer for one whom nobody
// will hear again gains nothing. Heartbeats come at least four times within the time of suspicion.
bool Communicator::is_silent(std::uint32_t peer) const {
  const std::uint64_t now = monotonic_ns();
  const auto silent_for = [&](std::uint32_t rank) {
    const std::uint64_t heard = control_->last_heard_ns(rank);
    return now > heard ? now - heard : 0;
  };
  if (silent_for(rank_) >= suspect_ns_ / 2) return false;
  if (peer != 0 && silent_for(0) >= suspect_ns_ / 2 && !has_lost_rank_0()) return false;
  return silent_for(peer) >= suspect_ns_;
}

void Communicator::note_absence(std::uint32_t rank, bool without_goodbye, std::string text) {
  if (rank >= ranks_ || rank == rank_) return;
  Absence& absence = absences_[rank];
  if (absence.absent.load(std::memory_order_relaxed)) return;  // the monitor thread alone writes
  absence.without_goodbye = without_goodbye;
  absence.text = std::move(text);
  // Release: text before flag, flag before count.
  absence.absent.store(true, std::memory_order_release);
  absent_count_.fetch_add(1, std::memory_order_release);
  // What a carried peer has sent may be behind the news.
  if (streams_ != nullptr && links_[rank].outbound[0] != nullptr) {
    tell_device_of_loss(rank, fmt::format("rank {} {}", rank, absence.text));
  }
  wake_own_thread();
}

void Communicator::on_gone(std::uint32_t rank, std::string_view how) {
  log_info(rank_, "rank {} is gone: {}", rank, how);
  note_absence(rank, true, fmt::format("is gone ({})", how));
}

void Communicator::on_left(std::uint32_t rank) {
  note_absence(rank, false, "has left the communicator");
}

void Communicator::on_abort(std::uint32_t from, std::uint64_t word, std::string_view text) {
  protocol::AbortCause cause = protocol::unpack_abort(word);
  const bool mine_to_report = cause.reason == protocol::AbortReason::kMismatch;
  Status status = make_error(mine_to_report ? Code::kInvalidUsage : Code::kRemoteError,
                             "{} (reported by rank {})", text, from);
  if (!abort_.raise(cause, std::move(status))) return;
  log_warn(rank_, "{} (reported by rank {})", text, from);
  if (streams_ != nullptr) streams_->mirror_abort(abort_.word());
  wake_own_thread();
}

void Communicator::on_control_lost(std::string_view how) {
  // Without rank 0 no later call can succeed anyway; what is in progress ends as usual.
  if (absences_[0].absent.load(std::memory_order_relaxed)) {
    log_info(rank_, "the control network has ended ({})", how);
    return;
  }
  log_warn(rank_, "the control network is lost ({}); calls go on, a dead peer will be noticed late", how);
}

Status Communicator::check_driver() {
  const std::uint64_t self = thread_number();
  if (driver_->thread.load(std::memory_order_relaxed) != self) {
    driver_->thread.store(self, std::memory_order_relaxed);
    drivers_checked_ = false;
  }
  if (drivers_checked_) return {};
  // Ranks made by one thread may be handed to others, which first shows when those call: give them a
  // moment.
  const std::uint64_t limit = monotonic_ns() + kDriverGraceNs;
  for (;;) {
    bool ours = false;
    for (const auto& neighbour : neighbours_) {
      ours = ours || neighbour->thread.load(std::memory_order_relaxed) == self;
    }
    if (!ours) break;
    if (monotonic_ns() >= limit) {
      return make_error(
          Code::kInvalidUsage,
          "this thread also holds other ranks of the communicator, which could never answer: put the "
          "calls of all of them between rcnGroupStart and rcnGroupEnd");
    }
    net::sleep_ns(kNapNs);
  }
  drivers_checked_ = true;
  return {};
}

}  // namespace rocenante
