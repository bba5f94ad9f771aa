// SPDX-License-Identifier: Apache-2.0
//
// What a progress thread's software costs: from a doorbell that is seen to the last of the posts it asks
// for, on an adapter that sends nothing, beside a bare loop over the same queue pairs' likes. The bar is
// the bare loop plus 50 ns plus 15 ns for each peer, each as the mean of the middle half of its times.
//
//   progress_bench [OPERATIONS]
//
// Ours and the loops take turns, operation by operation. "whole": the loop fills two requests for each
// queue pair, as a program without a library would; "lean": they are kept, and only what changes is
// written. The bar is held against the lean one. "cold": between operations 4 MiB are read, so that nothing
// is in the first two caches but what a spinning thread looks at.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/progress/null_nic.h"
#include "lib/base/config.h"
#include "lib/comm/doorbell_puts.h"
#include "lib/device/device.h"
#include "transports/verbs/blob.h"
#include "transports/verbs/verbs.h"

namespace rocenante::bench {
namespace {

constexpr std::uint64_t kSlotBytes = 1 << 20;
constexpr std::uint64_t kStripedBytes = 16384;
constexpr std::uint64_t kTag = 0x1234;

struct Shape {
  std::uint32_t peers;
  std::uint32_t rails;
  std::uint64_t bytes;
  bool cold;
  std::uint32_t lines() const { return bytes >= kStripedBytes ? rails : 1; }
};

template <class T>
T take_or_exit(Result<T> result) {
  if (result.ok()) return result.take();
  std::fprintf(stderr, "progress_bench: %s\n", result.status().text().c_str());
  std::exit(1);
}

void ok_or_exit(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "progress_bench: %s\n", status.text().c_str());
  std::exit(1);
}

double ticks_per_ns() {
  const auto begin = std::chrono::steady_clock::now();
  const std::uint64_t first = ticks();
  std::chrono::nanoseconds passed{};
  while (passed < std::chrono::milliseconds(100)) passed = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(ticks() - first) / static_cast<double>(passed.count());
}

// Rank 0 of so many, whose peers exist on paper only.
class Rank {
 public:
  explicit Rank(const Shape& shape) : shape_(shape) {
    geometry_ = {shape.peers + 1, shape.rails, shape.peers, kSlotBytes};
    config_ = take_or_exit(Config::load(""));
    inbox_ = take_or_exit(host_device().allocate_region(geometry_.inbox_bytes(), PeerAccess::kReadWrite));
    outbox_ = take_or_exit(host_device().allocate_region(geometry_.outbox_bytes(), PeerAccess::kReadOnly));
    connect();
    make_puts();
  }

  // Ticks from the doorbell to the last post.
  std::uint64_t run(std::uint64_t epoch) {
    protocol::ring_doorbell(env_, ring_, epoch, {shape_.bytes, kTag});
    expect_posts(shape_.peers * shape_.lines());
    const std::uint64_t begin = ticks();
    puts_->look();
    if (last_post() == 0 || puts_->has_stopped()) {
      std::fprintf(stderr, "progress_bench: the posts of epoch %llu are missing\n",
                   static_cast<unsigned long long>(epoch));
      std::exit(1);
    }
    const std::uint64_t passed = last_post() - begin;
    while (!puts_->drained()) puts_->look();
    return passed;
  }

  // What the thread does while no doorbell rings.
  void spin() {
    for (int i = 0; i < 3; ++i) puts_->look();
  }

  const unsigned char* slot(std::uint64_t epoch) const {
    return outbox_->address() + geometry_.send_offset(epoch & 1);
  }
  const protocol::Geometry& geometry() const { return geometry_; }

