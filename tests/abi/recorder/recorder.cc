// SPDX-License-Identifier: Apache-2.0
#include "tests/abi/recorder/recorder.h"

#include <rocenante/rocenante.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <mutex>
#include <vector>

#include "tests/abi/recorder/world.h"

namespace {

using namespace rocenante::test;  // NOLINT(google-build-using-namespace)

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

std::mutex mutex;
std::vector<RecordedCall>* calls = new std::vector<RecordedCall>;
std::atomic<bool> ids_are_full{false};
std::atomic<bool> is_recording{true};

Answer answer_of(std::uint32_t index) {
  // The low half is one of NCCL's error codes.
  return {0x5a5a0000'00000001U + index % 6, 0x1111'2222'0000'0000U + index};
}

rcnResult_t set_int(std::uint64_t word, int value) {
  *reinterpret_cast<int*>(word) = value;
  return rcnSuccess;
}

Comm* comm_at(std::uint64_t word) {
  return reinterpret_cast<Comm*>(word);
}
Comm** handle_at(std::uint64_t word) {
  return reinterpret_cast<Comm**>(word);
}
int int_of(std::uint64_t word) {
  return static_cast<int>(word);
}

// What an ncclConfig_t says, or of a null one the parent's.
bool blocking_of(std::uint64_t config, const Comm* parent) {
  if (config == 0) return parent == nullptr || parent->blocking;
  int blocking = 1;
  std::memcpy(&blocking, reinterpret_cast<const char*>(config) + 16, sizeof blocking);
  return blocking != 0;
}

// A collective; false for what is none, or is on no communicator of the recorder's.
bool perform_call(std::uint32_t index, const std::uint64_t* words, const std::uint64_t* stack) {
  Call call{nullptr,
            Does::kAllReduce,
            reinterpret_cast<const float*>(words[0]),
            reinterpret_cast<float*>(words[1]),
            words[2],
            0};
  std::uint64_t comm = words[5];
  switch (index) {
    case kAllReduce:
      break;
    case kReduceScatter:
      call.does = Does::kReduceScatter;
      break;
    case kAllGather:
    case kAlltoAll:
      call.does = index == kAllGather ? Does::kAllGather : Does::kAllToAll;
      comm = words[4];
      break;
    case kBroadcast:
      call.does = Does::kBroadcast;
      call.root = int_of(words[4]);
      break;
    case kReduce:
      call.does = Does::kReduce;
      call.root = int_of(words[5]);
      comm = stack[0];
      break;
    default:
      return false;
  }
  if (!is_comm(comm)) return false;
  call.comm = comm_at(comm);
  (void)issue(call);
  return true;
}

bool begins_with_comm(std::uint32_t index) {
  constexpr std::uint32_t kWith[] = {kCommSplit,   kCommShrink,   kCommGrow,          kCommGetUniqueId,
                                     kCommCount,   kCommUserRank, kCommGetAsyncError, kCommRevoke,
                                     kCommDestroy, kCommAbort};
  return std::find(std::begin(kWith), std::end(kWith), index) != std::end(kWith);
}

// What makes, asks and ends communicators; false for all that is only recorded.
bool perform(std::uint32_t index, const std::uint64_t* words, const std::uint64_t* stack,
             rcnResult_t* result) {
  Comm* const comm = begins_with_comm(index) && is_comm(words[0]) ? comm_at(words[0]) : nullptr;
  *result = rcnSuccess;
  switch (index) {
    case kGetVersion:
      *result = set_int(words[0], 22809);
      return true;
    case kGetUniqueId:
      make_id(reinterpret_cast<char*>(words[0]), ids_are_full);
      return true;
    case kCommInitRank:
    case kCommInitRankConfig:
      if (std::memcmp(stack, "recorded", 8) != 0) return false;
      *result = make_comm(handle_at(words[0]), int_of(words[1]), stack, int_of(words[2]),
                          index == kCommInitRank || blocking_of(words[3], nullptr));
      return true;
    case kCommInitAll:
      if (words[1] == 0 || words[2] != 0) return false;
      *result = make_all(handle_at(words[0]), words[1]);
      return true;
    case kGroupStart:
      start_group();
      return true;
    case kGroupEnd:
      return end_group();
    case kCommGrow:
      if (comm == nullptr && words[0] != 0) return false;
      if (comm == nullptr) {
        *result = make_comm(handle_at(words[4]), int_of(words[1]), reinterpret_cast<const void*>(words[2]),
                            int_of(words[3]), blocking_of(words[5], nullptr));
      } else {
        *result = grow(comm, int_of(words[1]), handle_at(words[4]), blocking_of(words[5], comm));
      }
      return true;
    default:
      break;
  }
  if (perform_call(index, words, stack)) return true;
  if (comm == nullptr) return false;
  switch (index) {
    case kCommSplit:
      *result = issue(Split{comm, int_of(words[1]), int_of(words[2]), handle_at(words[3]),
                            blocking_of(words[4], comm)});
      return true;
    case kCommShrink:
      *result = shrink(comm, reinterpret_cast<const int*>(words[1]), int_of(words[2]), handle_at(words[3]),
                       blocking_of(words[4], comm));
      return true;
    case kCommGetUniqueId:
      *result = make_grow_id(comm, reinterpret_cast<char*>(words[1]), ids_are_full);
      return true;
    case kCommCount:
      *result = set_int(words[1], ranks_of(*comm));
      return true;
    case kCommUserRank:
      *result = set_int(words[1], comm->rank);
      return true;
    case kCommGetAsyncError:
      *result = set_int(words[1], state_of(comm));
      return true;
    case kCommRevoke:
      return true;
    case kCommDestroy:
    case kCommAbort:
      bury(comm);
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
  if (index == kGroupSimulateEnd) drop_group();
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
