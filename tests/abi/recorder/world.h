// SPDX-License-Identifier: Apache-2.0
//
// What the recording NCCL performs: communicators between threads of a process, and their collectives, of
// float32 sums on host memory.
#pragma once

#include <rocenante/rocenante.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

namespace rocenante::test {

enum class Does : std::uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce, kAllToAll };

struct World;

struct Comm {
  std::uint64_t magic = 0x0280028002800280;  // as the real one begins
  std::shared_ptr<World> world;
  int rank = 0;
  bool blocking = true;
  std::uint64_t next = 0;         // collective
  std::uint64_t next_split = 0;   // split
  std::uint64_t next_shrink = 0;  // shrink
  // What non-blocking calls have yet to do, one after the other; true once it is done.
  std::deque<std::function<bool()>> unfinished;
};

struct Call {
  Comm* comm;
  Does does;
  const float* in;
  float* out;
  std::size_t count;
  int root;
};

struct Split {
  Comm* comm;
  int color;
  int key;
  Comm** made;
  bool blocking;
};

bool is_comm(std::uint64_t word);
int ranks_of(const Comm& comm);

// An id that no other is like.
void make_id(char* id, bool is_full);

// Non-blocking ones are done after some questions. `id` is the first 40 bytes of one.
rcnResult_t make_comm(Comm** comm, int ranks, const void* id, int rank, bool blocking);
rcnResult_t make_all(Comm** comms, std::uint64_t count);
// ncclCommGetAsyncError; non-blocking calls go on in it.
int state_of(Comm* comm);
// What is destroyed stays recognisable as such, so that a call on it afterwards fails and does not crash.
void bury(Comm* comm);

// Performed at once, or with its group.
rcnResult_t issue(const Call& call);
rcnResult_t issue(const Split& split);
// Without the excluded ranks, who need not call.
rcnResult_t shrink(Comm* parent, const int* excluded, int count, Comm** made, bool blocking);
// The id of a communicator that `parent` grows into.
rcnResult_t make_grow_id(Comm* parent, char* id, bool is_full);
// Of a rank that was there before.
rcnResult_t grow(Comm* parent, int ranks, Comm** made, bool blocking);

void start_group();
// False where there is none.
bool end_group();
void drop_group();

}  // namespace rocenante::test
