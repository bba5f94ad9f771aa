// SPDX-License-Identifier: Apache-2.0
//
// NCCL's collectives. In our own world all are ours that lib/comm has; beside the real library they are
// where the size says so, and the others are the real one's.
#include <cstring>

#include "nccl_shim/libnccl/api.h"

namespace rocenante::nccl {
namespace {

// `op` is rcnSum and `root` 0 where the collective has none.
CollectiveCall make_call(Collective collective, const void* in, void* out, size_t count, rcnDataType_t type,
                         rcnRedOp_t op, int root) {
  return {in,
          out,
          count,
          static_cast<reduce::DataType>(type),
          static_cast<std::uint32_t>(op),
          {},
          collective,
          static_cast<std::uint32_t>(root)};
}

// A call on a communicator of our own world.
template <Collective kCollective>
rcnResult_t call_own(OwnSlot* slot, const void* in, void* out, size_t count, rcnDataType_t type,
                     rcnRedOp_t op, int root, void* stream) {
  return answer_in_group([&]() -> Status {
    void* const core = slot->core.load(std::memory_order_acquire);
    if (core == nullptr) [[unlikely]] {
      RCN_TRY(why_not_ready(slot));
      return make_error(Code::kInvalidUsage, "comm {} is being destroyed", static_cast<const void*>(slot));
    }
    RCN_TRY(check_type_and_op(type, op));
    return submit(core, make_call(kCollective, in, out, count, type, op, root), stream);
  });
}

bool is_plausible(const CollectiveCall& call) {
  return static_cast<unsigned>(call.type) < rcnNumTypes && static_cast<int>(call.op) >= 0;
}

// A call that our side or the real library performs, by what all ranks share; `forward` is the latter's.
template <class... Arguments>
rcnResult_t call_either(const CollectiveCall& call, void* comm, void* stream,
                        rcnResult_t (*forward)(Arguments...),
                        std::type_identity_t<Arguments>... arguments) {
  if (SidePin side(comm); side && is_plausible(call) && !inside_real()) {
    switch (const Route chosen = route(*side, call, comm); chosen) {
      case Route::kOurs:
        return answer([&] { return submit(side->core, call, stream); });
      case Route::kReal:
        break;
      case Route::kTooEarly:
        return answer_in_group([&] { return busy_error(comm); });
      case Route::kCandidate:
      case Route::kHeld:
        return answer([&]() -> Status {
          ThreadGroup::of_this_thread().side_calls.push_back(
              {comm, chosen == Route::kCandidate, call, stream, [=] { return forward(arguments...); }});
          return {};
        });
    }
  }
  if (owner_of(comm) == Owner::kNobody) return refuse_call(comm);
  return forward(arguments...);
}

// A null configuration means a plain call. In our own world so does any other: what it holds tunes GPU
// kernels, but for an event, which there is nothing to record on.
Status check_coll_config(const void* config) {
  if (config == nullptr) return {};
  CollConfigHead head;
  std::memcpy(&head, config, sizeof head);
  const bool is_valid = head.magic == kConfigMagic && head.size >= sizeof head;
  if (is_valid && head.size >= kCollConfigEventOffset + sizeof(void*)) {
    const void* event = nullptr;
    std::memcpy(&event, static_cast<const unsigned char*>(config) + kCollConfigEventOffset, sizeof event);
    if (event == nullptr) return {};
    return make_error(Code::kInvalidUsage,
                      "config->launchCompletionEvent is set, and host memory has no events");
  }
  if (is_valid) return {};
  return make_error(Code::kInvalidArgument,
                    "config has magic {:#x} and size {}: initialise it with NCCL_COLLCONFIG_INITIALIZER",
                    head.magic, head.size);
}

// The same with a configuration of the call.
template <Collective kCollective>
rcnResult_t call_own(OwnSlot* slot, const void* in, void* out, size_t count, rcnDataType_t type,
                     rcnRedOp_t op, int root, void* stream, const void* config) {
  const rcnResult_t result = answer_in_group([&] { return check_coll_config(config); });
  return result == rcnSuccess ? call_own<kCollective>(slot, in, out, count, type, op, root, stream)
                              : result;
}

}  // namespace
}  // namespace rocenante::nccl

using namespace rocenante;        // NOLINT(google-build-using-namespace)
using namespace rocenante::nccl;  // NOLINT(google-build-using-namespace)

