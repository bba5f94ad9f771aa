// SPDX-License-Identifier: Apache-2.0
#include "tests/abi/recorder/recorder.h"

#include <rocenante/rocenante.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

using rocenante::test::RecordedCall;
using rocenante::test::Recorder;

enum Row : std::uint32_t {
#define RCN_RECORDED(name, returns, arguments) k##name,
#include "recorded.inc"
#undef RCN_RECORDED
  kRows
};

struct Answer {
  std::uint64_t first;
  std::uint64_t second;
};

// One all-reduce of a world: complete when all ranks have brought their values.
struct Exchange {
  std::vector<float> sum;
  int arrived = 0;
};

struct World {
  int ranks = 0;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::uint64_t, Exchange> exchanges;
};

struct Comm {
  std::uint64_t magic = 0x0280028002800280;
  std::shared_ptr<World> world;
  int rank = 0;
  std::uint64_t next = 0;
};

struct Call {
  Comm* comm;
  const float* in;
  float* out;
  std::size_t count;
};

std::mutex mutex;
std::vector<RecordedCall>* calls = new std::vector<RecordedCall>;
std::map<std::string, std::shared_ptr<World>>* worlds = new std::map<std::string, std::shared_ptr<World>>;
std::vector<Comm*>* graveyard = new std::vector<Comm*>;
std::atomic<bool> ids_are_full{false};
std::atomic<bool> is_recording{true};

thread_local unsigned depth = 0;
thread_local std::vector<Call> pending;

Answer answer_of(std::uint32_t index) {
  // The low half is one of NCCL's error codes.
  return {0x5a5a0000'00000001U + index % 6, 0x1111'2222'0000'0000U + index};
}

void bring(const Call& call) {
  World& world = *call.comm->world;
  const std::lock_guard lock(world.mutex);
  Exchange& exchange = world.exchanges[call.comm->next];
  exchange.sum.resize(call.count);
  for (std::size_t i = 0; i < call.count; ++i) exchange.sum[i] += call.in[i];
  ++exchange.arrived;
  world.changed.notify_all();
}

void take(const Call& call) {
  World& world = *call.comm->world;
  std::unique_lock lock(world.mutex);
  Exchange& exchange = world.exchanges[call.comm->next++];
  world.changed.wait(lock, [&] { return exchange.arrived == world.ranks; });
  std::copy(exchange.sum.begin(), exchange.sum.end(), call.out);
}

// The first call of each communicator together, then the second, and so on: as a group promises.
void end_group() {
  std::vector<Call> all = std::exchange(pending, {});
  while (!all.empty()) {
    std::vector<Call> now;
    std::vector<Call> later;
    for (const Call& call : all) {
      bool first = true;
      for (const Call& other : now) first = first && other.comm != call.comm;
      (first ? now : later).push_back(call);
    }
    for (const Call& call : now) bring(call);
    for (const Call& call : now) take(call);
    all = std::move(later);
  }
}

rcnResult_t all_reduce(const std::uint64_t* words) {
  const Call call{reinterpret_cast<Comm*>(words[5]), reinterpret_cast<const float*>(words[0]),
                  reinterpret_cast<float*>(words[1]), words[2]};
  if (depth != 0) {
    pending.push_back(call);
    return rcnSuccess;
  }
  bring(call);
  take(call);
  return rcnSuccess;
}

rcnResult_t make_comm(Comm** comm, int ranks, const void* id, int rank) {
  const std::lock_guard lock(mutex);
  std::shared_ptr<World>& world = (*worlds)[std::string(static_cast<const char*>(id), 40)];
  if (world == nullptr) world = std::make_shared<World>();
  world->ranks = ranks;
  *comm = new Comm{0x0280028002800280, world, rank, 0};
  return rcnSuccess;
}

// By colour alone: the tests give keys in the order of ranks.
rcnResult_t split_comm(Comm* parent, int color, Comm** comm, int members, int rank) {
  if (color < 0) {
    *comm = nullptr;
    return rcnSuccess;
  }
  std::string id = "split" + std::to_string(color) + "of" +
                   std::to_string(reinterpret_cast<std::uintptr_t>(parent->world.get()));
  id.resize(40);
  return make_comm(comm, members, id.data(), rank);
}

// What is destroyed stays recognisable as such, so that a call on it afterwards fails and does not crash.
void bury(Comm* comm) {
  const std::lock_guard lock(mutex);
  comm->magic = 0;
  graveyard->push_back(comm);
}

rcnResult_t make_id(char* id) {
  static std::atomic<int> number{1};
  std::memset(id, 0, 128);
  std::memcpy(id, "recorded", 8);
  const int mine = number.fetch_add(1);
  std::memcpy(id + 8, &mine, sizeof mine);
  if (ids_are_full) std::memset(id + 40, 7, 88);
  return rcnSuccess;
}

bool is_comm(std::uint64_t word) {
  return *reinterpret_cast<const std::uint64_t*>(word) == 0x0280028002800280;
}

rcnResult_t set_int(std::uint64_t word, int value) {
  *reinterpret_cast<int*>(word) = value;
  return rcnSuccess;
}

