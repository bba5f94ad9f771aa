// SPDX-License-Identifier: Apache-2.0
#include "tests/abi/recorder/world.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace rocenante::test {

// What ranks have brought to one collective, until all have taken what they need.
struct Exchange {
  std::map<int, std::vector<float>> given;
  int taken = 0;
};

// Collectives and splits by their number.
struct World {
  struct Choice {
    int color;
    int key;
  };
  int ranks = 0;
  std::string grow_id;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::uint64_t, Exchange> exchanges;
  std::map<std::uint64_t, std::map<int, Choice>> splits;
};

namespace {

constexpr std::size_t kIdBytes = 40;

std::mutex mutex;
std::map<std::string, std::shared_ptr<World>>* worlds = new std::map<std::string, std::shared_ptr<World>>;
std::vector<Comm*>* graveyard = new std::vector<Comm*>;

thread_local unsigned depth = 0;
thread_local std::vector<Call> pending;
thread_local std::vector<Split> pending_splits;

std::string address_text(const void* pointer) {
  return std::to_string(reinterpret_cast<std::uintptr_t>(pointer));
}

void bring(const Call& call) {
  World& world = *call.comm->world;
  const bool blocks = call.does == Does::kReduceScatter || call.does == Does::kAllToAll;
  const std::size_t count = call.count * (blocks ? static_cast<std::size_t>(world.ranks) : 1);
  const bool gives = call.does != Does::kBroadcast || call.comm->rank == call.root;
  const std::lock_guard lock(world.mutex);
  std::vector<float>& given = world.exchanges[call.comm->next].given[call.comm->rank];
  if (gives) given.assign(call.in, call.in + count);
  world.changed.notify_all();
}

void add_up(const std::map<int, std::vector<float>>& given, std::size_t from, const Call& call) {
  std::fill(call.out, call.out + call.count, 0.0F);
  for (const auto& [rank, values] : given) {
    for (std::size_t i = 0; i < call.count; ++i) call.out[i] += values[from + i];
  }
}

void put(const std::map<int, std::vector<float>>& given, const Call& call) {
  const std::size_t own = static_cast<std::size_t>(call.comm->rank) * call.count;
  switch (call.does) {
    case Does::kAllReduce:
      return add_up(given, 0, call);
    case Does::kReduceScatter:
      return add_up(given, own, call);
    case Does::kReduce:
      if (call.comm->rank == call.root) add_up(given, 0, call);
      return;
    case Does::kBroadcast:
      std::copy(given.at(call.root).begin(), given.at(call.root).end(), call.out);
      return;
    case Does::kAllGather:
    case Does::kAllToAll:
      break;
  }
  const std::size_t from = call.does == Does::kAllToAll ? own : 0;
  for (const auto& [rank, values] : given) {
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(from), call.count,
                call.out + static_cast<std::size_t>(rank) * call.count);
  }
}

void take(const Call& call) {
  World& world = *call.comm->world;
  std::unique_lock lock(world.mutex);
  const std::uint64_t number = call.comm->next++;
  Exchange& exchange = world.exchanges[number];
  world.changed.wait(lock, [&] { return exchange.given.size() == static_cast<std::size_t>(world.ranks); });
  put(exchange.given, call);
  if (++exchange.taken == world.ranks) world.exchanges.erase(number);
}

void bring(const Split& split) {
  World& world = *split.comm->world;
  const std::lock_guard lock(world.mutex);
  world.splits[split.comm->next_split][split.comm->rank] = {split.color, split.key};
  world.changed.notify_all();
}

bool all_have_split(World& world, std::uint64_t number) {
  return world.splits[number].size() == static_cast<std::size_t>(world.ranks);
}

void make_part(const Split& split, std::uint64_t number) {
  *split.made = nullptr;
  if (split.color < 0) return;
  World& world = *split.comm->world;
  std::vector<std::pair<int, int>> members;  // key, rank
  for (const auto& [rank, choice] : world.splits[number]) {
    if (choice.color == split.color) members.emplace_back(choice.key, rank);
  }
  std::sort(members.begin(), members.end());
  const auto self = std::find(members.begin(), members.end(), std::pair(split.key, split.comm->rank));
  std::string id =
      "split" + std::to_string(number) + "/" + std::to_string(split.color) + "of" + address_text(&world);
  id.resize(kIdBytes);
  make_comm(split.made, static_cast<int>(members.size()), id.data(),
            static_cast<int>(self - members.begin()), split.blocking);
  (*split.made)->unfinished.clear();
}

void take(const Split& split) {
  World& world = *split.comm->world;
  const std::uint64_t number = split.comm->next_split++;
  std::unique_lock lock(world.mutex);
  world.changed.wait(lock, [&] { return all_have_split(world, number); });
  make_part(split, number);
}

// Done at some later question, once all ranks have called.
rcnResult_t split_later(const Split& split) {
  *split.made = nullptr;
  bring(split);
  split.comm->unfinished.push_back([split, number = split.comm->next_split++, asked = 0]() mutable {
    World& world = *split.comm->world;
    const std::lock_guard lock(world.mutex);
    if (++asked < 3 || !all_have_split(world, number)) return false;
    make_part(split, number);
    return true;
  });
  return rcnInProgress;
}

