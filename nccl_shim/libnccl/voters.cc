// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/voters.h"

#include <atomic>
#include <list>
#include <mutex>
#include <thread>

#include "lib/comm/boundary.h"
#include "lib/net/deadline.h"
#include "lib/net/fork.h"
#include "lib/net/keep_forever.h"
#include "lib/net/thread.h"

namespace rocenante::nccl {
namespace {

// A communicator on memory of a kind that is not built: the vote is in making it.
Status vote(const UniqueId& id, int rank, int ranks) {
  RCN_ASSIGN(Config config, load_settings("ROCENANTE_DEVICE=cuda"));
  void* nothing = nullptr;
  return initialise(PendingInit{&nothing, id, static_cast<std::uint32_t>(rank),
                                static_cast<std::uint32_t>(ranks), std::move(config)});
}

struct Voter {
  std::atomic<bool> cancel{false};
  std::atomic<bool> done{false};
  std::thread thread;
  std::uint64_t fork_generation = net::fork_generation();

  // In a child of a fork the thread is not there to be waited for.
  bool is_inherited() const { return fork_generation != net::fork_generation(); }
};

// Made at the first vote, so that it is destroyed before what its threads use.
class Voters {
 public:
  Status start(const UniqueId& id, int rank, int ranks) {
    const std::lock_guard lock(mutex_);
    voters_.remove_if([](Voter& voter) {
      if (voter.is_inherited() || !voter.done.load(std::memory_order_acquire)) return false;
      voter.thread.join();
      return true;
    });
    Voter& voter = voters_.emplace_back();
    Result<std::thread> thread = net::start_quiet_thread("rcn-vote", [&voter, id, rank, ranks] {
      const net::ScopedCancel cancel(voter.cancel);
      (void)guarded([&] { return vote(id, rank, ranks); });
      voter.done.store(true, std::memory_order_release);
    });
    if (!thread.ok()) {
      voters_.pop_back();
      return thread.status();
    }
    voter.thread = thread.take();
    return {};
  }
  ~Voters() {
    for (Voter& voter : voters_) voter.cancel.store(true, std::memory_order_relaxed);
    for (Voter& voter : voters_) {
      if (voter.is_inherited()) {
        net::keep_forever(std::move(voter.thread));
      } else {
        voter.thread.join();
      }
    }
  }

 private:
  std::mutex mutex_;
  std::list<Voter> voters_;
};

}  // namespace

Status vote_no(const UniqueId& id, int rank, int ranks) {
  static Voters voters;
  return voters.start(id, rank, ranks);
}

}  // namespace rocenante::nccl
