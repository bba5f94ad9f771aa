// SPDX-License-Identifier: Apache-2.0
//
// NCCL's names, as tests call them in the library under test, with the types of our own header.
#pragma once

#include <rocenante/rocenante.h>

#include <cstddef>

#include "nccl_shim/libnccl/abi.h"

extern "C" {
struct Team {
  int ranks, rank, stride;
};
rcnResult_t ncclGetVersion(int* version);
const char* ncclGetErrorString(rcnResult_t result);
const char* ncclGetLastError(void* comm);
rcnResult_t ncclGetUniqueId(rcnUniqueId* id);
rcnResult_t ncclCommInitRank(void** comm, int ranks, rcnUniqueId id, int rank);
rcnResult_t ncclCommInitRankConfig(void** comm, int ranks, rcnUniqueId id, int rank, void* config);
rcnResult_t ncclCommInitRankScalable(void** comm, int ranks, int rank, int ids, rcnUniqueId* id,
                                     void* config);
rcnResult_t ncclCommInitAll(void** comms, int count, const int* devices);
rcnResult_t ncclCommFinalize(void* comm);
rcnResult_t ncclCommDestroy(void* comm);
rcnResult_t ncclCommAbort(void* comm);
rcnResult_t ncclCommRevoke(void* comm, int flags);
rcnResult_t ncclCommShrink(void* comm, int* excluded, int count, void** made, void* config, int flags);
rcnResult_t ncclCommGetUniqueId(void* comm, rcnUniqueId* id);
rcnResult_t ncclCommGrow(void* comm, int ranks, const rcnUniqueId* id, int rank, void** made, void* config);
rcnResult_t ncclCommCount(void* comm, int* count);
rcnResult_t ncclCommUserRank(void* comm, int* rank);
rcnResult_t ncclCommCuDevice(void* comm, int* device);
rcnResult_t ncclCommGetAsyncError(void* comm, rcnResult_t* error);
rcnResult_t ncclCommRegister(void* comm, void* buffer, size_t bytes, void** handle);
rcnResult_t ncclCommDeregister(void* comm, void* handle);
rcnResult_t ncclMemAlloc(void** pointer, size_t bytes);
rcnResult_t ncclMemFree(void* pointer);
rcnResult_t ncclRedOpCreatePreMulSum(rcnRedOp_t* op, void* scalar, rcnDataType_t type,
                                     rcnScalarResidence_t where, void* comm);
rcnResult_t ncclRedOpDestroy(rcnRedOp_t op, void* comm);
rcnResult_t ncclAllReduce(const void* in, void* out, size_t count, rcnDataType_t type, rcnRedOp_t op,
                          void* comm, void* stream);
rcnResult_t ncclAllReduceConfig(const void* in, void* out, size_t count, rcnDataType_t type, rcnRedOp_t op,
                                void* comm, void* stream, const void* config);
rcnResult_t ncclAllGather(const void* in, void* out, size_t count, rcnDataType_t type, void* comm,
                          void* stream);
rcnResult_t ncclAllGatherConfig(const void* in, void* out, size_t count, rcnDataType_t type, void* comm,
                                void* stream, const void* config);
rcnResult_t ncclReduceScatter(const void* in, void* out, size_t count, rcnDataType_t type, rcnRedOp_t op,
                              void* comm, void* stream);
rcnResult_t ncclBroadcast(const void* in, void* out, size_t count, rcnDataType_t type, int root, void* comm,
                          void* stream);
rcnResult_t ncclReduce(const void* in, void* out, size_t count, rcnDataType_t type, rcnRedOp_t op, int root,
                       void* comm, void* stream);
rcnResult_t ncclAlltoAll(const void* in, void* out, size_t count, rcnDataType_t type, void* comm,
                         void* stream);
rcnResult_t ncclSend(const void* in, size_t count, rcnDataType_t type, int peer, void* comm, void* stream);
rcnResult_t ncclGroupStart();
rcnResult_t ncclGroupEnd();
rcnResult_t ncclGroupSimulateEnd(rocenante::nccl::SimInfo* info);
rcnResult_t ncclCommSuspend(void* comm, int flags);
Team ncclTeamWorld(void* comm);
int ncclLLA2ACalcSlots(int elements, int size);
rcnResult_t ncclSetEncryption(const void* config);
rcnResult_t ncclCommSplit(void* comm, int color, int key, void** made, void* config);
rcnResult_t ncclBcast(void* buffer, size_t count, rcnDataType_t type, int root, void* comm, void* stream);
}
