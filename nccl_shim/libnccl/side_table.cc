// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/side_table.h"

#include <sched.h>
#include <sys/mman.h>

#include <string_view>

#include "lib/comm/handle_table.h"
#include "lib/net/fork.h"
#include "lib/net/keep_forever.h"
#include "nccl_shim/libnccl/policy.h"

namespace rocenante::nccl {
namespace detail {
std::atomic<SideBucket*> side_buckets{nullptr};
}

namespace {

using detail::kSideBuckets;
using detail::side_buckets;
using detail::SideBucket;

// A bucket whose entry went. Looking up passes over it, adding takes it.
constexpr std::uintptr_t kGone = 1;
// Looking up stays short.
constexpr std::size_t kMostEntries = kSideBuckets / 2;
constexpr std::size_t kTableBytes = kSideBuckets * sizeof(SideBucket);

constinit std::mutex writer_mutex;
[[maybe_unused]] const bool kHooked = net::lock_across_fork<writer_mutex>();

struct Writer {
  std::size_t used = 0;  // buckets that ever had an entry
};
// Other threads may still look up while static objects go.
Writer& writer() {
  static Writer* const instance = new Writer;
  return *instance;
}

// Where others have measured that a ring overtakes one exchange (docs/guide/preload.md); the others but
// all-gather send more than a ring does at the same size.
std::array<std::uint64_t, kNumCollectives> largest_of_ours(const Config& config, int ranks) {
  constexpr std::uint64_t kKiB = 1024;
  const std::uint64_t crossover = ranks <= 2 ? 4096 * kKiB : ranks <= 4 ? 1024 * kKiB : 256 * kKiB;
  const auto limit = [&](Key key, std::uint64_t automatic) {
    return config.text(key) == "auto" ? automatic : config.integer(key);
  };
  std::array<std::uint64_t, kNumCollectives> limits{};
  const auto set = [&](Collective collective, Key key, std::uint64_t automatic) {
    limits[static_cast<std::size_t>(collective)] = limit(key, automatic);
  };
  set(Collective::kAllReduce, Key::kAllReduceMaxBytes, crossover);
  if (std::string_view(memory_device(config)) != "host") return limits;  // a device does no others yet
  set(Collective::kAllGather, Key::kAllGatherMaxBytes, crossover);
  set(Collective::kReduceScatter, Key::kReduceScatterMaxBytes, crossover / 2);
  set(Collective::kBroadcast, Key::kBroadcastMaxBytes, crossover / 2);
  set(Collective::kReduce, Key::kReduceMaxBytes, crossover / 2);
  set(Collective::kAllToAll, Key::kAllToAllMaxBytes, crossover / 2);
  return limits;
}

SideBucket* find(std::uintptr_t key) {
  SideBucket* const buckets = side_buckets.load(std::memory_order_relaxed);
  if (buckets == nullptr) return nullptr;
  for (std::size_t at = detail::side_hash(key);; at = (at + 1) % kSideBuckets) {
    const std::uintptr_t found = buckets[at].key.load(std::memory_order_relaxed);
    if (found == key) return &buckets[at];
    if (found == 0) return nullptr;
  }
}

// A free bucket for the key; a page of the table is touched when an entry first falls on it.
Result<SideBucket*> place(Writer& table, std::uintptr_t key) {
  SideBucket* buckets = side_buckets.load(std::memory_order_relaxed);
  if (buckets == nullptr) {
    void* const memory = ::mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return errno_error("mmap for the table of communicators");
    buckets = static_cast<SideBucket*>(memory);
    side_buckets.store(buckets, std::memory_order_release);
  }
  for (std::size_t at = detail::side_hash(key);; at = (at + 1) % kSideBuckets) {
    const std::uintptr_t found = buckets[at].key.load(std::memory_order_relaxed);
    if (found == kGone && buckets[at].pins.load(std::memory_order_seq_cst) == 0) return &buckets[at];
    if (found != 0) continue;
    if (table.used == kMostEntries) {
      return make_error(Code::kInvalidUsage, "{} communicators of the real library are known", table.used);
    }
    ++table.used;
    return &buckets[at];
  }
}

}  // namespace

SideEntry::SideEntry(int rank_number, int rank_count, Config settings,
                     Result<std::shared_ptr<Device>> opened)
    : rank(rank_number),
      ranks(rank_count),
      config(std::move(settings)),
      core_config(config.with(Key::kStats, "0")),
      device(std::move(opened)),
      max_bytes(largest_of_ours(config, rank_count)),
      fork_generation(net::fork_generation()) {}

SideEntry::~SideEntry() {
  if (core != nullptr && !is_inherited()) (void)close_communicator(core, true);
}

bool SideEntry::is_inherited() const {
  return fork_generation != net::fork_generation();
}

Status add_side(void* comm, std::unique_ptr<SideEntry> entry) {
  const std::unique_ptr<SideEntry> stale = remove_side(comm);
  Writer& table = writer();
  const std::lock_guard lock(writer_mutex);
  const auto key = reinterpret_cast<std::uintptr_t>(comm);
  RCN_ASSIGN(SideBucket* const bucket, place(table, key));
  bucket->entry.store(entry.release(), std::memory_order_relaxed);
  // Release: the entry before the key.
  bucket->key.store(key, std::memory_order_release);
  return {};
}

std::unique_ptr<SideEntry> remove_side(void* comm) {
  (void)writer();
  SideBucket* bucket = nullptr;
  std::unique_ptr<SideEntry> entry;
  {
    const std::lock_guard lock(writer_mutex);
    bucket = find(reinterpret_cast<std::uintptr_t>(comm));
    if (bucket == nullptr) return nullptr;
    entry.reset(bucket->entry.load(std::memory_order_relaxed));
    bucket->key.store(kGone, std::memory_order_seq_cst);
  }
  if (entry->is_inherited()) {
    // Pins may be of threads that this process does not have, and so may what hangs on the entry.
    bucket->pins.store(0, std::memory_order_seq_cst);
    net::keep_forever(std::move(entry));
    return nullptr;
  }
  while (bucket->pins.load(std::memory_order_seq_cst) != 0) ::sched_yield();
  return entry;
}

}  // namespace rocenante::nccl