// The new communicator now, or at some later question to the parent.
rcnResult_t make_of(Comm* parent, Comm** made, int ranks, std::string id, int rank, bool blocking) {
  id.resize(kIdBytes);
  const auto make = [=] {
    make_comm(made, ranks, id.data(), rank, blocking);
    (*made)->unfinished.clear();
  };
  *made = nullptr;
  if (parent->blocking) {
    make();
    return rcnSuccess;
  }
  parent->unfinished.push_back([make, asked = 0]() mutable {
    if (++asked < 3) return false;
    make();
    return true;
  });
  return rcnInProgress;
}

// The first of each communicator together, then the second, and so on: as a group promises.
template <class Item>
void run_in_turns(std::vector<Item> all) {
  while (!all.empty()) {
    std::vector<Item> now;
    std::vector<Item> later;
    for (const Item& item : all) {
      const bool first =
          std::none_of(now.begin(), now.end(), [&](const Item& other) { return other.comm == item.comm; });
      (first ? now : later).push_back(item);
    }
    for (const Item& item : now) bring(item);
    for (const Item& item : now) take(item);
    all = std::move(later);
  }
}

}  // namespace

bool is_comm(std::uint64_t word) {
  return word != 0 && *reinterpret_cast<const std::uint64_t*>(word) == Comm{}.magic;
}

int ranks_of(const Comm& comm) {
  return comm.world->ranks;
}

void make_id(char* id, bool is_full) {
  static std::atomic<int> number{1};
  std::memset(id, 0, 128);
  std::memcpy(id, "recorded", 8);
  const int mine = number.fetch_add(1);
  std::memcpy(id + 8, &mine, sizeof mine);
  if (is_full) std::memset(id + kIdBytes, 7, 88);
}

rcnResult_t make_comm(Comm** comm, int ranks, const void* id, int rank, bool blocking) {
  const std::lock_guard lock(mutex);
  std::shared_ptr<World>& world = (*worlds)[std::string(static_cast<const char*>(id), kIdBytes)];
  if (world == nullptr) {
    world = std::make_shared<World>();
    world->ranks = ranks;
  }
  *comm = new Comm;
  (*comm)->world = world;
  (*comm)->rank = rank;
  (*comm)->blocking = blocking;
  if (blocking) return rcnSuccess;
  (*comm)->unfinished.push_back([asked = 0]() mutable { return ++asked == 3; });
  return rcnInProgress;
}

rcnResult_t make_all(Comm** comms, std::uint64_t count) {
  char id[128];
  make_id(id, false);
  for (std::uint64_t rank = 0; rank < count; ++rank) {
    make_comm(comms + rank, static_cast<int>(count), id, static_cast<int>(rank), true);
  }
  return rcnSuccess;
}

int state_of(Comm* comm) {
  if (comm->unfinished.empty()) return rcnSuccess;
  if (comm->unfinished.front()()) comm->unfinished.pop_front();
  return rcnInProgress;
}

void bury(Comm* comm) {
  const std::lock_guard lock(mutex);
  comm->magic = 0;
  graveyard->push_back(comm);
}

rcnResult_t issue(const Call& call) {
  if (depth != 0) {
    pending.push_back(call);
    return rcnSuccess;
  }
  bring(call);
  take(call);
  return rcnSuccess;
}

rcnResult_t issue(const Split& split) {
  if (!split.comm->blocking) return split_later(split);
  if (depth != 0) {
    pending_splits.push_back(split);
    return rcnSuccess;
  }
  bring(split);
  take(split);
  return rcnSuccess;
}

rcnResult_t shrink(Comm* parent, const int* excluded, int count, Comm** made, bool blocking) {
  const auto is_out = [&](int rank) {
    return std::find(excluded, excluded + count, rank) != excluded + count;
  };
  std::string id = "shrink" + std::to_string(parent->next_shrink++);
  int place = 0;
  int ranks = 0;
  for (int rank = 0; rank < parent->world->ranks; ++rank) {
    id += is_out(rank) ? '-' : '+';
    if (is_out(rank)) continue;
    if (rank < parent->rank) ++place;
    ++ranks;
  }
  return make_of(parent, made, ranks, id + address_text(parent->world.get()), place, blocking);
}

rcnResult_t make_grow_id(Comm* parent, char* id, bool is_full) {
  make_id(id, is_full);
  const std::lock_guard lock(parent->world->mutex);
  parent->world->grow_id.assign(id, kIdBytes);
  return rcnSuccess;
}

rcnResult_t grow(Comm* parent, int ranks, Comm** made, bool blocking) {
  std::string id;
  {
    const std::lock_guard lock(parent->world->mutex);
    id = parent->world->grow_id;
  }
  return make_of(parent, made, ranks, std::move(id), parent->rank, blocking);
}

void start_group() {
  ++depth;
}

bool end_group() {
  if (depth == 0) return false;
  if (--depth == 0) {
    run_in_turns(std::exchange(pending, {}));
    run_in_turns(std::exchange(pending_splits, {}));
  }
  return true;
}

void drop_group() {
  if (depth != 0 && --depth == 0) {
    pending.clear();
    pending_splits.clear();
  }
}

}  // namespace rocenante::test
