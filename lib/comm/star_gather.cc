// SPDX-License-Identifier: Apache-2.0
//
// all_gather: blobs go to rank 0, which sends all of them to all.
#include <poll.h>

#include <algorithm>
#include <utility>

#include "lib/comm/rendezvous_messages.h"
#include "lib/comm/star_core.h"

namespace rocenante {
namespace {

using net::Deadline;

constexpr std::uint64_t kFailureTimeNs = net::kNanosecondsPerSecond;
// How much longer a rank waits for rank 0, which knows who is missing, than rank 0 for the ranks.
constexpr std::uint64_t kGraceNs = net::kNanosecondsPerSecond;

Status malformed(const ControlLink& link, std::uint16_t type) {
  return make_error(Code::kInternalError, "{} sent a malformed message of type {} during initialisation",
                    link.who, type);
}

// A peer that gives up hands its connection to its monitor, which may beat before it closes.
bool is_heartbeat(const net::Frame& frame) {
  return frame.type == static_cast<std::uint16_t>(ControlMessage::kHeartbeat);
}

// What a peer that says anything but its blob means.
Status unexpected(const ControlLink& link, const net::Frame& frame) {
  switch (static_cast<ControlMessage>(frame.type)) {
    case ControlMessage::kLeft:
      return make_error(Code::kRemoteError, "{} left during initialisation", link.who);
    case ControlMessage::kAbort:
      if (const auto notice = decode_abort(frame.body)) {
        return make_error(Code::kRemoteError, "rank {} aborted: {}", notice->from, notice->text);
      }
      break;
    case ControlMessage::kFailure:
      if (auto status = decode_status(frame.body)) return *std::move(status);
      break;
    default:
      break;
  }
  return malformed(link, frame.type);
}

// Rank 0's side of one all_gather.
class Center {
 public:
  Center(StarCore* core, std::string_view blob)
      : core_(core), round_(core->next_gather_round()), blobs_(core->nranks()), has_(core->nranks()) {
    blobs_[0] = blob;
    has_[0] = true;
  }

  Result<std::vector<std::string>> run(Deadline deadline) {
    Status status = collect(deadline);
    if (status.ok()) status = distribute(deadline);
    if (status.ok()) return std::move(blobs_);
    tell(status);
    return status;
  }

 private:
  Status collect(Deadline deadline) {
    for (ControlLink& link : core_->links()) RCN_TRY(take_frames(&link));
    while (std::find(has_.begin(), has_.end(), false) != has_.end()) {
      polls_.clear();
      for (const ControlLink& link : core_->links()) polls_.push_back({link.fd.get(), POLLIN, 0});
      const int count = ::poll(polls_.data(), polls_.size(), deadline.poll_ms());
      if (count < 0 && errno != EINTR) return errno_error("poll on the control connections");
      for (std::size_t i = 0; count > 0 && i < polls_.size(); ++i) {
        if (polls_[i].revents != 0) RCN_TRY(read(&core_->links()[i]));
      }
      if (count == 0 && deadline.passed()) return missing();
    }
    return {};
  }

  Status read(ControlLink* link) {
    const Result<bool> filled = link->reader.fill(link->fd.get(), link->who);
    RCN_TRY(take_frames(link));
    if (filled.ok()) return {};
    link->fd.reset();
    return make_error(Code::kRemoteError, "{} went away during initialisation: {}", link->who,
                      filled.status().text());
  }

  Status take_frames(ControlLink* link) {
    if (!link->fd) {
      return make_error(Code::kRemoteError, "{} went away during initialisation", link->who);
    }
    for (;;) {
      std::optional<net::Frame> frame;
      RCN_ASSIGN(frame, link->reader.next(link->who));
      if (!frame) return {};
      if (is_heartbeat(*frame)) continue;
      if (frame->type != static_cast<std::uint16_t>(ControlMessage::kBlob))
        return unexpected(*link, *frame);
      const auto part = decode_blob(frame->body);
      if (!part || part->rank != link->peer || part->round != round_ || has_[link->peer]) {
        return malformed(*link, frame->type);
      }
      blobs_[link->peer] = part->bytes;
      has_[link->peer] = true;
    }
  }

  Status missing() const {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t rank = 0; rank < core_->nranks(); ++rank) {
      if (!has_[rank]) ranks.push_back(rank);
    }
    return make_error(Code::kTimeout, "{} of {} did not take part in the initialisation in time",
                      rank_list(ranks), core_->nranks());
  }

