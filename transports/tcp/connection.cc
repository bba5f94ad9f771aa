// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/connection.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

namespace rocenante::tcp {
namespace {

constexpr int kSendFlags = MSG_NOSIGNAL | MSG_DONTWAIT;

}  // namespace

Connection::Connection(net::SocketFd fd, std::uint32_t peer, const Inlet& inlet, std::uint64_t window)
    : fd_(std::move(fd)), peer_(peer), window_(window), stream_(peer, inlet) {}

Status Connection::queue(const Put& put) {
  if (is_broken_) return {};
  if (queued_ == outgoing_.size()) {
    return make_error(Code::kInternalError, "tcp: epoch {} was posted to rank {} while two are under way",
                      put.epoch, peer_);
  }
  Outgoing& out = outgoing_[(first_ + queued_) % outgoing_.size()];
  encode_header({put.bytes, put.epoch, put.tag}, std::span(out.front).first<kHeaderBytes>());
  out.payload = static_cast<const std::byte*>(put.payload);
  out.front_bytes = kHeaderBytes;
  if (put.bytes != 0 && put.bytes <= kTogether) {
    std::memcpy(out.front.data() + kHeaderBytes, put.payload, put.bytes);
    out.front_bytes += put.bytes;
  }
  out.bytes = kHeaderBytes + put.bytes;
  out.epoch = put.epoch;
  ++queued_;
  return {};
}

// What has come of the same epoch tells how far the peer has got, without a word about it: it sends no
// further ahead either, so that no more than two windows are ever between us. A peer that has sent all of
// its payload is read from below one window, whatever is left.
std::uint64_t Connection::allowed(const Outgoing& out) const {
  const std::uint64_t received = stream_.received_of(out.epoch);
  if (received >= out.bytes) return out.bytes;
  return std::min(out.bytes, kHeaderBytes + received + window_);
}

bool Connection::send_up_to(const Outgoing& out, std::uint64_t limit) {
  iovec parts[2];
  std::size_t count = 0;
  const std::uint64_t front = std::min(out.front_bytes, limit);
  if (sent_ < front) parts[count++] = {const_cast<std::byte*>(out.front.data()) + sent_, front - sent_};
  const std::uint64_t begin = std::max(sent_, front);
  if (begin < limit)
    parts[count++] = {const_cast<std::byte*>(out.payload) + (begin - kHeaderBytes), limit - begin};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  ssize_t sent;
  do {
    sent = count == 1 ? ::send(fd_.get(), parts[0].iov_base, parts[0].iov_len, kSendFlags)
                      : ::sendmsg(fd_.get(), &message, kSendFlags);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
    // What the peer has sent before may still be here to be read, so this alone ends nothing.
    is_broken_ = true;
    queued_ = 0;
    return false;
  }
  sent_ += static_cast<std::uint64_t>(std::max<ssize_t>(sent, 0));
  is_congested_ = sent_ < limit;
  return !is_congested_;
}

void Connection::flush() {
  while (queued_ != 0) {
    const Outgoing& out = outgoing_[first_];
    const std::uint64_t limit = allowed(out);
    if (sent_ >= limit || !send_up_to(out, limit)) return;
    if (sent_ < out.bytes) return;
    first_ = (first_ + 1) % static_cast<std::uint32_t>(outgoing_.size());
    --queued_;
    sent_ = 0;
  }
}

Status Connection::receive(std::uint64_t own_epoch) {
  while (!has_ended_) {
    const std::span<std::byte> room = stream_.room();
    const ssize_t received = ::recv(fd_.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (received <= 0) {
      if (received < 0 && errno == EINTR) continue;
      if (received == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) note_end(received == 0 ? 0 : errno);
      return {};
    }
    const auto bytes = static_cast<std::size_t>(received);
    RCN_TRY(stream_.received(bytes, own_epoch));
    // Less than there was room for: that was all. And what has come may be what the caller waits for.
    if (bytes < room.size() || !stream_.is_inside_frame()) return {};
  }
  return {};
}

void Connection::note_end(int error) {
  has_ended_ = true;
  const char* const inside = stream_.is_inside_frame() ? " inside a frame" : "";
  if (error == 0 || error == ECONNRESET || error == EPIPE) {
    end_ = fmt::format("rank {} closed its data connection{}", peer_, inside);
  } else {
    end_ =
        system_error(error, fmt::format("the data connection to rank {} failed{}", peer_, inside)).text();
  }
}

void Connection::finish_sending() {
  ::shutdown(fd_.get(), SHUT_WR);
}

}  // namespace rocenante::tcp
