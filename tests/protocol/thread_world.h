// SPDX-License-Identifier: Apache-2.0
//
// Ranks as real threads over plain memory, driving the protocol text with the host's own Env. What the
// model explores step by step runs here at full speed, for ThreadSanitizer to watch.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "lib/comm/host_env.h"
#include "lib/protocol/call_rounds.h"
#include "lib/protocol/doorbell.h"
#include "tests/protocol/slice_sum.h"

namespace rocenante::model {

template <protocol::Mutation kMutant>
struct ThreadEnv : HostEnv {
  static constexpr protocol::Mutation kMutation = kMutant;

  // A fault's window is opened wide: it must show in every run, on one processor too.
  void copy(void* to, const void* from, std::uint64_t bytes) const {
    if constexpr (kMutant != protocol::Mutation::kNone) sched_yield();
    HostEnv::copy(to, from, bytes);
  }
};

// Page-aligned zeroes, as a region is.
struct FreePages {
  void operator()(unsigned char* pages) const {
    ::operator delete[](pages, std::align_val_t{protocol::kPageBytes});
  }
};
using Pages = std::unique_ptr<unsigned char[], FreePages>;
inline Pages pages(std::uint64_t bytes) {
  void* const memory = ::operator new[](bytes, std::align_val_t{protocol::kPageBytes});
  return Pages(static_cast<unsigned char*>(std::memset(memory, 0, bytes)));
}

// What the threads of a group share.
struct MeetingPlace {
  std::atomic<std::uint64_t> arrived{0};
  std::array<std::uint64_t, 2> box{};
  std::array<std::atomic<unsigned>, 3> verdicts{};  // bits of what was said
};

class ThreadGroup {
 public:
  ThreadGroup(MeetingPlace& place, std::uint32_t id, std::uint32_t size)
      : place_(place), id_(id), size_(size) {}

  std::uint32_t id() const { return id_; }
  std::uint32_t size() const { return size_; }
  void sync() {
    if (size_ == 1) return;
    const std::uint64_t before = place_.arrived.fetch_add(1, std::memory_order_acq_rel);
    const std::uint64_t all = (before / size_ + 1) * size_;
    while (place_.arrived.load(std::memory_order_acquire) < all) sched_yield();
  }
  // Two boxes: whoever fills one again has met everybody who read it before.
  template <class T>
  T broadcast(T value) {
    if (size_ == 1) return value;
    std::uint64_t& box = place_.box[broadcasts_++ % 2];
    if (id_ == 0) box = static_cast<std::uint64_t>(value);
    sync();
    return static_cast<T>(box);
  }

  // Three boxes: the one that is emptied has been read by everybody, and is filled only after the next
  // meeting.
  protocol::Verdict worst(protocol::Verdict value) {
    if (size_ == 1) return value;
    std::atomic<unsigned>& box = place_.verdicts[verdicts_ % 3];
    box.fetch_or(1U << static_cast<unsigned>(value), std::memory_order_relaxed);
    sync();
    if (id_ == 0) place_.verdicts[(verdicts_ + 2) % 3].store(0, std::memory_order_relaxed);
    ++verdicts_;
    const unsigned said = box.load(std::memory_order_relaxed);
    return static_cast<protocol::Verdict>(31 - __builtin_clz(said));
  }

 private:
  MeetingPlace& place_;
  const std::uint32_t id_, size_;
  std::uint64_t broadcasts_ = 0;
  std::uint64_t verdicts_ = 0;
};

struct ThreadConfig {
  std::uint32_t ranks = 2;
  std::uint32_t threads = 1;  // of each group
  std::uint32_t parts = 1;    // groups of each rank
  bool carried = false;       // the last rank is reached by carriers, the threads that play its NIC
  bool sleeps = false;
  std::uint64_t slot_bytes = 4096;
  std::uint32_t rails = 1;  // that each put to a carried rank takes
  bool gathers = false;     // calls take two rounds a piece
};

// One rank's memory. Everything a lane points to, and nothing else.
struct ThreadRank {
  Pages inbox, outbox;
  std::vector<protocol::PeerLink> links;
  protocol::ArrivalCounter staged[protocol::kParities] = {};
  protocol::ArrivalCounter finished[protocol::kParities] = {};
  std::uint64_t epoch = 0;
  std::uint64_t abort_word = 0;
  std::vector<MeetingPlace> meetings;  // of each part, then of all
  protocol::DoorbellRing ring{};
  std::uint64_t completed = 0;  // by the carrier
  protocol::Lane lane{};
};

class ThreadWorld {
 public:
  explicit ThreadWorld(const ThreadConfig& config);

  const ThreadConfig& config() const { return config_; }
  ThreadRank& rank(std::uint32_t rank) { return *ranks_[rank]; }
  bool mapped(std::uint32_t a, std::uint32_t b) const {
    return !config_.carried || (a + 1 != config_.ranks && b + 1 != config_.ranks);
  }
  bool all_mapped() const { return !config_.carried; }

  // Plays the NIC of `rank` until `rounds` are carried or an abort is seen: each rail's share of the
  // payload in two pieces, then its signal, to one peer after the other.
  void carry(std::uint32_t rank, std::uint64_t rounds);

 private:
  std::uint32_t received(std::uint32_t owner, std::uint32_t below) const;
  protocol::Geometry geometry(std::uint32_t rank) const;
  protocol::SignalLine* line(std::uint32_t owner, std::uint32_t source, std::uint64_t parity,
                             std::uint32_t rail);
  unsigned char* slot(std::uint32_t owner, std::uint32_t source, std::uint64_t parity);
  void link(std::uint32_t rank);
  // With `sliced` the slice of `to` in the slot of `from`.
  void put(std::uint32_t from, std::uint32_t to, std::uint64_t epoch, std::uint64_t bytes, bool sliced);

