// SPDX-License-Identifier: Apache-2.0
//
// Communicators of our own world: on host memory, without the real library.
#pragma once

#include <vector>

#include "lib/comm/unique_id.h"
#include "nccl_shim/libnccl/abi.h"
#include "nccl_shim/libnccl/own_table.h"

namespace rocenante::nccl {

UniqueId to_internal(const rcnUniqueId& id);
void to_public(const UniqueId& id, rcnUniqueId* result);
// Whether the id was made by our own world; everything else is the real library's.
bool is_own_id(const rcnUniqueId& id);

// What an ncclConfig_t says about blocking. InvalidArgument for one that was not initialised as NCCL asks.
Result<bool> read_blocking(const void* config);

// An initialisation: the slot is taken, and the client has its handle, before the ranks meet.
struct OwnInit {
  void** handle;
  OwnSlot* slot;
  UniqueId id;
};
Result<OwnInit> prepare_init(void** handle, int nranks, const rcnUniqueId& id, int rank, int device,
                             bool blocking);

// Performs them, all at once: blocking ones before it returns, the others on threads of their own. The
// first error, or InProgress if some go on. A blocking one that fails leaves a null handle.
Status run_inits(const std::vector<OwnInit>& inits);

Status init_rank(void** comm, int nranks, const rcnUniqueId& id, int rank, const void* config);
Status init_all(void** comms, int count, const int* devices);

Status finalize(OwnSlot* slot);
Status revoke(OwnSlot* slot, int flags);
// What ncclCommGetAsyncError says.
Result<Code> async_code(OwnSlot* slot);

struct SplitRequest {
  OwnSlot* parent;
  int color;
  int key;
  void** made;
};
// Splits, together, those that one thread holds. Collective over each parent; the new communicators are
// ready when it returns, also those of non-blocking parents: clients then ask the parent whether they are.
Status run_splits(const std::vector<SplitRequest>& requests);
Status split(const SplitRequest& request);

// What a rank's colour and key make of it: an id to meet at, its place and how many there are; no ranks
// without a colour. Collective over the communicator of lib/comm.
struct SplitResult {
  UniqueId id;
  int rank = 0;
  int ranks = 0;
};
Result<SplitResult> exchange_split(void* core, int rank, int ranks, int color, int key,
                                   const Config& config);

}  // namespace rocenante::nccl