 private:
  void connect() {
    TransportContext context{0, shape_.peers + 1, &config_, nullptr, geometry_, inbox_, outbox_, {}, {}};
    for (std::uint32_t peer = 0; peer <= shape_.peers; ++peer) {
      context.recv_index.push_back(peer == 0 ? 0 : peer - 1);
      context.rails.emplace_back();
      for (std::uint32_t rail = 0; peer != 0 && rail < shape_.rails; ++rail) {
        fabric::Port port;
        port.device = "null" + std::to_string(rail);
        context.rails.back().push_back({port, port});
      }
    }
    transport_ = take_or_exit(make_verbs_transport(&null_api()));
    take_or_exit(transport_->open(context));
    links_.resize(shape_.peers + 1);
    for (std::uint32_t peer = 1; peer <= shape_.peers; ++peer) {
      ok_or_exit(transport_->connect(peer, blob_of(peer), net::Deadline::never(), &links_[peer]));
      links_[peer].rails = shape_.rails;
    }
  }

  std::string blob_of(std::uint32_t peer) const {
    VerbsBlob blob;
    blob.received = shape_.peers;
    blob.inbox_bytes = geometry_.inbox_bytes();
    blob.peers.resize(shape_.peers + 1);
    for (std::uint32_t rail = 0; rail < shape_.rails; ++rail) {
      blob.adapters.push_back({7, std::uint64_t{peer} << 32});
      blob.peers[0].rails.push_back({static_cast<std::uint8_t>(rail), 100 + peer, IBV_MTU_4096});
    }
    return encode_blob(blob);
  }

  void make_puts() {
    lane_.ranks = shape_.peers + 1;
    lane_.striped_bytes = kStripedBytes;
    lane_.peers = links_.data();
    for (std::uint64_t parity = 0; parity < protocol::kParities; ++parity)
      lane_.send[parity] = outbox_->address() + geometry_.send_offset(parity);
    DoorbellPuts::Setup setup;
    setup.ring = &ring_;
    setup.lane = &lane_;
    setup.slot_bytes = kSlotBytes;
    setup.carriers.assign(shape_.peers + 1, transport_.get());
    setup.carriers[0] = nullptr;
    setup.abort_word = &abort_word_;
    setup.on_failure = [](protocol::AbortCause, const Status& status) { ok_or_exit(status); };
    puts_ = std::make_unique<DoorbellPuts>(std::move(setup));
  }

  const Shape shape_;
  Config config_;
  protocol::Geometry geometry_;
  std::shared_ptr<Region> inbox_, outbox_;
  std::unique_ptr<Transport> transport_;
  std::vector<protocol::PeerLink> links_;
  protocol::Lane lane_{};
  protocol::DoorbellRing ring_{};
  std::uint64_t abort_word_ = 0;
  HostEnv env_;
  std::unique_ptr<DoorbellPuts> puts_;
};

// The queue pairs of a bare loop, and what it must know of each peer.
class Bare {
 public:
  Bare(const Shape& shape, const Rank& rank, bool lean) : rank_(rank), lean_(lean) {
    domain_ = null_api().alloc_pd(nullptr);
    queue_ = null_api().create_cq(nullptr, 1024, nullptr, nullptr, 0);
    const std::uint32_t lines = shape.lines();
    const std::uint64_t share = shape.bytes / lines;
    for (std::uint32_t i = 0; i < shape.peers * lines; ++i) {
      ibv_qp_init_attr attributes{};
      attributes.send_cq = attributes.recv_cq = queue_;
      Target target{null_api().create_qp(domain_, &attributes), {}, {}, i % lines * share, share};
      const std::uint64_t inbox = std::uint64_t{1 + i / lines} << 32;
      for (std::uint64_t parity = 0; parity < protocol::kParities; ++parity) {
        target.slot[parity] = inbox + rank.geometry().recv_offset(parity, 0) + target.offset;
        target.line[parity] = inbox + rank.geometry().signal_offset(parity, 0, i % lines) +
                              offsetof(protocol::SignalLine, epoch);
      }
      // Without the tag, which goes with the first share of the first two operations alone.
      targets_.push_back(target);
    }
    kept_.resize(targets_.size());
    for (std::size_t i = 0; i < targets_.size(); ++i) fill(targets_[i], 0, &kept_[i], &epoch_);
  }
  ~Bare() {
    for (const Target& target : targets_) null_api().destroy_qp(target.pair);
    null_api().destroy_cq(queue_);
    null_api().dealloc_pd(domain_);
  }
  Bare(const Bare&) = delete;
  Bare& operator=(const Bare&) = delete;