  const ThreadConfig config_;
  std::vector<std::unique_ptr<ThreadRank>> ranks_;
};

// Rings the rank's doorbell for its carrier.
template <class Env>
class ThreadPort {
 public:
  ThreadPort(Env& env, ThreadWorld& world, std::uint32_t rank) : env_(env), world_(world), rank_(rank) {}

  void post(const protocol::Lane&, std::uint64_t epoch, const protocol::Piece& piece) {
    if (world_.all_mapped()) return;
    protocol::ring_doorbell(env_, world_.rank(rank_).ring, epoch, {piece.carried, piece.tag});
    posted_ = epoch;
  }
  bool drained() { return posted_ == 0 || env_.load_acquire(&world_.rank(rank_).completed) >= posted_; }

 private:
  Env& env_;
  ThreadWorld& world_;
  const std::uint32_t rank_;
  std::uint64_t posted_ = 0;
};

// Sums elements of T, in the order of the ranks.
template <class T>
class SumCombiner {
 public:
  static constexpr bool reads_slot(const protocol::Piece&) { return false; }

  explicit SumCombiner(std::uint32_t ranks) : ranks_(ranks) {}

  template <class Env, class Group>
  void stage(Env& env, const Group& group, unsigned char* to, const unsigned char* from,
             std::uint64_t bytes) {
    std::uint64_t begin, end;
    protocol::range_of(group.id(), group.size(), 0, bytes, begin, end);
    if (begin < end) env.copy(to + begin, from + begin, end - begin);
  }

  template <class Group, class Source>
  void combine(Group& group, const protocol::Piece& piece, std::uint64_t begin, std::uint64_t end,
               Source&& source) {
    std::uint64_t from, to;
    protocol::range_of(group.id(), group.size(), begin, end, from, to);
    for (std::uint64_t at = from; at < to; at += sizeof(T)) {
      T sum{};
      for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
        T value;
        std::memcpy(&value, source(rank) + at, sizeof(T));
        sum = static_cast<T>(sum + value);
      }
      std::memcpy(static_cast<unsigned char*>(piece.output) + at, &sum, sizeof(T));
    }
  }

 private:
  const std::uint32_t ranks_;
};

// One thread of one group of a rank; keeps what must outlive its operations.
template <protocol::Mutation kMutant, class T>
class ThreadMember {
 public:
  ThreadMember(ThreadWorld& world, std::uint32_t rank, std::uint32_t part, std::uint32_t thread)
      : world_(world),
        rank_(rank),
        part_(part),
        group_(world.rank(rank).meetings[part], thread, world.config().threads),
        everybody_(world.rank(rank).meetings[world.config().parts], part * world.config().threads + thread,
                   world.config().parts * world.config().threads),
        port_(env_, world, rank) {}

  protocol::Verdict all_reduce(const T* input, T* output, std::uint64_t count, std::uint64_t piece_bytes,
                               std::uint64_t tag) {
    everybody_.sync();  // the inputs are there
    const bool gathers = world_.config().gathers;
    const std::uint64_t bytes = count * sizeof(T);
    const protocol::Exchange exchange{.input = input,
                                      .output = output,
                                      .bytes = bytes,
                                      .piece_bytes = piece_bytes,
                                      .tag = tag,
                                      .in_line = !gathers && bytes <= protocol::kInlineBytes,
                                      .closing_round = false,
                                      .sliced = gathers,
                                      .gathers = gathers};
    if (gathers) return run(SliceSum<T>(rank_, world_.config().ranks), exchange);
    return run(SumCombiner<T>(world_.config().ranks), exchange);
  }

  std::uint64_t naps() const { return naps_; }

 private:
  template <class Combiner>
  protocol::Verdict run(Combiner combiner, const protocol::Exchange& exchange) {
    protocol::CallRounds<ThreadEnv<kMutant>, ThreadGroup, ThreadPort<ThreadEnv<kMutant>>, Combiner> shot(
        env_, group_, world_.rank(rank_).lane, port_, combiner,
        protocol::part_of(part_, world_.config().parts), exchange);
    const protocol::Verdict verdict = world_.config().sleeps ? nap(shot) : spin(shot);
    everybody_.sync();  // over for all threads of the rank
    return verdict;
  }

  template <class Shot>
  protocol::Verdict spin(Shot& shot) {
    protocol::Verdict verdict;
    while ((verdict = shot.step()) == protocol::Verdict::kPending) sched_yield();
    return verdict;
  }

  template <class Shot>
  protocol::Verdict nap(Shot& shot) {
    auto* const wake = reinterpret_cast<protocol::WakeLine*>(world_.rank(rank_).inbox.get());
    protocol::Verdict verdict = shot.step();
    while (verdict == protocol::Verdict::kPending) {
      ++naps_;
      protocol::sleep_unless(env_, wake, kLongestNapNs, [&] {
        verdict = shot.step();
        return verdict != protocol::Verdict::kPending;
      });
      if (verdict == protocol::Verdict::kPending) verdict = shot.step();
    }
    return verdict;
  }

  // Longer than any test may take: a lost wake-up shows as a test that hangs.
  static constexpr std::uint64_t kLongestNapNs = 1'000'000'000'000;

  ThreadWorld& world_;
  const std::uint32_t rank_, part_;
  ThreadEnv<kMutant> env_;
  ThreadGroup group_;
  ThreadGroup everybody_;
  ThreadPort<ThreadEnv<kMutant>> port_;
  std::uint64_t naps_ = 0;
};

}  // namespace rocenante::model
