// SPDX-License-Identifier: Apache-2.0
//
// Splitting a communicator of our own world: its ranks tell each other colour and key, the first of each
// new communicator makes its id, the ids go round, and the new ranks meet.
//
// Both exchanges are an all-reduce over the parent of bytes that are zero but for one's own: all ranks take
// part in a split by definition, and the parent's connections need no second way to gather.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "lib/comm/boundary.h"
#include "nccl_shim/libnccl/abi.h"
#include "nccl_shim/libnccl/own_world.h"
#include "nccl_shim/libnccl/thread_group.h"

namespace rocenante::nccl {
namespace {

struct Choice {
  std::int32_t color;
  std::int32_t key;
};

struct Work {
  void* core;  // the parent's communicator of lib/comm
  int rank;
  int ranks;
  Choice choice;
  const Config* config;
  std::vector<unsigned char> mine;
  std::vector<unsigned char> gathered;
  std::vector<int> members;  // ranks of the parent, in the order of their new ranks
  int new_rank;
};

// Every parent's ranks learn each other's `bytes` bytes.
Status gather(std::vector<Work>& all, std::size_t bytes,
              const std::vector<std::vector<unsigned char>>& own) {
  CallGroup together;
  together.start();
  for (std::size_t i = 0; i < all.size(); ++i) {
    Work& work = all[i];
    work.mine.assign(bytes * static_cast<std::size_t>(work.ranks), 0);
    work.gathered.assign(work.mine.size(), 0);
    const std::size_t place = bytes * static_cast<std::size_t>(work.rank);
    std::copy(own[i].begin(), own[i].end(), work.mine.begin() + static_cast<std::ptrdiff_t>(place));
    together.add(work.core, CollectiveCall{work.mine.data(), work.gathered.data(), work.mine.size(),
                                           reduce::DataType::kUint8, rcnSum});
  }
  return together.end();
}

template <class T>
std::vector<unsigned char> bytes_of(const T& value) {
  std::vector<unsigned char> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

template <class T>
T value_at(const std::vector<unsigned char>& bytes, int index) {
  T value;
  std::memcpy(&value, bytes.data() + sizeof value * static_cast<std::size_t>(index), sizeof value);
  return value;
}

// Who is in the new communicator of this rank, by key and then by old rank.
void choose_members(Work& work) {
  if (work.choice.color == kSplitNoColor) return;
  for (int rank = 0; rank < work.ranks; ++rank) {
    if (value_at<Choice>(work.gathered, rank).color == work.choice.color) work.members.push_back(rank);
  }
  std::stable_sort(work.members.begin(), work.members.end(), [&](int a, int b) {
    return value_at<Choice>(work.gathered, a).key < value_at<Choice>(work.gathered, b).key;
  });
  const auto self = std::find(work.members.begin(), work.members.end(), work.rank);
  work.new_rank = static_cast<int>(self - work.members.begin());
}

// The id of each new communicator that a rank here is the first of; others are zeros.
Result<std::vector<std::vector<unsigned char>>> make_ids(const std::vector<Work>& all) {
  std::vector<std::vector<unsigned char>> ids;
  for (const Work& work : all) {
    UniqueId id;
    if (!work.members.empty() && work.new_rank == 0) {
      RCN_ASSIGN(id, create_unique_id(*work.config));
    }
    ids.push_back(bytes_of(id));
  }
  return ids;
}

Status exchange(std::vector<Work>& all) {
  std::vector<std::vector<unsigned char>> choices;
  for (const Work& work : all) choices.push_back(bytes_of(work.choice));
  RCN_TRY(gather(all, sizeof(Choice), choices));
  for (Work& work : all) choose_members(work);
  RCN_ASSIGN(const std::vector<std::vector<unsigned char>> ids, make_ids(all));
  return gather(all, sizeof(UniqueId), ids);
}

UniqueId id_of(const Work& work) {
  return value_at<UniqueId>(work.gathered, work.members.front());
}

Status check(const SplitRequest& request) {
  RCN_TRY(require(request.made, "newcomm"));
  if (request.color < kSplitNoColor) {
    return make_error(Code::kInvalidArgument, "color is {}: expected -1 (NCCL_SPLIT_NOCOLOR) or at least 0",
                      request.color);
  }
  return why_not_ready(request.parent);
}

}  // namespace

Status run_splits(const std::vector<SplitRequest>& requests) {
  if (requests.empty()) return {};
  std::vector<OwnPin> pins;
  std::vector<Work> all;
  for (const SplitRequest& request : requests) {
    RCN_ASSIGN(OwnPin own, OwnPin::begin(request.parent));
    all.push_back(
        Work{own->core, own->rank, own->ranks, {request.color, request.key}, &own->config, {}, {}, {}, 0});
    pins.push_back(std::move(own));
  }
  RCN_TRY(exchange(all));
  std::vector<OwnInit> inits;
  for (std::size_t i = 0; i < all.size(); ++i) {
    void** const made = requests[i].made;
    *made = nullptr;
    if (all[i].members.empty()) continue;
    rcnUniqueId id;
    to_public(id_of(all[i]), &id);
    RCN_ASSIGN(OwnInit init, prepare_init(made, static_cast<int>(all[i].members.size()), id,
                                          all[i].new_rank, pins[i]->device, true));
    inits.push_back(init);
  }
  return run_inits(inits);
}

Result<SplitResult> exchange_split(void* core, int rank, int ranks, int color, int key,
                                   const Config& config) {
  std::vector<Work> all;
  all.push_back(Work{core, rank, ranks, {color, key}, &config, {}, {}, {}, 0});
  RCN_TRY(exchange(all));
  const Work& work = all.front();
  if (work.members.empty()) return SplitResult{};
  return SplitResult{id_of(work), work.new_rank, static_cast<int>(work.members.size())};
}

Status split(const SplitRequest& request) {
  RCN_TRY(check(request));
  if (group_is_open()) {
    ThreadGroup::of_this_thread().splits.push_back(request);
    return {};
  }
  return run_splits({request});
}

}  // namespace rocenante::nccl
