// SPDX-License-Identifier: Apache-2.0
//
// Communicators of our own world: on host memory, without the real library.
#pragma once

#include <functional>
#include <vector>

#include "lib/comm/driver.h"
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

// Tells the client a handle, which another thread of its may be looking for.
inline void tell(void** handle, void* value) {
  std::atomic_ref(*handle).store(value, std::memory_order_release);
}

// An initialisation: the slot is taken before the ranks meet.
struct OwnInit {
  void** handle;
  OwnSlot* slot;
  UniqueId id;
  bool in_background = false;
  // Of a communicator that others grow into, which they do with the calls that make others out of theirs.
  bool joins = false;
  // Of a child: its handle is null already, and its client may have given that up when it gives up the
  // parent, or the process: it is written only to tell of success, and not then.
  bool is_child = false;
  std::uint64_t driver = thread_number();  // whose it will be
};
// The client's thread opens the device before.
Result<OwnInit> prepare_init(void** handle, int nranks, const UniqueId& id, int rank, bool blocking,
                             OwnDevice device, Config config);

// Performs them, all at once: those in the background on threads of their own, their handles told at once;
// the others before it returns, their handles null until then. The first error, or InProgress if some go
// on.
Status run_inits(const std::vector<OwnInit>& inits);

// Does `work` on a communicator that is ready in the background, while its calls are refused: InProgress,
// or why it could not begin. If it fails, so does the communicator.
Status start_work(OwnSlot* slot, std::function<Status()> work);
// The same of one that may have failed.
Status start_rescue(OwnSlot* slot, std::function<Status()> work);

// `joins` as in OwnInit.
Status init_rank(void** comm, int nranks, const rcnUniqueId& id, int rank, const void* config,
                 bool joins = false);
Status init_all(void** comms, int count, const int* devices);

// Leaves the others, where the communicator is non-blocking: in the background, as InProgress says.
Status finalize(OwnSlot* slot);
Status run_finalize(OwnSlot* slot);
Status revoke(OwnSlot* slot, int flags);
// What ncclCommGetAsyncError says.
Result<Code> async_code(OwnSlot* slot);

}  // namespace rocenante::nccl
