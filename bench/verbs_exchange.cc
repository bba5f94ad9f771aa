// SPDX-License-Identifier: Apache-2.0
//
// What an all-reduce over RDMA cannot go below: N processes exchange floats by raw verbs, with a copy into
// the send slot and an add out of the receive slots, and no protocol: nothing is checked, bounded, striped
// or recovered. For comparison (bench/peers/verbs_compare.py); it shares no code with the library.
//
//   verbs_exchange DEVICE GID_INDEX LOOKS RANKS ITERATIONS WARMUP BYTES...
//
// LOOKS: looks at memory before the processor is yielded, 0: never. Prints one line per size, BYTES P50_US
// WRONG: the slowest rank's median of calls whose send buffer was rewritten before each, no barrier between
// calls.
#include <infiniband/verbs.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

namespace {

constexpr int kMostRanks = 16;
constexpr std::size_t kLine = 64;
constexpr std::uint32_t kInline = 64;
constexpr std::uint32_t kRequests = 64;
// One completion is asked for per so many exchanges; a queue pair has room for many more.
constexpr std::uint64_t kSignalEach = 8;

struct Settings {
  std::string device;
  std::uint8_t gid_index = 0;
  long looks = 0;
  int ranks = 0;
  long iterations = 0;
  long warmup = 0;
  std::vector<std::size_t> sizes;
};

// Shared by the forked ranks: queue pairs, a barrier, results.
struct Board {
  std::atomic<int> arrived{0};
  std::uint32_t queue_pair[kMostRanks][kMostRanks];  // [of][to]
  std::uint32_t key[kMostRanks];
  std::uint64_t address[kMostRanks];
  ibv_gid gid;
  double p50[kMostRanks];
  long wrong[kMostRanks];
};

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::_Exit(1);
}

template <class Object>
Object* made(Object* object, const char* what) {
  if (object == nullptr) die(what);
  return object;
}

// The file descriptors and verbs objects of a rank end with its process.
class Rank {
 public:
  Rank(const Settings& settings, Board& board, int rank)
      : settings_(settings), board_(board), rank_(rank), slot_bytes_(most_bytes(settings) + kLine) {
    open();
    for (int peer = 0; peer < settings_.ranks; ++peer) create_pair(peer);
    barrier();
    for (int peer = 0; peer < settings_.ranks; ++peer) {
      if (peer != rank_) connect(peer);
    }
    barrier();
  }

  void measure(std::size_t bytes) {
    const std::size_t count = bytes / sizeof(float);
    std::vector<float> input(count), output(count);
    std::vector<double> samples;
    for (long call = -settings_.warmup; call < settings_.iterations; ++call) {
      fill(input, call + settings_.warmup);
      const auto begin = std::chrono::steady_clock::now();
      all_reduce(input.data(), output.data(), count);
      const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
      if (call >= 0) samples.push_back(spent.count());
    }
    std::sort(samples.begin(), samples.end());
    board_.p50[rank_] = samples[samples.size() / 2];
    board_.wrong[rank_] = count_wrong(output, settings_.iterations + settings_.warmup - 1);
    barrier();
    if (rank_ == 0) {
      std::printf("%zu %.3f %ld\n", bytes, *std::max_element(board_.p50, board_.p50 + settings_.ranks),
                  *std::max_element(board_.wrong, board_.wrong + settings_.ranks));
      std::fflush(stdout);
    }
    barrier();
  }

 private:
  static std::size_t most_bytes(const Settings& settings) {
    return *std::max_element(settings.sizes.begin(), settings.sizes.end());
  }

  // The region: for each parity a send slot, a receive slot per peer and a signal line per peer.
  std::size_t parity_bytes() const {
    return (slot_bytes_ + kLine) / kLine * kLine * (static_cast<std::size_t>(settings_.ranks) + 1) +
           kLine * static_cast<std::size_t>(settings_.ranks);
  }
  std::size_t slot_offset(std::uint64_t epoch, int index) const {
    return (epoch & 1) * parity_bytes() +
           (slot_bytes_ + kLine) / kLine * kLine * static_cast<std::size_t>(index);
  }
  std::size_t signal_offset(std::uint64_t epoch, int from) const {
    return slot_offset(epoch, settings_.ranks + 1) + kLine * static_cast<std::size_t>(from);
  }