  Status distribute(Deadline deadline) {
    std::string all;
    for (std::uint32_t rank = 0; rank < core_->nranks(); ++rank) {
      all += control_frame(ControlMessage::kGathered, encode_blob({round_, rank, blobs_[rank]}));
    }
    left_.assign(core_->links().size(), all.size());
    for (;;) {
      polls_.clear();
      bool is_done = true;
      for (std::size_t i = 0; i < left_.size(); ++i) {
        ControlLink& link = core_->links()[i];
        if (left_[i] != 0) send(&link, std::string_view(all).substr(all.size() - left_[i]), &left_[i]);
        polls_.push_back({left_[i] == 0 ? -1 : link.fd.get(), POLLOUT, 0});
        is_done = is_done && left_[i] == 0;
      }
      if (is_done) return {};
      const int count = ::poll(polls_.data(), polls_.size(), deadline.poll_ms());
      if (count < 0 && errno != EINTR) return errno_error("poll on the control connections");
      if (count == 0 && deadline.passed()) return unread();
    }
  }

  // All blobs are there, so a rank that dies now is no reason to fail: it will be noticed by the next
  // all_gather or the first event.
  static void send(ControlLink* link, std::string_view bytes, std::size_t* left) {
    const Result<std::size_t> sent = net::send_some(link->fd.get(), bytes, link->who);
    *left = sent.ok() ? *left - sent.value() : 0;
  }

  Status unread() {
    std::vector<std::uint32_t> ranks;
    for (std::size_t i = 0; i < left_.size(); ++i) {
      if (left_[i] == 0) continue;
      ranks.push_back(core_->links()[i].peer);
      // In the middle of a frame no other can be sent.
      core_->links()[i].fd.reset();
    }
    return make_error(Code::kTimeout, "{} of {} did not receive the others' data in time", rank_list(ranks),
                      core_->nranks());
  }

  void tell(const Status& status) {
    const std::string frame = control_frame(ControlMessage::kFailure, encode_status(status));
    const Deadline deadline = Deadline::after_ns(kFailureTimeNs);
    for (const ControlLink& link : core_->links()) {
      if (link.fd) (void)net::send_all(link.fd.get(), frame, deadline, link.who);
    }
  }

  StarCore* core_;
  std::uint32_t round_;
  std::vector<std::string> blobs_;
  std::vector<bool> has_;
  std::vector<std::size_t> left_;  // bytes to send, by link
  std::vector<pollfd> polls_;
};

// Sends while listening: rank 0 may have given up, and then it reads no more.
Status send_blob(ControlLink* link, std::string_view frame, Deadline deadline) {
  while (!frame.empty()) {
    const Result<std::size_t> sent = net::send_some(link->fd.get(), frame, link->who);
    if (!sent.ok()) return {};  // the reason is read by the caller
    frame.remove_prefix(sent.value());
    if (sent.value() != 0) continue;
    pollfd entry{link->fd.get(), POLLIN | POLLOUT, 0};
    const int count = ::poll(&entry, 1, deadline.poll_ms());
    if (count > 0 && (entry.revents & POLLIN) != 0) return {};
    if (count == 0 && deadline.passed()) {
      return make_error(Code::kTimeout, "{} does not take part in the initialisation in time", link->who);
    }
  }
  return {};
}

Result<std::vector<std::string>> gather_from_center(StarCore* core, std::string_view blob,
                                                    Deadline deadline) {
  ControlLink& link = core->links().front();
  if (!link.fd) return make_error(Code::kRemoteError, "{} went away during initialisation", link.who);
  const std::uint32_t round = core->next_gather_round();
  const Deadline last = deadline.later_by_ns(kGraceNs);
  const std::string own = control_frame(ControlMessage::kBlob, encode_blob({round, core->rank(), blob}));
  RCN_TRY(send_blob(&link, own, last));
  std::vector<std::string> blobs;
  while (blobs.size() < core->nranks()) {
    const Result<net::Frame> frame = net::receive_frame(link.fd.get(), &link.reader, last, link.who);
    if (!frame.ok()) {
      return make_error(frame.status().code(), "{} during initialisation", frame.status().text());
    }
    if (is_heartbeat(frame.value())) continue;
    if (frame.value().type != static_cast<std::uint16_t>(ControlMessage::kGathered)) {
      return unexpected(link, frame.value());
    }
    const auto part = decode_blob(frame.value().body);
    if (!part || part->round != round || part->rank != blobs.size()) {
      return malformed(link, frame.value().type);
    }
    blobs.emplace_back(part->bytes);
  }
  return blobs;
}

}  // namespace

Result<std::vector<std::string>> gather_blobs(StarCore* core, std::string_view blob, Deadline deadline) {
  if (blob.size() > kLongestBlob) {
    return make_error(Code::kInvalidArgument, "blob of {} bytes: at most {} are allowed", blob.size(),
                      kLongestBlob);
  }
  if (core->rank() != 0) return gather_from_center(core, blob, deadline);
  return Center(core, blob).run(deadline);
}

}  // namespace rocenante
