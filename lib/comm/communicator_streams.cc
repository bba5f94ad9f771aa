// SPDX-License-Identifier: Apache-2.0
//
// A communicator on a device with streams: setting up, what the device reports, and the end.
#include <algorithm>

#include "lib/comm/call_text.h"
#include "lib/comm/communicator.h"
#include "lib/comm/doorbell_puts.h"
#include "lib/comm/progress.h"
#include "lib/net/deadline.h"

namespace rocenante {
namespace {

// How long a communicator that has failed waits for its calls, which end by themselves when their streams
// come to them.
constexpr std::uint64_t kAbortedCallsNs = 5'000'000'000;
// Between looks at whether calls have ended.
constexpr std::uint64_t kNapNs = 100'000;

}  // namespace

// What the device's progress thread does for this communicator.
class Communicator::StreamProgress final : public ProgressWork {
 public:
  StreamProgress(Communicator& comm, ProgressSettings settings, DoorbellPuts::Setup setup)
      : comm_(comm), settings_(std::move(settings)), puts_(std::move(setup)) {}

  Status start(const Device* device) {
    RCN_ASSIGN(place_, Progress::add(device, this, settings_));
    return {};
  }
  void wake() const { place_.wake(); }
  bool drained() const { return puts_.drained(); }
  void stop() { place_.leave(); }

  bool look() override {
    const bool any = puts_.look();
    if (++looks_ % kLooksPerPeers == 0) comm_.look_at_peers();
    comm_.look_at_device();
    return any;
  }
  void on_exception(Status status) noexcept override { puts_.on_exception(std::move(status)); }

 private:
  static constexpr std::uint32_t kLooksPerPeers = 256;

  Communicator& comm_;
  const ProgressSettings settings_;
  DoorbellPuts puts_;
  std::uint32_t looks_ = 0;
  ProgressPlace place_;
};

Status Communicator::set_up_streams() {
  StreamSetup setup{device_.value(),   &lane_,     geometry_, inbox_, outbox_, {}, {}, timeout_ns_,
                    first_timeout_ns_, suspect_ns_};
  setup.mapped.resize(ranks_);
  setup.device_inboxes.resize(ranks_);
  std::vector<Transport*> carriers(ranks_);
  for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    if (transport_of_[peer]->caps().maps_memory) {
      setup.mapped[peer] = transport_of_[peer]->mapped_regions(peer);
    } else {
      carriers[peer] = transport_of_[peer];
      setup.device_inboxes[peer] = transport_of_[peer]->device_inbox();
    }
  }
  losses_.resize(ranks_);
  RCN_ASSIGN(streams_, StreamCalls::create(setup));
  if (lane_.all_mapped) return {};
  RCN_ASSIGN(ProgressSettings settings,
             ProgressSettings::from(config_, identities_[rank_].ports, ranks_on_host(rank_, identities_),
                                    processors_on_host(rank_, identities_)));
  progress_ = std::make_shared<StreamProgress>(
      *this, std::move(settings),
      DoorbellPuts::Setup{
          streams_->ring(), &lane_, geometry_.slot_bytes, std::move(carriers), 1, abort_.address(),
          kFirstCauseNs,
          [this](protocol::AbortCause cause, Status status) { abort(cause, std::move(status)); }});
  return {};
}

Status Communicator::start_progress() {
  return progress_->start(device_.value().get());
}

// After the launch, which the thread would else wait for in vain; in a capture too, which costs nothing.
void Communicator::wake_progress() const {
  if (progress_ != nullptr) progress_->wake();
}

Status Communicator::check_on_device(const CollectiveCall& call) const {
  if (streams_ == nullptr) return {};
  if (call.collective != Collective::kAllReduce) {
    return make_error(Code::kInvalidUsage, "{} is not there yet on the device {}: only all_reduce is",
                      collective_name(call.collective), device_.value()->name());
  }
  const std::uint64_t bytes = call.count * reduce::element_size(call.type);
  if (bytes == 0) return {};
  RCN_TRY(streams_->device().check_buffer("sendbuff", call.input, bytes));
  return streams_->device().check_buffer("recvbuff", call.output, bytes);
}

void Communicator::look_at_device() {
  if (abort_.raised()) return;
  if (const std::optional<DeviceFailure> failure = streams_->failure(); failure.has_value()) {
    abort(failure->cause, describe_failure(*failure));
  }
}

void Communicator::tell_device_of_loss(std::uint32_t peer, std::string how) {
  losses_[peer] = std::move(how);
  streams_->note_peer(peer, protocol::kGone);  // releases the text
}

// There is nothing to tell while everything has come that the last round that was put expects of a peer:
// the launch has all it waits for, or will have. For what the host has seen may still be on its way to a
// device's own memory, and a launch that was told would take it for missing. When it waits for the next
// round it has rung for that, which this thread then puts, and so expects.
void Communicator::look_at_peers() {
  for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_ || links_[peer].outbound[0] != nullptr || !losses_[peer].empty()) continue;
    if (!transport_of_[peer]->expects(peer)) continue;
    if (std::string how = why_lost(peer); !how.empty()) tell_device_of_loss(peer, std::move(how));
  }
}