  void open() {
    int count = 0;
    ibv_device** const devices = made(ibv_get_device_list(&count), "ibv_get_device_list");
    ibv_device* device = nullptr;
    for (int i = 0; i < count; ++i) {
      if (settings_.device == ibv_get_device_name(devices[i])) device = devices[i];
    }
    context_ = made(ibv_open_device(made(device, settings_.device.c_str())), "ibv_open_device");
    domain_ = made(ibv_alloc_pd(context_), "ibv_alloc_pd");
    completions_ =
        made(ibv_create_cq(context_, kMostRanks * static_cast<int>(kRequests), nullptr, nullptr, 0),
             "ibv_create_cq");
    const std::size_t bytes = 2 * parity_bytes();
    memory_ = static_cast<unsigned char*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
    std::memset(memory_, 0, bytes);
    region_ = made(ibv_reg_mr(domain_, memory_, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
                   "ibv_reg_mr");
    board_.key[rank_] = region_->rkey;
    board_.address[rank_] = reinterpret_cast<std::uintptr_t>(memory_);
    if (ibv_query_gid(context_, 1, settings_.gid_index, &board_.gid) != 0) die("ibv_query_gid");
  }

  void create_pair(int peer) {
    if (peer == rank_) return;
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = completions_;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {kRequests, 1, 1, 1, kInline};
    pairs_[peer] = made(ibv_create_qp(domain_, &attributes), "ibv_create_qp");
    board_.queue_pair[rank_][peer] = pairs_[peer]->qp_num;
    ibv_qp_attr initial{};
    initial.qp_state = IBV_QPS_INIT;
    initial.port_num = 1;
    initial.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    modify(peer, initial, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  }

  void connect(int peer) {
    ibv_port_attr port{};
    if (ibv_query_port(context_, 1, &port) != 0) die("ibv_query_port");
    ibv_qp_attr receive{};
    receive.qp_state = IBV_QPS_RTR;
    receive.path_mtu = port.active_mtu;
    receive.dest_qp_num = board_.queue_pair[peer][rank_];
    receive.max_dest_rd_atomic = 1;
    receive.min_rnr_timer = 12;
    receive.ah_attr.is_global = 1;
    receive.ah_attr.grh.dgid = board_.gid;
    receive.ah_attr.grh.sgid_index = settings_.gid_index;
    receive.ah_attr.grh.hop_limit = 64;
    receive.ah_attr.port_num = 1;
    modify(peer, receive,
           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    ibv_qp_attr sending{};
    sending.qp_state = IBV_QPS_RTS;
    sending.timeout = 18;
    sending.retry_cnt = 6;
    sending.rnr_retry = 7;
    sending.max_rd_atomic = 1;
    modify(peer, sending,
           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
               IBV_QP_MAX_QP_RD_ATOMIC);
  }

  void modify(int peer, ibv_qp_attr& attributes, int mask) {
    errno = ibv_modify_qp(pairs_[peer], &attributes, mask);
    if (errno != 0) die("ibv_modify_qp");
  }

  void all_reduce(const float* input, float* output, std::size_t count) {
    ++epoch_;
    std::memcpy(memory_ + slot_offset(epoch_, settings_.ranks), input, count * sizeof(float));
    for (int i = 1; i < settings_.ranks; ++i) {
      send((rank_ + i) % settings_.ranks, static_cast<std::uint32_t>(count * sizeof(float)));
    }
    const float* left = input;
    for (int peer = 0; peer < settings_.ranks; ++peer) {
      if (peer == rank_) continue;
      await(peer);
      add(left, reinterpret_cast<const float*>(memory_ + slot_offset(epoch_, peer)), output, count);
      left = output;
    }
  }

  static void add(const float* a, const float* b, float* sum, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
  }

  void send(int peer, std::uint32_t bytes) {
    ibv_sge payload_memory{reinterpret_cast<std::uintptr_t>(memory_ + slot_offset(epoch_, settings_.ranks)),
                           bytes, region_->lkey};
    ibv_sge signal_memory{reinterpret_cast<std::uintptr_t>(&epoch_), sizeof epoch_, 0};
    ibv_send_wr signal{};
    signal.sg_list = &signal_memory;
    signal.num_sge = 1;
    signal.opcode = IBV_WR_RDMA_WRITE;
    signal.send_flags = IBV_SEND_INLINE;
    if (epoch_ % kSignalEach == 0) {
      signal.send_flags |= IBV_SEND_SIGNALED;
      ++outstanding_;
    }
    signal.wr.rdma.remote_addr = board_.address[peer] + signal_offset(epoch_, rank_);
    signal.wr.rdma.rkey = board_.key[peer];
    ibv_send_wr payload{};
    payload.next = &signal;
    payload.sg_list = &payload_memory;
    payload.num_sge = 1;
    payload.opcode = IBV_WR_RDMA_WRITE;
    payload.send_flags = bytes <= kInline ? static_cast<unsigned>(IBV_SEND_INLINE) : 0;
    payload.wr.rdma.remote_addr = board_.address[peer] + slot_offset(epoch_, rank_);
    payload.wr.rdma.rkey = board_.key[peer];
    ibv_send_wr* bad = nullptr;
    errno = ibv_post_send(pairs_[peer], &payload, &bad);
    if (errno != 0) die("ibv_post_send");
  }

  void await(int peer) {
    const auto* const word = reinterpret_cast<const std::uint64_t*>(memory_ + signal_offset(epoch_, peer));
    long looks = 0;
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < epoch_) {
      if (outstanding_ != 0) poll();
      if (settings_.looks != 0 && ++looks % settings_.looks == 0) ::sched_yield();
    }
  }

  void poll() {
    ibv_wc completions[kMostRanks];
    const int count = ibv_poll_cq(completions_, kMostRanks, completions);
    for (int i = 0; i < count; ++i) {
      if (completions[i].status == IBV_WC_SUCCESS) continue;
      std::fprintf(stderr, "verbs_exchange: %s\n", ibv_wc_status_str(completions[i].status));
      std::_Exit(1);
    }
    outstanding_ -= count;
  }

  void barrier() {
    ++barriers_;
    ++board_.arrived;
    while (board_.arrived.load() < barriers_ * settings_.ranks) ::sched_yield();
  }

  void fill(std::vector<float>& data, long call) const {
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<float>((static_cast<long>(i) + call) % 1000 + rank_);
  }

  // Sums of small integers are exact in any order.
  long count_wrong(const std::vector<float>& data, long call) const {
    const auto ranks = static_cast<long>(settings_.ranks);
    long wrong = 0;
    for (std::size_t i = 0; i < data.size(); ++i) {
      const long want = (static_cast<long>(i) + call) % 1000 * ranks + ranks * (ranks - 1) / 2;
      wrong += data[i] != static_cast<float>(want);
    }
    return wrong;
  }

  const Settings& settings_;
  Board& board_;
  int rank_;
  std::size_t slot_bytes_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_cq* completions_ = nullptr;
  ibv_mr* region_ = nullptr;
  unsigned char* memory_ = nullptr;
  ibv_qp* pairs_[kMostRanks] = {};
  std::uint64_t epoch_ = 0;
  int outstanding_ = 0;
  int barriers_ = 0;
};

// Processors dealt in turn, as `rocenante perf` does.
void bind(int rank) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(rank % ::sysconf(_SC_NPROCESSORS_ONLN)), &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) die("sched_setaffinity");
}

