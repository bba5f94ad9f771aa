// SPDX-License-Identifier: Apache-2.0
#include "transports/verbs/rail_end.h"

#include <algorithm>
#include <cstring>

namespace rocenante {
namespace {

// Payloads of up to 64 bytes and their tag go with the request, which saves the adapter a read.
constexpr std::uint32_t kWantedInline = 64 + protocol::kSlotTagBytes;
constexpr std::uint32_t kLeastInline = sizeof(std::uint64_t);

// An immediate word: the epoch's low bits above the line's number.
constexpr std::uint32_t kLineBits = 8;
constexpr std::uint64_t kEpochBits = (std::uint64_t{1} << (32 - kLineBits)) - 1;

}  // namespace

Requests::Requests(bool immediate) {
  payload.sg_list = &payload_memory;
  payload.opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  if (immediate) return;
  payload.next = &signal;
  epoch_memory = {reinterpret_cast<std::uintptr_t>(&epoch), sizeof epoch, 0};
  signal.sg_list = &epoch_memory;
  signal.num_sge = 1;
  signal.opcode = IBV_WR_RDMA_WRITE;
  signal.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  notice = quiet_signal = signal;
  quiet_signal.send_flags = IBV_SEND_INLINE;
  quiet_signal.next = &notice;
}

QueueSettings QueueSettings::from(const Config& config, bool software_rails) {
  const std::string& signal = config.text(Key::kSignal);
  const auto byte = [&](Key key) { return static_cast<std::uint8_t>(config.integer(key)); };
  return {signal == "imm" || (signal == "auto" && software_rails), byte(Key::kIbTc), byte(Key::kIbSl),
          byte(Key::kIbTimeout), byte(Key::kIbRetryCnt)};
}

Result<RailEnd> RailEnd::create(const VerbsApi& api, Adapter& adapter, const fabric::Rail& rail,
                                std::uint32_t peer, std::uint64_t number, const QueueSettings& settings) {
  RailEnd end(api, adapter, rail, peer, number, settings);
  RCN_ASSIGN(end.mtu_, adapter.port_mtu(rail.local.port));
  RCN_TRY(end.create_pair());
  RCN_TRY(end.initialise());
  if (settings.immediate) RCN_TRY(end.post_receives(kReceiveRequests));
  return end;
}

Status RailEnd::create_pair() {
  for (const std::uint32_t most_inline : {kWantedInline, kLeastInline}) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = adapter_->completions();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap.max_send_wr = kSendRequests;
    attributes.cap.max_recv_wr = settings_.immediate ? kReceiveRequests : 1;
    attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
    attributes.cap.max_inline_data = most_inline;
    pair_ = QueuePair({api_, api_->create_qp(adapter_->domain(), &attributes)});
    most_inline_ = static_cast<std::uint16_t>(std::min(attributes.cap.max_inline_data, 0xffffu));
    queue_pair_ = pair_.get().object;
    if (pair_) return {};
    if (errno != EINVAL) break;
  }
  return errno_error("verbs: no queue pair for {}", text());
}

Status RailEnd::modify(ibv_qp_attr& attributes, int mask, const char* state) {
  const int error = api_->modify_qp(pair_.get().object, &attributes, mask);
  if (error == 0) return {};
  return system_error(error, fmt::format("verbs: the queue pair for {} does not reach {}", text(), state));
}

Status RailEnd::initialise() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = 0;
  attributes.port_num = static_cast<std::uint8_t>(rail_.local.port);
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  return modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
}

Status RailEnd::connect(const RemoteEnd& remote, const RemotePlaces& places, std::uint32_t index,
                        std::uint32_t first_packet) {
  remote_ = remote;
  const RemoteEnd::Inbox& inbox = remote.device.has_value() ? *remote.device : remote.host;
  rkey_ = inbox.rkey;
  for (std::uint64_t parity = 0; parity < protocol::kParities; ++parity) {
    slots_[parity] = inbox.address + places.slots[parity];
    epochs_[parity] = inbox.address + places.epochs[parity];
    notices_[parity] = remote.host.address + places.epochs[parity] + index * protocol::kLineBytes;
  }
  if (remote.device.has_value()) signalling_ = Signalling::kNotice;
  if (settings_.immediate) signalling_ = Signalling::kImmediate;
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = std::min(mtu_, remote.mtu);
  receive.dest_qp_num = remote.queue_pair;
  receive.rq_psn = remote.first_packet;
  receive.max_dest_rd_atomic = 1;
  receive.min_rnr_timer = 12;  // 0.64 ms
  receive.ah_attr.is_global = 1;
  std::memcpy(receive.ah_attr.grh.dgid.raw, rail_.remote.gid.data(), rail_.remote.gid.size());
  receive.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(rail_.local.gid_index);
  receive.ah_attr.grh.hop_limit = 64;
  receive.ah_attr.grh.traffic_class = settings_.traffic_class;
  receive.ah_attr.sl = settings_.service_level;
  receive.ah_attr.port_num = static_cast<std::uint8_t>(rail_.local.port);
  RCN_TRY(modify(receive,
                 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                 "RTR"));
  ibv_qp_attr sending{};
  sending.qp_state = IBV_QPS_RTS;
  sending.timeout = settings_.timeout;
  sending.retry_cnt = settings_.retry_count;
  sending.rnr_retry = 7;  // for ever: a receiver that does not look is alive
  sending.sq_psn = first_packet;
  sending.max_rd_atomic = 1;
  return modify(sending,
                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                    IBV_QP_MAX_QP_RD_ATOMIC,
                "RTS");
}

