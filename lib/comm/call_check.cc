// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/call.h"
#include "lib/comm/call_text.h"

namespace rocenante {
namespace {

const char* count_name(Collective collective) {
  if (collective == Collective::kAllGather) return "sendcount";
  return collective == Collective::kReduceScatter ? "recvcount" : "count";
}

// Where one buffer must lie for the call to be in place, or null where there is no such place: an address
// in recvbuff for an all-gather, in sendbuff for a reduce-scatter.
bool is_in_place(const CollectiveCall& call, std::uintptr_t send, std::uintptr_t receive,
                 std::uint64_t own_block) {
  switch (call.collective) {
    case Collective::kAllGather:
      return send == receive + own_block;
    case Collective::kReduceScatter:
      return receive == send + own_block;
    case Collective::kAllToAll:
      return false;
    default:
      return send == receive;
  }
}

const char* overlap_rule(Collective collective) {
  switch (collective) {
    case Collective::kAllGather:
      return "sendbuff must be recvbuff + rank * sendcount elements, or apart from it";
    case Collective::kReduceScatter:
      return "recvbuff must be sendbuff + rank * recvcount elements, or apart from it";
    case Collective::kAllToAll:
      return "they must be apart";
    default:
      return "they must be equal or apart";
  }
}

}  // namespace

Status check_buffers(const CollectiveCall& call, std::uint32_t rank, std::uint32_t ranks) {
  const std::uint64_t element = reduce::element_size(call.type);
  if (has_root(call.collective) && call.root >= ranks) {
    return make_error(Code::kInvalidArgument, "root is {}: expected 0 to {}",
                      static_cast<std::int32_t>(call.root), ranks - 1);
  }
  if (call.count > (std::uint64_t{1} << 40) / element) {
    return make_error(Code::kInvalidArgument, "{} is {}: at most 2^40 bytes may be moved by one call",
                      count_name(call.collective), call.count);
  }
  if (call.count == 0) return {};
  const bool sends = call.collective != Collective::kBroadcast || call.root == rank;
  const bool receives = call.collective != Collective::kReduce || call.root == rank;
  if (sends && call.input == nullptr) {
    return make_error(Code::kInvalidArgument, "sendbuff is NULL with {} {}", count_name(call.collective),
                      call.count);
  }
  if (receives && call.output == nullptr) {
    return make_error(Code::kInvalidArgument, "recvbuff is NULL with {} {}", count_name(call.collective),
                      call.count);
  }
  if (!sends || !receives) return {};
  const std::uint64_t block = call.count * element;
  const std::uint64_t send_bytes = sends_blocks(call.collective) ? block * ranks : block;
  const std::uint64_t receive_bytes = receives_blocks(call.collective) ? block * ranks : block;
  const auto send = reinterpret_cast<std::uintptr_t>(call.input);
  const auto receive = reinterpret_cast<std::uintptr_t>(call.output);
  const bool overlap = send < receive + receive_bytes && receive < send + send_bytes;
  if (!overlap || is_in_place(call, send, receive, block * rank)) return {};
  return make_error(Code::kInvalidArgument, "sendbuff {} ({} bytes) and recvbuff {} ({} bytes) overlap: {}",
                    call.input, send_bytes, call.output, receive_bytes, overlap_rule(call.collective));
}

}  // namespace rocenante