// What the recorder performs; false for all it only records.
bool perform(std::uint32_t index, const std::uint64_t* words, const std::uint64_t* stack,
             rcnResult_t* result) {
  switch (index) {
    case kGetVersion:
      *result = set_int(words[0], 22809);
      return true;
    case kGetUniqueId:
      *result = make_id(reinterpret_cast<char*>(words[0]));
      return true;
    case kCommInitRank:
    case kCommInitRankConfig:
      if (std::memcmp(stack, "recorded", 8) != 0) return false;
      *result = make_comm(reinterpret_cast<Comm**>(words[0]), static_cast<int>(words[1]), stack,
                          static_cast<int>(words[2]));
      return true;
    case kCommInitAll: {
      if (words[1] == 0 || words[2] != 0) return false;
      char id[128];
      make_id(id);
      for (std::uint64_t rank = 0; rank < words[1]; ++rank) {
        *result = make_comm(reinterpret_cast<Comm**>(words[0]) + rank, static_cast<int>(words[1]), id,
                            static_cast<int>(rank));
      }
      return true;
    }
    case kCommSplit: {
      if (!is_comm(words[0])) return false;
      auto* const parent = reinterpret_cast<Comm*>(words[0]);
      // Odd and even ranks.
      const int color = static_cast<int>(words[1]);
      const int members = (parent->world->ranks + (color == 0 ? 1 : 0)) / 2;
      *result = split_comm(parent, color, reinterpret_cast<Comm**>(words[3]), members, parent->rank / 2);
      return true;
    }
    case kCommCount:
    case kCommUserRank:
      if (!is_comm(words[0])) return false;
      *result = set_int(words[1], index == kCommCount ? reinterpret_cast<Comm*>(words[0])->world->ranks
                                                      : reinterpret_cast<Comm*>(words[0])->rank);
      return true;
    case kCommGetAsyncError:
      if (!is_comm(words[0])) return false;
      *result = set_int(words[1], 0);
      return true;
    case kCommDestroy:
    case kCommAbort:
      if (!is_comm(words[0])) return false;
      bury(reinterpret_cast<Comm*>(words[0]));
      *result = rcnSuccess;
      return true;
    case kAllReduce:
      if (!is_comm(words[5])) return false;
      *result = all_reduce(words);
      return true;
    case kGroupStart:
      ++depth;
      *result = rcnSuccess;
      return true;
    case kGroupEnd:
      if (depth == 0) return false;
      if (--depth == 0) end_group();
      *result = rcnSuccess;
      return true;
    default:
      return false;
  }
}

void clear() {
  const std::lock_guard lock(mutex);
  calls->clear();
}
std::uint32_t count(std::uint32_t index) {
  const std::lock_guard lock(mutex);
  std::uint32_t found = 0;
  for (const RecordedCall& call : *calls) found += call.index == index ? 1 : 0;
  return found;
}
bool last(std::uint32_t index, RecordedCall* result) {
  const std::lock_guard lock(mutex);
  for (auto call = calls->rbegin(); call != calls->rend(); ++call) {
    if (call->index != index) continue;
    *result = *call;
    return true;
  }
  return false;
}
void answer(std::uint32_t index, std::uint64_t* first, std::uint64_t* second) {
  *first = answer_of(index).first;
  *second = answer_of(index).second;
}
void fill_ids(bool fill) {
  ids_are_full = fill;
}
const Recorder kRecorder{clear, count, last, answer, fill_ids};

}  // namespace

extern "C" {

__attribute__((visibility("default"))) const Recorder* recorder_api() {
  return &kRecorder;
}

// For the benchmark, which knows the recorder by its path only.
__attribute__((visibility("default"))) void recorder_silence() {
  is_recording = false;
}

// As in the real library: a call of a public function, which the loader may lead elsewhere.
__attribute__((visibility("default"))) rcnResult_t ncclBroadcast(const void*, void*, std::size_t, int, int,
                                                                 void*, void*);

Answer recorder_record(std::uint32_t index, const std::uint64_t* words, const std::uint64_t* stack) {
  if (is_recording.load(std::memory_order_relaxed)) {
    RecordedCall call{};
    call.index = index;
    std::memcpy(call.words, words, sizeof call.words);
    std::memcpy(call.stack, stack, sizeof call.stack);
    const std::lock_guard lock(mutex);
    calls->push_back(call);
  }
  if (index == kGroupSimulateEnd && depth != 0 && --depth == 0) pending.clear();
  if (index == kGetErrorString) return {reinterpret_cast<std::uint64_t>("recorded error string"), 0};
  if (index == kGetLastError) return {reinterpret_cast<std::uint64_t>("recorded last error"), 0};
  rcnResult_t result = rcnSuccess;
  if (perform(index, words, stack, &result)) return {static_cast<std::uint64_t>(result), 0};
  if (index == kBcast && is_comm(words[4])) {
    auto* const buffer = reinterpret_cast<void*>(words[0]);
    return {static_cast<std::uint64_t>(ncclBroadcast(
                buffer, buffer, words[1], static_cast<int>(words[2]), static_cast<int>(words[3]),
                reinterpret_cast<void*>(words[4]), reinterpret_cast<void*>(words[5]))),
            0};
  }
  return answer_of(index);
}
}