void RailEnd::stop() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // Nothing to do about a failure: destroying the queue pair comes next.
  (void)api_->modify_qp(pair_.get().object, &attributes, IBV_QP_STATE);
  drop_waiting();
}

Status RailEnd::post_receives(std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    ibv_recv_wr request{};
    request.wr_id = id(Request::kReceive);
    ibv_recv_wr* bad = nullptr;
    const int error = api_->post_recv(pair_.get().object, &request, &bad);
    if (error != 0) return system_error(error, fmt::format("verbs: {} takes no receive request", text()));
  }
  return {};
}

Status RailEnd::queue(const Stripe& stripe) {
  if (waiting_count_ == kQueuedStripes) {
    return make_error(Code::kInternalError,
                      "verbs: {} puts wait on {}: the protocol has two rounds under way at most",
                      outstanding_ + waiting_count_, text());
  }
  waiting_[(waiting_first_ + waiting_count_++) % kQueuedStripes] = stripe;
  return {};
}

Status RailEnd::post_otherwise(Requests& requests, const Stripe& stripe) {
  return signalling_ == Signalling::kImmediate ? post_immediate(requests, stripe)
                                               : post_with_notice(requests, stripe);
}

// The payload's completion at the peer is the signal.
Status RailEnd::post_immediate(Requests& requests, const Stripe& stripe) {
  ibv_send_wr& payload = requests.payload;
  payload.wr_id = id(Request::kSignal);
  payload.send_flags |= IBV_SEND_SIGNALED;
  payload.imm_data =
      htobe32(static_cast<std::uint32_t>((stripe.epoch & kEpochBits) << kLineBits | stripe.line));
  return send(&payload);
}

// Payload and signal to the peer's device, then the epoch to its host, in the line of this rail whatever
// line the signal has: lines that several rails wrote could get an older epoch after a newer one, since
// nobody waits for notices.
Status RailEnd::post_with_notice(Requests& requests, const Stripe& stripe) {
  const std::uint64_t parity = stripe.epoch % protocol::kParities;
  ibv_send_wr& payload = requests.payload;
  payload.wr_id = id(Request::kPayload);
  requests.epoch = stripe.epoch;
  ibv_send_wr& signal = requests.quiet_signal;
  signal.wr_id = id(Request::kPayload);
  signal.wr.rdma.remote_addr = epochs_[parity] + stripe.line * protocol::kLineBytes;
  signal.wr.rdma.rkey = rkey_;
  ibv_send_wr& notice = requests.notice;
  notice.wr_id = id(Request::kSignal);
  notice.wr.rdma.remote_addr = notices_[parity];
  notice.wr.rdma.rkey = remote_.host.rkey;
  payload.next = &signal;
  Status sent = send(stripe.bytes == 0 ? &signal : &payload);
  payload.next = &requests.signal;
  return sent;
}

Status RailEnd::write_words(std::uint64_t to, std::uint64_t word) {
  if (remote_.device.has_value()) RCN_TRY(write_word_to(*remote_.device, to, word));
  return write_word(to, word);
}

Status RailEnd::write_word_to(const RemoteEnd::Inbox& inbox, std::uint64_t to, std::uint64_t word) {
  ibv_sge memory{reinterpret_cast<std::uintptr_t>(&word), sizeof word, 0};
  ibv_send_wr request{};
  request.wr_id = id(Request::kSignal);
  request.sg_list = &memory;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  request.wr.rdma.remote_addr = inbox.address + to;
  request.wr.rdma.rkey = inbox.rkey;
  return send(&request);
}

// Nothing that waits may be posted after what was refused.
Status RailEnd::refused(int error) {
  drop_waiting();
  return system_error(error, fmt::format("verbs: {} takes no send request", text()));
}

Status RailEnd::post_waiting(Requests& requests) {
  const Stripe next = waiting_[waiting_first_];
  waiting_first_ = (waiting_first_ + 1) % kQueuedStripes;
  --waiting_count_;
  return post(requests, next);
}

Status RailEnd::received(std::uint32_t immediate, std::uint64_t near, std::uint64_t* epoch,
                         std::uint32_t* line) {
  const std::uint32_t word = be32toh(immediate);
  *line = word & ((1u << kLineBits) - 1);
  // The difference of the low bits, of either sign.
  const std::uint64_t ahead = ((word >> kLineBits) - near) & kEpochBits;
  *epoch = near + ahead - (ahead > kEpochBits / 2 ? kEpochBits + 1 : 0);
  return post_receives(1);
}

std::string RailEnd::text() const {
  return fmt::format("{} ({}) to rank {}'s {} ({})", fabric::port_name(rail_.local),
                     fabric::address_text(rail_.local.gid), peer_, fabric::port_name(rail_.remote),
                     fabric::address_text(rail_.remote.gid));
}

}  // namespace rocenante
