// SPDX-License-Identifier: Apache-2.0
//
// Completions, and what they say of peers.
#include <sched.h>

#include <array>

#include "transports/verbs/transport.h"

namespace rocenante {
namespace {

constexpr int kBatch = 16;
constexpr std::uint32_t kLooksPerClock = 1024;
constexpr std::uint64_t kAskNs = net::kNanosecondsPerSecond;

// What an administrator wants to know beside the adapter's words.
const char* advice(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return ": the other end does not answer. Its process or host may have died, a link be down or a "
             "cable not be "
             "where the addresses say";
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
      return ": the other end refuses access to its memory. It may have closed its communicator";
    case IBV_WC_LOC_QP_OP_ERR:
      return ": the adapter could not send. Its link or its route to the other end may be down";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return ": the other end has no receive request left";
    default:
      return "";
  }
}

}  // namespace

Status VerbsTransport::progress() {
  if (!poll_failure_.ok()) [[unlikely]]
    return poll_failure_;
  for (const auto& adapter : adapters_) {
    if (adapter->pending != 0 || settings_.immediate) RCN_TRY(poll(*adapter));
  }
  if (++looks_ % kLooksPerClock == 0) RCN_TRY(ask_silent_peers());
  if (failed_peers_ == 0 && !any_flushed_) return {};
  explain_flushes();
  return needed_failure();
}

// A host that loses power sends nothing, and an adapter notices only what does not answer a request. So a
// peer that is waited for is sent a word now and then, whose retries run out if nobody is there.
Status VerbsTransport::ask_silent_peers() {
  const std::uint64_t now = net::monotonic_ns();
  if (now - asked_ns_ < kAskNs) return {};
  const bool first = asked_ns_ == 0;
  asked_ns_ = now;
  for (std::uint32_t peer = 0; !first && peer < peers_.size(); ++peer) {
    if (!peers_[peer].failure.ok() || !expects(peer)) continue;
    for (std::uint32_t i = 0; i < peers_[peer].rails.size(); ++i) {
      RailEnd& rail = rails_[peers_[peer].rails[i]];
      if (rail.idle())
        RCN_TRY(rail.write_word(peers_[peer].geometry.signal_offset(0, context_.rank, i), kProbeWord));
    }
  }
  return {};
}

// Completions that were there before the queues were armed cause no event, so they are looked for after it.
int VerbsTransport::wait_descriptor() {
  looks_ |= kLooksPerClock - 1;  // looks are rare now: the next one is at the clock, too
  if (!settings_.immediate) return -1;
  const std::uint64_t before = taken_;
  for (const auto& adapter : adapters_) {
    if (!adapter->arm().ok()) return -1;
  }
  for (const auto& adapter : adapters_) {
    if (poll_failure_.ok()) poll_failure_ = poll(*adapter);
  }
  return taken_ == before && poll_failure_.ok() ? events_.get() : ready_.get();
}

Status VerbsTransport::poll(Adapter& adapter) {
  std::array<ibv_wc, kBatch> completions;
  for (;;) {
    const int count = api_.poll_cq(adapter.completions(), kBatch, completions.data());
    if (count < 0)
      return make_error(Code::kSystemError, "verbs: the completion queue of {} cannot be polled",
                        adapter.device());
    for (int i = 0; i < count; ++i) RCN_TRY(complete(completions[static_cast<std::size_t>(i)]));
    if (count < kBatch) return {};
  }
}

Status VerbsTransport::complete(const ibv_wc& completion) {
  const std::uint64_t number = completion.wr_id >> kRequestBits;
  const auto request = static_cast<Request>(completion.wr_id & ((1u << kRequestBits) - 1));
  if (number >= rails_.size()) {
    return make_error(Code::kInternalError, "verbs: a completion of unknown request {}", completion.wr_id);
  }
  ++taken_;
  RailEnd& rail = rails_[number];
  if (completion.status != IBV_WC_SUCCESS) fail(rail, completion);
  if (request == Request::kSignal) return rail.signal_done(*requests_);
  if (request != Request::kReceive || completion.status != IBV_WC_SUCCESS) return {};
  std::uint64_t epoch = 0;
  std::uint32_t line = 0;
  // What a peer signals is at most two rounds from what was last put to it, whichever rails either takes.
  RCN_TRY(rail.received(completion.imm_data, peers_[rail.peer()].last_epoch, &epoch, &line));
  if (line >= context_.geometry.rails) {
    return make_error(Code::kRemoteError, "verbs: rank {} signals line {} of {}", rail.peer(), line,
                      context_.geometry.rails);
  }
  // The completion says that the payload has arrived; this thread, or a GPU, waits for the epoch as usual.
  __atomic_store_n(&line_from(rail.peer(), epoch % protocol::kParities, line)->epoch, epoch,
                   __ATOMIC_RELEASE);
  return {};
}

