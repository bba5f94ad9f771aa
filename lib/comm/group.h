// SPDX-License-Identifier: Apache-2.0
//
// Groups: calls of one thread between start and end, performed together by the end.
#pragma once

#include <memory>
#include <vector>

#include "lib/base/config.h"
#include "lib/base/status.h"
#include "lib/comm/communicator.h"
#include "lib/comm/unique_id.h"

namespace rocenante {

// An initialisation to be done; `handle` is where the caller wants its communicator.
struct PendingInit {
  void** handle;
  UniqueId id;
  std::uint32_t rank;
  std::uint32_t ranks;
  Config config;
  // Opened here, on the thread that asks: which device is current is a thread's.
  Result<std::shared_ptr<Device>> device = open_device(config.text(Key::kDevice));
};

// The calling thread's group.
class CallGroup {
 public:
  static CallGroup& of_this_thread();

  bool open() const { return depth_ != 0; }
  unsigned depth() const { return depth_; }
  void start() { ++depth_; }
  // The outermost end performs everything, or nothing if a call of the group was refused: the others of
  // this thread may wait for that one. Returns the first error.
  Status end();
  // A call that was to be added had an error.
  void refuse(const Status& status);
  const Status& refused() const { return refused_; }
  // Ends one level; at the outermost, what was noted is forgotten.
  void discard();

  void add(PendingInit init) { inits_.push_back(std::move(init)); }
  // A checked call; `stream` where the communicator's device has streams.
  void add(void* handle, const CollectiveCall& call, void* stream = nullptr) {
    calls_.push_back({handle, call, stream});
  }

 private:
  struct PendingCall {
    void* handle;
    CollectiveCall call;
    void* stream;
  };

  Status run_inits(const std::vector<PendingInit>& inits);
  // Performs the calls on host memory, enqueues the others.
  Status run_calls(const std::vector<PendingCall>& calls);

  unsigned depth_ = 0;
  Status refused_;  // the first
  std::vector<PendingInit> inits_;
  std::vector<PendingCall> calls_;
};

// Makes the communicator and its handle.
Status initialise(const PendingInit& init);

}  // namespace rocenante