// A device with streams has no thread that waits for its calls and so would notice.
void Communicator::on_beat() {
  if (streams_ == nullptr) return;
  look_at_device();
  for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
    if (peer != rank_) streams_->note_peer(peer, is_silent(peer) ? protocol::kSilent : protocol::kPresent);
  }
}

// A peer that did come, and whose writes have reached host memory but not the device's.
std::string Communicator::why_unseen(const protocol::FailureRecord& record, std::uint32_t peer) const {
  const bool has_come = record.seen < record.epoch && last_signal(peer) >= record.epoch;
  if (!has_come || transport_of_[peer]->device_inbox() == nullptr) return {};
  return "; what it wrote has reached host memory and not the device's own: the bus between adapter and "
         "GPU "
         "may lose such writes, which ROCENANTE_RECEIVE_MEMORY=host does without";
}

// Of what it waited for, the launch knows more than the host: its signal at that time, beside which stands
// the signal of now, which tells a lost peer from a late one.
Status Communicator::describe_failure(const DeviceFailure& failure) const {
  const protocol::FailureRecord& record = failure.record;
  const auto peer = static_cast<std::uint32_t>(std::min<std::uint64_t>(record.peer, ranks_));
  const std::string call = describe_tag(record.expected);
  if (peer == ranks_ || peer == rank_) {
    return make_error(Code::kInternalError, "{}, epoch {}: the device {} gave up for reason {}", call,
                      record.epoch, device_.value()->name(), static_cast<int>(failure.cause.reason));
  }
  const std::string wait = fmt::format(
      "{}, epoch {} on the device {}, waiting for rank {} over {} (its signal was epoch {} then and is {} "
      "now)",
      call, record.epoch, device_.value()->name(), peer, transport_names_[peer], record.seen,
      last_signal(peer));
  switch (failure.cause.reason) {
    case protocol::AbortReason::kMismatch:
      return make_error(Code::kInvalidUsage, "{}, epoch {}: rank {} called {} where rank {} called {}",
                        collective_name(Collective::kAllReduce), record.epoch, peer,
                        describe_tag(record.tag), rank_, call);
    case protocol::AbortReason::kPeerGone:
      // The launch has acquired the news and the host has acquired the launch's word: the text is there.
      return make_error(Code::kRemoteError, "{}: needed by {}", losses_[peer], wait);
    case protocol::AbortReason::kSuspect:
      return make_error(Code::kRemoteError, "{}: {}", describe_silence(peer), wait);
    default:
      return make_error(Code::kTimeout, "rank {} did not come within {:.3f} s: {}{}", peer,
                        static_cast<double>(record.epoch == 1 ? first_timeout_ns_ : timeout_ns_) / 1e9,
                        wait, why_unseen(record, peer));
  }
}

// A nap in a wait that began at `start_ns`; false when that has been long enough. Calls that are freed by
// an abort need a moment, whenever it comes: `*aborted_ns` is when it was noticed, at first 0.
bool Communicator::may_wait_on(std::uint64_t start_ns, std::uint64_t* aborted_ns) {
  if (net::cancelled()) abort_by_user();
  look_at_device();
  const std::uint64_t now = monotonic_ns();
  if (abort_.raised() && *aborted_ns == 0) *aborted_ns = now;
  const bool too_long = *aborted_ns != 0
                            ? now - *aborted_ns >= kAbortedCallsNs
                            : now - start_ns >= std::max(timeout_ns_, first_timeout_ns_) + kAbortedCallsNs;
  if (too_long) return false;
  net::sleep_ns(kNapNs);
  return true;
}

// Calls that were enqueued end as they would have without this: each by itself, at the latest by its
// deadline.
void Communicator::wait_for_streams(std::uint64_t start_ns, std::uint64_t* aborted_ns) {
  for (;;) {
    const Result<bool> idle = streams_->is_idle();
    // A device that cannot say is lost, with all that was enqueued on it.
    if (!idle.ok()) abort({protocol::AbortReason::kDevice, rank_, 0}, idle.status());
    if (!idle.ok() || idle.value() || !may_wait_on(start_ns, aborted_ns)) break;
  }
}

Status Communicator::flush() {
  if (streams_ != nullptr) {
    std::uint64_t aborted_ns = 0;
    wait_for_streams(monotonic_ns(), &aborted_ns);
  }
  return async_error();
}

// Calls that were enqueued end first. From then on replays of graphs find the communicator closed. What a
// stream has still not come to is parked with its memory. Whether the communicator has failed.
bool Communicator::end_streams() {
  const std::uint64_t start = monotonic_ns();
  std::uint64_t aborted_ns = 0;
  wait_for_streams(start, &aborted_ns);
  // The puts of the last rounds may still be under way; after an abort nobody waits for them.
  if (progress_ != nullptr) {
    while (!abort_.raised() && !progress_->drained() && may_wait_on(start, &aborted_ns)) {
    }
    progress_->stop();
  }
  look_at_device();
  const bool has_failed =
      !abort_.raise({protocol::AbortReason::kClosed, rank_, 0},
                    make_error(Code::kInvalidUsage, "the communicator has been destroyed"));
  streams_->mirror_abort(abort_.word());
  return has_failed;
}

}  // namespace rocenante
