// SPDX-License-Identifier: Apache-2.0
//
// What a thread has said between ncclGroupStart and ncclGroupEnd. Calls of our own world are in the group
// of lib/comm; this holds the rest.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/comm/communicator.h"
#include "nccl_shim/libnccl/abi.h"
#include "nccl_shim/libnccl/own_children.h"
#include "nccl_shim/libnccl/own_world.h"
#include "nccl_shim/libnccl/real_world.h"
#include "nccl_shim/libnccl/side_table.h"

namespace rocenante::nccl {

class ThreadGroup {
 public:
  static ThreadGroup& of_this_thread();
  ThreadGroup() = default;
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;
  // With the thread, which may have left a group open.
  ~ThreadGroup();

  Status start();
  // The outermost end performs everything; the first error, or InProgress.
  rcnResult_t end();
  // Ends the group and performs nothing of it. `*real`: the real library's group is still to be ended.
  Status discard(bool* real);

  std::vector<OwnInit> inits;
  std::vector<Child> children;
  std::vector<OwnSlot*> finalizes;
  std::vector<OwnSlot*> destroys;
  // The real library's last error text when this thread's last one of ours came.
  std::string real_error;

  // Communicators the real library is making; they are known by their handles once the group has ended.
  struct RealInit {
    void** handle;
    std::unique_ptr<SideEntry> entry;
  };
  std::vector<RealInit> real_inits;
  // Communicators it is making out of others; our sides follow.
  std::vector<RealChild> real_children;

  // Calls on communicators of the side table, in issue order, from the first of ours on.
  struct SideCall {
    void* comm;
    bool may_be_ours;
    CollectiveCall call;  // of no elements where it was counted already
    void* stream;
    std::function<rcnResult_t()> forward;
  };
  std::vector<SideCall> side_calls;
  // Whether a later call on it must wait for the end, to keep its place.
  bool holds(void* comm) const;
  // Ends it at the group's end if calls on it, or what is made out of it, wait for that.
  bool end_later(void* comm, rcnResult_t (*forward)(void*));

 private:
  Status drop();
  rcnResult_t end_all();
  rcnResult_t run_side_calls();
  rcnResult_t run_real_ends();
  rcnResult_t adopt_made(rcnResult_t result);

  struct RealEnd {
    void* comm;
    rcnResult_t (*forward)(void*);
  };
  std::vector<RealEnd> real_ends_;
  bool real_is_open_ = false;
};

}  // namespace rocenante::nccl