  std::uint64_t run(std::uint64_t epoch) {
    expect_posts(static_cast<std::uint32_t>(targets_.size()));
    const std::uint64_t begin = ticks();
    lean_ ? post_lean(epoch) : post_whole(epoch);
    const std::uint64_t passed = last_post() - begin;
    ibv_wc completions[16];
    while (null_api().poll_cq(queue_, 16, completions) != 0) {
    }
    return passed;
  }

 private:
  struct Target {
    ibv_qp* pair;
    std::uint64_t slot[protocol::kParities];
    std::uint64_t line[protocol::kParities];
    std::uint64_t offset;
    std::uint64_t bytes;
  };
  struct Requests {
    ibv_send_wr payload, signal;
    ibv_sge payload_memory, signal_memory;
  };

  void fill(const Target& target, std::uint64_t epoch, Requests* made, const std::uint64_t* word) const {
    *made = {};
    made->payload_memory = {reinterpret_cast<std::uintptr_t>(rank_.slot(epoch)) + target.offset,
                            static_cast<std::uint32_t>(target.bytes), 7};
    made->payload.wr_id = 1;
    made->payload.next = &made->signal;
    made->payload.sg_list = &made->payload_memory;
    made->payload.num_sge = 1;
    made->payload.opcode = IBV_WR_RDMA_WRITE;
    made->payload.send_flags = target.bytes <= 72 ? static_cast<unsigned>(IBV_SEND_INLINE) : 0;
    made->payload.wr.rdma.remote_addr = target.slot[epoch & 1];
    made->payload.wr.rdma.rkey = 7;
    made->signal_memory = {reinterpret_cast<std::uintptr_t>(word), sizeof *word, 0};
    made->signal.wr_id = 2;
    made->signal.sg_list = &made->signal_memory;
    made->signal.num_sge = 1;
    made->signal.opcode = IBV_WR_RDMA_WRITE;
    made->signal.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    made->signal.wr.rdma.remote_addr = target.line[epoch & 1];
    made->signal.wr.rdma.rkey = 7;
  }

  void post_whole(std::uint64_t epoch) {
    ibv_send_wr* bad = nullptr;
    for (const Target& target : targets_) {
      Requests made;
      fill(target, epoch, &made, &epoch);
      null_api().post_send(target.pair, &made.payload, &bad);
    }
  }

  void post_lean(std::uint64_t epoch) {
    ibv_send_wr* bad = nullptr;
    epoch_ = epoch;
    const auto slot = reinterpret_cast<std::uintptr_t>(rank_.slot(epoch));
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      const Target& target = targets_[i];
      Requests& kept = kept_[i];
      kept.payload_memory.addr = slot + target.offset;
      kept.payload_memory.length = static_cast<std::uint32_t>(target.bytes);
      kept.payload.wr.rdma.remote_addr = target.slot[epoch & 1];
      kept.signal.wr.rdma.remote_addr = target.line[epoch & 1];
      null_api().post_send(target.pair, &kept.payload, &bad);
    }
  }

  const Rank& rank_;
  const bool lean_;
  ibv_pd* domain_;
  ibv_cq* queue_;
  std::vector<Target> targets_;
  std::vector<Requests> kept_;
  std::uint64_t epoch_ = 0;
};

double percentile(std::vector<std::uint64_t>* samples, double part, double per_ns) {
  const auto at = static_cast<std::ptrdiff_t>(part * static_cast<double>(samples->size() - 1));
  std::nth_element(samples->begin(), samples->begin() + at, samples->end());
  return static_cast<double>((*samples)[static_cast<std::size_t>(at)]) / per_ns;
}

