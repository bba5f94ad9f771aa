// SPDX-License-Identifier: Apache-2.0
//
// The table of exported functions, and calls of the real library's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "nccl_shim/libnccl/abi.h"

namespace rocenante::nccl {

enum class Returns : std::uint8_t { kResult, kString, kValue, kVoid };

enum class Export : std::uint32_t {
#define RCN_NCCL_EXPORT(name, since, returns, checked) k##name,
#include "exports.inc"
#undef RCN_NCCL_EXPORT
  kCount
};
inline constexpr std::size_t kNumExports = static_cast<std::size_t>(Export::kCount);

struct ExportRow {
  const char* name;  // without "nccl"
  const char* since;
  Returns returns;
};
const ExportRow& export_row(std::size_t index);

}  // namespace rocenante::nccl

// Jumps to the real function (forwarders.S). The first use loads the real library where the configuration
// has one; where there is none, or it lacks the function, the call returns rcnInvalidUsage and leaves a
// text.
extern "C" {
using rocenante::nccl::SimInfo;
rcnResult_t rcn_nccl_forward_GetVersion(int* version);
rcnResult_t rcn_nccl_forward_GetUniqueId(rcnUniqueId* id);
const char* rcn_nccl_forward_GetErrorString(rcnResult_t result);
const char* rcn_nccl_forward_GetLastError(void* comm);
void rcn_nccl_forward_ResetDebugInit();
rcnResult_t rcn_nccl_forward_CommInitRank(void** comm, int nranks, rcnUniqueId id, int rank);
rcnResult_t rcn_nccl_forward_CommInitRankConfig(void** comm, int nranks, rcnUniqueId id, int rank,
                                                void* config);
rcnResult_t rcn_nccl_forward_CommInitRankScalable(void** comm, int nranks, int rank, int ids,
                                                  rcnUniqueId* id, void* config);
rcnResult_t rcn_nccl_forward_CommInitAll(void** comm, int devices, const int* list);
rcnResult_t rcn_nccl_forward_CommFinalize(void* comm);
rcnResult_t rcn_nccl_forward_CommDestroy(void* comm);
rcnResult_t rcn_nccl_forward_CommAbort(void* comm);
rcnResult_t rcn_nccl_forward_CommRevoke(void* comm, int flags);
rcnResult_t rcn_nccl_forward_CommSplit(void* comm, int color, int key, void** made, void* config);
rcnResult_t rcn_nccl_forward_CommShrink(void* comm, int* excluded, int count, void** made, void* config,
                                        int flags);
rcnResult_t rcn_nccl_forward_CommGetUniqueId(void* comm, rcnUniqueId* id);
rcnResult_t rcn_nccl_forward_CommGrow(void* comm, int nranks, const rcnUniqueId* id, int rank, void** made,
                                      void* config);
rcnResult_t rcn_nccl_forward_CommCount(void* comm, int* count);
rcnResult_t rcn_nccl_forward_CommCuDevice(void* comm, int* device);
rcnResult_t rcn_nccl_forward_CommUserRank(void* comm, int* rank);
rcnResult_t rcn_nccl_forward_CommGetAsyncError(void* comm, rcnResult_t* error);
rcnResult_t rcn_nccl_forward_MemAlloc(void** pointer, size_t bytes);
rcnResult_t rcn_nccl_forward_MemFree(void* pointer);
rcnResult_t rcn_nccl_forward_CommRegister(void* comm, void* buffer, size_t bytes, void** handle);
rcnResult_t rcn_nccl_forward_CommDeregister(void* comm, void* handle);
rcnResult_t rcn_nccl_forward_CommWindowRegister(void* comm, void* buffer, size_t bytes, void** window,
                                                int flags);
rcnResult_t rcn_nccl_forward_CommWindowDeregister(void* comm, void* window);
rcnResult_t rcn_nccl_forward_RedOpCreatePreMulSum(rcnRedOp_t* op, void* scalar, rcnDataType_t type,
                                                  int residence, void* comm);
rcnResult_t rcn_nccl_forward_RedOpDestroy(rcnRedOp_t op, void* comm);
rcnResult_t rcn_nccl_forward_AllReduce(const void* in, void* out, size_t count, rcnDataType_t type,
                                       rcnRedOp_t op, void* comm, void* stream);
rcnResult_t rcn_nccl_forward_AllReduceConfig(const void* in, void* out, size_t count, rcnDataType_t type,
                                             rcnRedOp_t op, void* comm, void* stream, const void* config);
rcnResult_t rcn_nccl_forward_ReduceScatter(const void* in, void* out, size_t count, rcnDataType_t type,
                                           rcnRedOp_t op, void* comm, void* stream);
rcnResult_t rcn_nccl_forward_ReduceScatterConfig(const void* in, void* out, size_t count,
                                                 rcnDataType_t type, rcnRedOp_t op, void* comm,
                                                 void* stream, const void* config);
rcnResult_t rcn_nccl_forward_Reduce(const void* in, void* out, size_t count, rcnDataType_t type,
                                    rcnRedOp_t op, int root, void* comm, void* stream);
rcnResult_t rcn_nccl_forward_ReduceConfig(const void* in, void* out, size_t count, rcnDataType_t type,
                                          rcnRedOp_t op, int root, void* comm, void* stream,
                                          const void* config);
rcnResult_t rcn_nccl_forward_Bcast(void* buffer, size_t count, rcnDataType_t type, int root, void* comm,
                                   void* stream);
rcnResult_t rcn_nccl_forward_Broadcast(const void* in, void* out, size_t count, rcnDataType_t type,
                                       int root, void* comm, void* stream);
rcnResult_t rcn_nccl_forward_BroadcastConfig(const void* in, void* out, size_t count, rcnDataType_t type,
                                             int root, void* comm, void* stream, const void* config);
rcnResult_t rcn_nccl_forward_Gather(const void* in, void* out, size_t count, rcnDataType_t type, int root,
                                    void* comm, void* stream);
rcnResult_t rcn_nccl_forward_GatherConfig(const void* in, void* out, size_t count, rcnDataType_t type,
                                          int root, void* comm, void* stream, const void* config);
rcnResult_t rcn_nccl_forward_Scatter(const void* in, void* out, size_t count, rcnDataType_t type, int root,
                                     void* comm, void* stream);
rcnResult_t rcn_nccl_forward_ScatterConfig(const void* in, void* out, size_t count, rcnDataType_t type,
                                           int root, void* comm, void* stream, const void* config);
rcnResult_t rcn_nccl_forward_AllGather(const void* in, void* out, size_t count, rcnDataType_t type,
                                       void* comm, void* stream);
rcnResult_t rcn_nccl_forward_AllGatherConfig(const void* in, void* out, size_t count, rcnDataType_t type,
                                             void* comm, void* stream, const void* config);
rcnResult_t rcn_nccl_forward_AlltoAll(const void* in, void* out, size_t count, rcnDataType_t type,
                                      void* comm, void* stream);
rcnResult_t rcn_nccl_forward_AlltoAllConfig(const void* in, void* out, size_t count, rcnDataType_t type,
                                            void* comm, void* stream, const void* config);
rcnResult_t rcn_nccl_forward_Send(const void* in, size_t count, rcnDataType_t type, int peer, void* comm,
                                  void* stream);
rcnResult_t rcn_nccl_forward_Recv(void* out, size_t count, rcnDataType_t type, int peer, void* comm,
                                  void* stream);
rcnResult_t rcn_nccl_forward_GroupStart();
rcnResult_t rcn_nccl_forward_GroupEnd();
rcnResult_t rcn_nccl_forward_GroupSimulateEnd(SimInfo* info);
}
