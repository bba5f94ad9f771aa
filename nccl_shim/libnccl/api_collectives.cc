// SPDX-License-Identifier: Apache-2.0
//
// NCCL's collectives. In our own world all are ours that lib/comm has; beside the real library all-reduce
// is where the size says so, and the others are the real one's.
#include <cstring>

#include "nccl_shim/libnccl/api.h"

namespace rocenante::nccl {
namespace {

CollectiveCall make_call(const void* in, void* out, size_t count, rcnDataType_t type, rcnRedOp_t op) {
  return {in, out, count, static_cast<reduce::DataType>(type), static_cast<std::uint32_t>(op)};
}

// A call on a communicator of our own world; `op` is rcnSum and `root` 0 where the collective has none.
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
    CollectiveCall call = make_call(in, out, count, type, op);
    call.collective = kCollective;
    call.root = static_cast<std::uint32_t>(root);
    return submit(core, call, stream);
  });
}

rcnResult_t hold(void* comm, bool may_be_ours, const CollectiveCall& call, void* stream) {
  return answer([&]() -> Status {
    ThreadGroup::of_this_thread().side_calls.push_back(
        {comm, may_be_ours, call, stream, [=] {
           return rcn_nccl_forward_AllReduce(call.input, call.output, call.count,
                                             static_cast<rcnDataType_t>(call.type),
                                             static_cast<rcnRedOp_t>(call.op), comm, stream);
         }});
    return {};
  });
}

bool is_plausible(rcnDataType_t type, rcnRedOp_t op) {
  return static_cast<unsigned>(type) < rcnNumTypes && static_cast<int>(op) >= 0;
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
  if (SidePin side(comm); side && is_plausible(type, op) && !inside_real()) {
    const CollectiveCall call = make_call(in, out, count, type, op);
    switch (const Route route = route_all_reduce(*side, call, comm); route) {
      case Route::kOurs:
        return answer([&] { return submit(side->core, call, stream); });
      case Route::kReal:
        break;
      case Route::kCandidate:
      case Route::kHeld:
        return hold(comm, route == Route::kCandidate, call, stream);
    }
  }
  if (owner_of(comm) == Owner::kNobody) return refuse_call(comm);
  return rcn_nccl_forward_AllReduce(in, out, count, type, op, comm, stream);
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
  return pass(Kind::kReduceScatter, count, type, comm, rcn_nccl_forward_ReduceScatter, in, out, count, type,
              op, comm, stream);
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
  return pass(Kind::kReduce, count, type, comm, rcn_nccl_forward_Reduce, in, out, count, type, op, root,
              comm, stream);
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
  return pass(Kind::kBroadcast, count, type, comm, rcn_nccl_forward_Bcast, buffer, count, type, root, comm,
              stream);
}
rcnResult_t rcn_nccl_Broadcast(const void* in, void* out, size_t count, rcnDataType_t type, int root,
                               void* comm, void* stream) {
  if (OwnSlot* const slot = own_slot(comm); slot != nullptr) {
    return call_own<Collective::kBroadcast>(slot, in, out, count, type, rcnSum, root, stream);
  }
  return pass(Kind::kBroadcast, count, type, comm, rcn_nccl_forward_Broadcast, in, out, count, type, root,
              comm, stream);
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
  return pass(Kind::kAllGather, count, type, comm, rcn_nccl_forward_AllGather, in, out, count, type, comm,
              stream);
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
  return pass(Kind::kAllToAll, count, type, comm, rcn_nccl_forward_AlltoAll, in, out, count, type, comm,
              stream);
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
