// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/doorbell_puts.h"

#include <algorithm>
#include <utility>

namespace rocenante {

DoorbellPuts::DoorbellPuts(Setup setup)
    : ring_(setup.ring),
      slot_bytes_(setup.slot_bytes),
      striped_bytes_(setup.lane->striped_bytes),
      send_{setup.lane->send[0], setup.lane->send[1]},
      abort_word_(setup.abort_word),
      first_cause_ns_(setup.first_cause_ns),
      on_failure_(std::move(setup.on_failure)),
      batches_(make_batches(setup)),
      next_(setup.first_epoch) {}

std::vector<DoorbellPuts::Batch> DoorbellPuts::make_batches(const Setup& setup) {
  std::vector<Batch> batches;
  const protocol::Lane& lane = *setup.lane;
  for (std::uint32_t i = 1; i < lane.ranks; ++i) {
    // Everybody starts with the next rank, so that not all write to rank 0 at once.
    const std::uint32_t peer = (lane.rank + i) % lane.ranks;
    Transport* const carrier = setup.carriers[peer];
    if (carrier == nullptr) continue;
    auto batch = std::find_if(batches.begin(), batches.end(),
                              [&](const Batch& one) { return one.transport == carrier; });
    if (batch == batches.end()) batch = batches.insert(batch, Batch{carrier, {}, {}});
    batch->puts.push_back(Put{peer, nullptr, 0, 0, 0});
    batch->rails.push_back(lane.peers[peer].rails);
  }
  return batches;
}

bool DoorbellPuts::look() {
  if (stopped_.load(std::memory_order_relaxed)) [[unlikely]] {
    report();
    return false;
  }
  bool any = false;
  while (take_next()) any = true;
  keep_going();
  return any;
}

// False when there is nothing more to take.
bool DoorbellPuts::take_next() {
  const std::uint64_t epoch = next_.load(std::memory_order_relaxed);
  protocol::PutDescriptor descriptor{};
  const protocol::Taken taken = protocol::take_doorbell(env_, *ring_, epoch, descriptor);
  if (taken == protocol::Taken::kNothing) return false;
  if (is_aborted()) [[unlikely]] {
    stop();
    return false;
  }
  if (taken == protocol::Taken::kOverrun) [[unlikely]] {
    fail(protocol::AbortReason::kOverrun, epoch,
         make_error(Code::kInternalError,
                    "doorbell: the entry of epoch {} was overwritten before it was taken", epoch));
    return false;
  }
  if (descriptor.bytes > slot_bytes_) [[unlikely]] {
    fail(protocol::AbortReason::kOverrun, epoch,
         make_error(Code::kInternalError,
                    "doorbell: the entry of epoch {} asks for {} bytes of a slot of {}", epoch,
                    descriptor.bytes, slot_bytes_));
    return false;
  }
  idle_.store(false, std::memory_order_relaxed);
  next_.store(epoch + 1, std::memory_order_release);  // drained() must find idle_ cleared
  if (Status status = put(epoch, descriptor); !status.ok()) [[unlikely]]
    fail(protocol::AbortReason::kTransport, epoch, std::move(status));
  return true;
}

Status DoorbellPuts::put(std::uint64_t epoch, const protocol::PutDescriptor& descriptor) {
  const void* const payload = send_[protocol::parity_of<HostEnv>(epoch)];
  const bool striped = descriptor.bytes >= striped_bytes_;  // as protocol::lines_of has it
  for (Batch& batch : batches_) {
    const std::uint32_t* rails = batch.rails.data();
    for (Put& put : batch.puts) {
      put.payload = payload;
      put.bytes = descriptor.bytes;
      put.epoch = epoch;
      put.tag = descriptor.tag;
      put.stripes = striped ? *rails : 1;
      ++rails;
    }
    RCN_TRY(batch.transport->post(batch.puts));
  }
  return {};
}

void DoorbellPuts::keep_going() {
  bool drained = true;
  const bool idle = idle_.load(std::memory_order_relaxed);
  for (const Batch& batch : batches_) {
    if (stopped_.load(std::memory_order_relaxed)) return;
    if (Status status = batch.transport->progress(); !status.ok()) [[unlikely]] {
      return fail(protocol::AbortReason::kTransport, next_.load(std::memory_order_relaxed) - 1,
                  std::move(status));
    }
    drained = drained && (idle || batch.transport->drained());
  }
  if (!idle && drained) idle_.store(true, std::memory_order_release);
}

void DoorbellPuts::fail(protocol::AbortReason reason, std::uint64_t epoch, Status status) {
  stop();
  cause_ = {reason, protocol::kNoPeer, epoch};
  failure_ = std::move(status);
  // A peer that has aborted closes its ends of the transports, and its word, which names the first cause,
  // may still be on its way.
  report_ns_ = reason == protocol::AbortReason::kTransport ? monotonic_ns() + first_cause_ns_ : 0;
  report();
}

void DoorbellPuts::report() {
  if (failure_.ok() || is_reported_) return;
  const bool is_known = is_aborted();
  if (!is_known && monotonic_ns() < report_ns_) return;
  is_reported_ = true;
  if (!is_known) on_failure_(cause_, std::move(failure_));
}

void DoorbellPuts::on_exception(Status status) noexcept {
  stop();
  // A failure that was still to be reported came first.
  if (failure_.ok()) {
    cause_ = {protocol::AbortReason::kTransport, protocol::kNoPeer,
              next_.load(std::memory_order_relaxed) - 1};
    failure_ = std::move(status);
  }
  report_ns_ = 0;
  (void)caught([&]() -> Status {
    report();
    return {};
  });
}

bool DoorbellPuts::drained() const {
  if (has_stopped()) return true;
  HostEnv env;
  protocol::PutDescriptor ignored{};
  const std::uint64_t next = next_.load(std::memory_order_acquire);
  if (protocol::take_doorbell(env, *ring_, next, ignored) != protocol::Taken::kNothing) return false;
  return idle_.load(std::memory_order_acquire);
}

}  // namespace rocenante