extern "C" {

rcnResult_t rcn_nccl_AllReduce(const void* in, void* out, size_t count, rcnDataType_t type, rcnRedOp_t op,
                               void* comm, void* stream) {
  if (OwnSlot* const slot = own_slot(comm); slot != nullptr) {
    return call_own<Collective::kAllReduce>(slot, in, out, count, type, op, 0, stream);
  }
  return call_either(make_call(Collective::kAllReduce, in, out, count, type, op, 0), comm, stream,
                     rcn_nccl_forward_AllReduce, in, out, count, type, op, comm, stream);
}

rcnResult_t rcn_nccl_AllReduceConfig(const void* in, void* out, size_t count, rcnDataType_t type,
                                     rcnRedOp_t op, void* comm, void* stream, const void* config) {
  if (config == nullptr) return rcn_nccl_AllReduce(in, out, count, type, op, comm, stream);
  if (OwnSlot* const slot = own_slot(comm); slot != nullptr) {
    return call_own<Collective::kAllReduce>(slot, in, out, count, type, op, 0, stream, config);
  }
  return pass(Kind::kAllReduce, count, type, comm, rcn_nccl_forward_AllReduceConfig, in, out, count, type,
              op, comm, stream, config);
}

rcnResult_t rcn_nccl_ReduceScatter(const void* in, void* out, size_t count, rcnDataType_t type,
                                   rcnRedOp_t op, void* comm, void* stream) {
  if (OwnSlot* const slot = own_slot(comm); slot != nullptr) {
    return call_own<Collective::kReduceScatter>(slot, in, out, count, type, op, 0, stream);
  }
  return call_either(make_call(Collective::kReduceScatter, in, out, count, type, op, 0), comm, stream,
                     rcn_nccl_forward_ReduceScatter, in, out, count, type, op, comm, stream);
}
rcnResult_t rcn_nccl_ReduceScatterConfig(const void* in, void* out, size_t count, rcnDataType_t type,
                                         rcnRedOp_t op, void* comm, void* stream, const void* config) {
  if (config == nullptr) return rcn_nccl_ReduceScatter(in, out, count, type, op, comm, stream);
  if (OwnSlot* const slot = own_slot(comm); slot != nullptr) {
    return call_own<Collective::kReduceScatter>(slot, in, out, count, type, op, 0, stream, config);
  }
  return pass(Kind::kReduceScatter, count, type, comm, rcn_nccl_forward_ReduceScatterConfig, in, out, count,
              type, op, comm, stream, config);
}

rcnResult_t rcn_nccl_Reduce(const void* in, void* out, size_t count, rcnDataType_t type, rcnRedOp_t op,
                            int root, void* comm, void* stream) {
  if (OwnSlot* const slot = own_slot(comm); slot != nullptr) {
    return call_own<Collective::kReduce>(slot, in, out, count, type, op, root, stream);
  }
  return call_either(make_call(Collective::kReduce, in, out, count, type, op, root), comm, stream,
                     rcn_nccl_forward_Reduce, in, out, count, type, op, root, comm, stream);
}
rcnResult_t rcn_nccl_ReduceConfig(const void* in, void* out, size_t count, rcnDataType_t type,
                                  rcnRedOp_t op, int root, void* comm, void* stream, const void* config) {
  if (config == nullptr) return rcn_nccl_Reduce(in, out, count, type, op, root, comm, stream);
  if (OwnSlot* const slot = own_slot(comm); slot != nullptr) {
    return call_own<Collective::kReduce>(slot, in, out, count, type, op, root, stream, config);
  }
  return pass(Kind::kReduce, count, type, comm, rcn_nccl_forward_ReduceConfig, in, out, count, type, op,
              root, comm, stream, config);
}

rcnResult_t rcn_nccl_Bcast(void* buffer, size_t count, rcnDataType_t type, int root, void* comm,
                           void* stream) {
  if (OwnSlot* const slot = own_slot(comm); slot != nullptr) {
    return call_own<Collective::kBroadcast>(slot, buffer, buffer, count, type, rcnSum, root, stream);
  }
  return call_either(make_call(Collective::kBroadcast, buffer, buffer, count, type, rcnSum, root), comm,
                     stream, rcn_nccl_forward_Bcast, buffer, count, type, root, comm, stream);
}
rcnResult_t rcn_nccl_Broadcast(const void* in, void* out, size_t count, rcnDataType_t type, int root,
                               void* comm, void* stream) {
  if (OwnSlot* const slot = own_slot(comm); slot != nullptr) {
    return call_own<Collective::kBroadcast>(slot, in, out, count, type, rcnSum, root, stream);
  }
  return call_either(make_call(Collective::kBroadcast, in, out, count, type, rcnSum, root), comm, stream,
                     rcn_nccl_forward_Broadcast, in, out, count, type, root, comm, stream);
}
rcnResult_t rcn_nccl_BroadcastConfig(const void* in, void* out, size_t count, rcnDataType_t type, int root,
                                     void* comm, void* stream, const void* config) {
  if (config == nullptr) return rcn_nccl_Broadcast(in, out, count, type, root, comm, stream);
  if (OwnSlot* const slot = own_slot(comm); slot != nullptr) {
    return call_own<Collective::kBroadcast>(slot, in, out, count, type, rcnSum, root, stream, config);
  }
  return pass(Kind::kBroadcast, count, type, comm, rcn_nccl_forward_BroadcastConfig, in, out, count, type,
              root, comm, stream, config);
}

rcnResult_t rcn_nccl_Gather(const void* in, void* out, size_t count, rcnDataType_t type, int root,
                            void* comm, void* stream) {
  return pass(Kind::kGather, count, type, comm, rcn_nccl_forward_Gather, in, out, count, type, root, comm,
              stream);
}
rcnResult_t rcn_nccl_GatherConfig(const void* in, void* out, size_t count, rcnDataType_t type, int root,
                                  void* comm, void* stream, const void* config) {
  if (config == nullptr) return rcn_nccl_Gather(in, out, count, type, root, comm, stream);
  return pass(Kind::kGather, count, type, comm, rcn_nccl_forward_GatherConfig, in, out, count, type, root,
              comm, stream, config);
}

rcnResult_t rcn_nccl_Scatter(const void* in, void* out, size_t count, rcnDataType_t type, int root,
                             void* comm, void* stream) {
  return pass(Kind::kScatter, count, type, comm, rcn_nccl_forward_Scatter, in, out, count, type, root, comm,
              stream);
}
rcnResult_t rcn_nccl_ScatterConfig(const void* in, void* out, size_t count, rcnDataType_t type, int root,
                                   void* comm, void* stream, const void* config) {
  if (config == nullptr) return rcn_nccl_Scatter(in, out, count, type, root, comm, stream);
  return pass(Kind::kScatter, count, type, comm, rcn_nccl_forward_ScatterConfig, in, out, count, type, root,
              comm, stream, config);
}

rcnResult_t rcn_nccl_AllGather(const void* in, void* out, size_t count, rcnDataType_t type, void* comm,
                               void* stream) {
  if (OwnSlot* const slot = own_slot(comm); slot != nullptr) {
    return call_own<Collective::kAllGather>(slot, in, out, count, type, rcnSum, 0, stream);
  }
  return call_either(make_call(Collective::kAllGather, in, out, count, type, rcnSum, 0), comm, stream,
                     rcn_nccl_forward_AllGather, in, out, count, type, comm, stream);
}
rcnResult_t rcn_nccl_AllGatherConfig(const void* in, void* out, size_t count, rcnDataType_t type,
                                     void* comm, void* stream, const void* config) {
  if (config == nullptr) return rcn_nccl_AllGather(in, out, count, type, comm, stream);
  if (OwnSlot* const slot = own_slot(comm); slot != nullptr) {
    return call_own<Collective::kAllGather>(slot, in, out, count, type, rcnSum, 0, stream, config);
  }
  return pass(Kind::kAllGather, count, type, comm, rcn_nccl_forward_AllGatherConfig, in, out, count, type,
              comm, stream, config);
}

rcnResult_t rcn_nccl_AlltoAll(const void* in, void* out, size_t count, rcnDataType_t type, void* comm,
                              void* stream) {
  if (OwnSlot* const slot = own_slot(comm); slot != nullptr) {
    return call_own<Collective::kAllToAll>(slot, in, out, count, type, rcnSum, 0, stream);
  }
  return call_either(make_call(Collective::kAllToAll, in, out, count, type, rcnSum, 0), comm, stream,
                     rcn_nccl_forward_AlltoAll, in, out, count, type, comm, stream);
}
rcnResult_t rcn_nccl_AlltoAllConfig(const void* in, void* out, size_t count, rcnDataType_t type, void* comm,
                                    void* stream, const void* config) {
  if (config == nullptr) return rcn_nccl_AlltoAll(in, out, count, type, comm, stream);
  if (OwnSlot* const slot = own_slot(comm); slot != nullptr) {
    return call_own<Collective::kAllToAll>(slot, in, out, count, type, rcnSum, 0, stream, config);
  }
  return pass(Kind::kAllToAll, count, type, comm, rcn_nccl_forward_AlltoAllConfig, in, out, count, type,
              comm, stream, config);
}

rcnResult_t rcn_nccl_Send(const void* in, size_t count, rcnDataType_t type, int peer, void* comm,
                          void* stream) {
  return pass(Kind::kSend, count, type, comm, rcn_nccl_forward_Send, in, count, type, peer, comm, stream);
}
rcnResult_t rcn_nccl_Recv(void* out, size_t count, rcnDataType_t type, int peer, void* comm, void* stream) {
  return pass(Kind::kRecv, count, type, comm, rcn_nccl_forward_Recv, out, count, type, peer, comm, stream);
}

}  // extern "C"