int run_rank(const Settings& settings, Board& board, int rank) {
  bind(rank);
  Rank self(settings, board, rank);
  for (const std::size_t bytes : settings.sizes) self.measure(bytes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  if (argc >= 8) {
    settings.device = argv[1];
    settings.gid_index = static_cast<std::uint8_t>(std::atoi(argv[2]));
    settings.looks = std::atol(argv[3]);
    settings.ranks = std::atoi(argv[4]);
    settings.iterations = std::atol(argv[5]);
    settings.warmup = std::atol(argv[6]);
    for (int i = 7; i < argc; ++i) settings.sizes.push_back(std::strtoul(argv[i], nullptr, 10));
  }
  if (settings.ranks < 2 || settings.ranks > kMostRanks || settings.iterations < 1) {
    std::fprintf(
        stderr,
        "usage: %s DEVICE GID_INDEX LOOKS RANKS ITERATIONS WARMUP BYTES...; RANKS from 2 to %d, ITERATIONS "
        "at least 1\n",
        argv[0], kMostRanks);
    return 2;
  }
  void* const memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die("mmap");
  auto* const board = new (memory) Board;
  std::vector<pid_t> children;
  for (int rank = 0; rank < settings.ranks; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) die("fork");
    if (child == 0) std::_Exit(run_rank(settings, *board, rank));
    children.push_back(child);
  }
  // Whoever fails leaves the others waiting.
  int worst = 0;
  for (std::size_t left = children.size(); left > 0; --left) {
    int status = 0;
    if (::wait(&status) > 0 && status != 0) {
      worst = 1;
      for (const pid_t child : children) ::kill(child, SIGKILL);
    }
  }
  return worst;
}