// Requests behind a failed one are flushed; they are never the first cause.
void VerbsTransport::fail(RailEnd& rail, const ibv_wc& completion) {
  rail.drop_waiting();
  if (completion.status == IBV_WC_WR_FLUSH_ERR) {
    peers_[rail.peer()].flushed = &rail;
    any_flushed_ = true;
    return;
  }
  fail_peer(rail.peer(),
            make_error(Code::kRemoteError, "verbs: {}: {} (status {}, vendor {}){}", rail.text(),
                       api_.wc_status_str(completion.status), static_cast<int>(completion.status),
                       completion.vendor_err, advice(completion.status)));
}

void VerbsTransport::fail_peer(std::uint32_t peer, Status status) {
  if (!peers_[peer].failure.ok()) return;
  peers_[peer].failure = std::move(status);
  ++failed_peers_;
}

// After all queues were looked at: a queue pair that is in error although none of its requests failed.
void VerbsTransport::explain_flushes() {
  if (!any_flushed_) return;
  any_flushed_ = false;
  for (std::uint32_t peer = 0; peer < peers_.size(); ++peer) {
    if (peers_[peer].flushed == nullptr) continue;
    fail_peer(
        peer,
        make_error(Code::kRemoteError,
                   "verbs: the queue pair for {} is in error, and no request of it says why: the adapter "
                   "was reset or its port has failed",
                   peers_[peer].flushed->text()));
  }
}

Status VerbsTransport::needed_failure() const {
  for (std::uint32_t peer = 0; peer < peers_.size(); ++peer) {
    if (!peers_[peer].failure.ok() && expects(peer)) return peers_[peer].failure;
  }
  return {};
}

void VerbsTransport::drain(net::Deadline deadline) {
  for (const auto& adapter : adapters_) {
    while (adapter->pending != 0 && !deadline.passed()) {
      if (!poll(*adapter).ok()) return;
      ::sched_yield();
    }
  }
}

// Where the word of a peer's probe arrives: the payload's place in a signal line, which rounds over verbs
// leave unused.
std::uint64_t* VerbsTransport::probe_word(std::uint32_t peer, std::uint32_t rail) const {
  return reinterpret_cast<std::uint64_t*>(line_from(peer, 0, rail)->payload);
}

// A rail on which our words have not left or the peer's has not come; null if there is none.
const RailEnd* VerbsTransport::silent_rail() const {
  for (std::uint32_t peer = 0; peer < peers_.size(); ++peer) {
    for (std::uint32_t i = 0; i < peers_[peer].rails.size(); ++i) {
      const RailEnd& rail = rails_[peers_[peer].rails[i]];
      if (!rail.idle() || __atomic_load_n(probe_word(peer, i), __ATOMIC_ACQUIRE) != kProbeWord)
        return &rail;
    }
  }
  return nullptr;
}

Status VerbsTransport::probe(net::Deadline deadline) {
  for (std::uint32_t peer = 0; peer < peers_.size(); ++peer) {
    for (std::uint32_t i = 0; i < peers_[peer].rails.size(); ++i) {
      const std::uint64_t to = peers_[peer].geometry.signal_offset(0, context_.rank, i);
      RCN_TRY(rails_[peers_[peer].rails[i]].write_words(to, kProbeWord));
    }
  }
  const net::Deadline limit = deadline.sooner(net::Deadline::after_s(kProbeSeconds));
  for (;;) {
    RCN_TRY(progress());
    for (const Peer& peer : peers_) RCN_TRY(peer.failure);
    const RailEnd* const silent = silent_rail();
    if (silent == nullptr) return {};
    if (limit.passed()) {
      return make_error(
          Code::kTimeout,
          "verbs: {}: nothing comes from the other end of this rail: is the cable where the addresses say?",
          silent->text());
    }
    ::sched_yield();
  }
}

}  // namespace rocenante