// The mean of the middle half: a median that is finer than the clock of a virtual machine ticks.
double middle(std::vector<std::uint64_t>* samples, double per_ns) {
  std::sort(samples->begin(), samples->end());
  const std::size_t quarter = samples->size() / 4;
  double sum = 0;
  for (std::size_t i = quarter; i < samples->size() - quarter; ++i)
    sum += static_cast<double>((*samples)[i]);
  return sum / static_cast<double>(samples->size() - 2 * quarter) / per_ns;
}

// Reads what fills the first two caches of any processor that this is meant for.
void make_cold() {
  static std::vector<unsigned char> memory(std::size_t{4} << 20, 1);
  unsigned total = 0;
  for (std::size_t i = 0; i < memory.size(); i += 64) total += memory[i];
  asm volatile("" : : "r"(total));  // so that it is read
}

bool measure(const Shape& shape, std::uint64_t operations, double per_ns) {
  Rank ours(shape);
  Bare whole(shape, ours, false);
  Bare lean(shape, ours, true);
  std::vector<std::uint64_t> times[3];
  const std::uint64_t warmup = operations / 10;
  for (std::uint64_t epoch = 1; epoch <= operations + warmup; ++epoch) {
    for (std::uint64_t turn = 0; turn < 3; ++turn) {
      const std::uint64_t which = (turn + epoch) % 3;
      if (shape.cold) make_cold();
      if (shape.cold && which == 0) ours.spin();
      const std::uint64_t passed = which == 0   ? ours.run(epoch)
                                   : which == 1 ? whole.run(epoch)
                                                : lean.run(epoch);
      if (epoch > warmup) times[which].push_back(passed);
    }
  }
  double typical[3];
  for (int i = 0; i < 3; ++i) typical[i] = middle(&times[i], per_ns);
  const double owed = 50.0 + 15.0 * shape.peers;
  const double over = typical[0] - typical[2];
  const bool met = over <= owed;
  std::printf("| %5u | %5u | %6llu | %s | %7.0f | %7.0f | %7.0f | %7.0f | %7.0f | %7.0f | %5.0f | %s |\n",
              shape.peers, shape.rails, static_cast<unsigned long long>(shape.bytes),
              shape.cold ? "cold" : "warm", typical[0], percentile(&times[0], 0.9, per_ns),
              percentile(&times[0], 0.99, per_ns), typical[1], typical[2], over, owed,
              met ? "met" : "missed");
  std::fflush(stdout);
  return met;
}

int run(std::uint64_t operations) {
  const double per_ns = ticks_per_ns();
  std::vector<std::uint64_t> empty;
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t begin = ticks();
    empty.push_back(ticks() - begin);
  }
  std::printf("Nanoseconds. The clock ticks %.2f times in one and takes %.0f of each time.\n\n", per_ns,
              percentile(&empty, 0.5, per_ns));
  std::printf(
      "| peers | rails |  bytes | caches | ours | p90 | p99 | whole | lean | over lean | "
      "owed "
      "| |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  bool met = true;
  for (const auto& [rails, bytes] : {std::pair{1u, 8192u}, {1u, 64u}, {2u, 65536u}}) {
    for (const std::uint32_t peers : {1u, 3u, 7u, 15u}) {
      met = measure({peers, rails, bytes, false}, operations, per_ns) && met;
    }
  }
  for (const std::uint32_t peers : {1u, 3u, 7u, 15u})
    measure({peers, 1, 8192, true}, operations / 100, per_ns);
  return met ? 0 : 1;
}

}  // namespace
}  // namespace rocenante::bench

int main(int count, char** arguments) {
  const std::uint64_t operations = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 100'000;
  if (operations < 1000) {
    std::fprintf(stderr, "progress_bench: OPERATIONS is '%s': expected 1000 or more\n", arguments[1]);
    return 2;
  }
  return rocenante::bench::run(operations);
}
