// SPDX-License-Identifier: Apache-2.0
#include "lib/base/config.h"

namespace rocenante {
namespace {

constexpr double kDay = 86400;

constexpr std::array<ConfigRow, kNumKeys> kTable = {{
    {Key::kTransport, "ROCENANTE_TRANSPORT", ValueType::kChoice, nullptr, "auto", "",
     "auto|loopback|shm|verbs|tcp", 0, 0, Scope::kAgreed, false,
     "How ranks reach each other. auto takes loopback between ranks of one process, shm between processes "
     "of one host, between hosts verbs where both have RDMA ports in one subnet and else tcp; a name "
     "forces "
     "that transport for every pair, also within one host, and fails where it cannot serve."},
    {Key::kSlotBytes, "ROCENANTE_SLOT_BYTES", ValueType::kBytes, nullptr, "1M", "bytes", nullptr, 4096,
     1024.0 * 1024 * 1024, Scope::kAgreed, false,
     "Size of one staging slot, without 128 bytes for each rank in those that are sent from. A call larger "
     "than this runs in rounds; a rank holds two send slots, and "
     "two "
     "receive slots per peer that cannot map its memory."},
    {Key::kChunkBytes, "ROCENANTE_CHUNK_BYTES", ValueType::kBytes, nullptr, "64K", "bytes", nullptr, 128,
     1024.0 * 1024 * 1024, Scope::kAgreed, false,
     "Most bytes one round moves when every peer maps our memory and the call does not take two rounds "
     "(ROCENANTE_TWO_ROUND_BYTES), so that the slots stay in the cache. At "
     "most one slot is used whatever this says."},
    {Key::kTwoRoundBytes, "ROCENANTE_TWO_ROUND_BYTES", ValueType::kBytes, nullptr, "auto", "bytes", "auto",
     113, 1024.0 * 1024 * 1024 * 1024, Scope::kAgreed, false,
     "An all-reduce on host memory of at least so many bytes among three or more ranks takes two rounds: "
     "each "
     "rank reduces a slice, then all gather the slices. Smaller ones take one, in which every rank sends "
     "all "
     "to every other. auto is 256K for 3 ranks, 48K for 4, 32K for more."},
    {Key::kSimd, "ROCENANTE_SIMD", ValueType::kChoice, nullptr, "auto", "",
     "auto|avx512|avx2|sse4|neon|scalar", 0, 0, Scope::kLocal, false,
     "Instruction set of the host reduction. Results do not depend on it; naming one that this processor "
     "lacks "
     "is an error."},
    {Key::kDevice, "ROCENANTE_DEVICE", ValueType::kChoice, nullptr, "auto", "", "auto|host|cuda", 0, 0,
     Scope::kAgreed, false,
     "The memory that calls of ours work on: host memory, or that of the calling thread's current CUDA "
     "device "
     "(docs/gpu.md). auto is host memory, and under the NCCL interface on a machine with a GPU nothing: "
     "every "
     "call is then the real library's."},
    {Key::kFallback, "ROCENANTE_FALLBACK", ValueType::kChoice, nullptr, "auto", "", "auto|off|require", 0,
     0, Scope::kLocal, false,
     "What the NCCL interface does with the real NCCL. off never loads it; auto loads it if there is a "
     "GPU; require always does, and fails where it cannot."},
    {Key::kNcclPath, "ROCENANTE_NCCL_PATH", ValueType::kText, nullptr, "", "", nullptr, 0, 0, Scope::kLocal,
     false,
     "The real NCCL: its file, or the folder that holds libnccl.so.2. Empty searches "
     "(docs/guide/preload.md)."},
    {Key::kAllReduceMaxBytes, "ROCENANTE_ALL_REDUCE_MAX_BYTES", ValueType::kBytes, nullptr, "auto", "bytes",
     "auto", 0, 1024.0 * 1024 * 1024 * 1024, Scope::kAgreed, false,
     "The largest all-reduce that the NCCL interface performs itself where it has the choice; larger ones "
     "go to the real NCCL. auto is 4M for 2 ranks, 1M for up to 4, 256K for more."},
    {Key::kAllGatherMaxBytes, "ROCENANTE_ALL_GATHER_MAX_BYTES", ValueType::kBytes, nullptr, "auto", "bytes",
     "auto", 0, 1024.0 * 1024 * 1024 * 1024, Scope::kAgreed, false,
     "As ROCENANTE_ALL_REDUCE_MAX_BYTES for all-gather, by what a rank receives. auto is what it is for "
     "all-reduce."},
    {Key::kReduceScatterMaxBytes, "ROCENANTE_REDUCE_SCATTER_MAX_BYTES", ValueType::kBytes, nullptr, "auto",
     "bytes", "auto", 0, 1024.0 * 1024 * 1024 * 1024, Scope::kAgreed, false,
     "As ROCENANTE_ALL_REDUCE_MAX_BYTES for reduce-scatter, by what a rank sends. auto is half of what it "
     "is for all-reduce."},
    {Key::kBroadcastMaxBytes, "ROCENANTE_BROADCAST_MAX_BYTES", ValueType::kBytes, nullptr, "auto", "bytes",
     "auto", 0, 1024.0 * 1024 * 1024 * 1024, Scope::kAgreed, false,
     "As ROCENANTE_ALL_REDUCE_MAX_BYTES for broadcast. auto is half of what it is for all-reduce."},
    {Key::kReduceMaxBytes, "ROCENANTE_REDUCE_MAX_BYTES", ValueType::kBytes, nullptr, "auto", "bytes",
     "auto", 0, 1024.0 * 1024 * 1024 * 1024, Scope::kAgreed, false,
     "As ROCENANTE_ALL_REDUCE_MAX_BYTES for reduce. auto is half of what it is for all-reduce."},
    {Key::kAllToAllMaxBytes, "ROCENANTE_ALL_TO_ALL_MAX_BYTES", ValueType::kBytes, nullptr, "auto", "bytes",
     "auto", 0, 1024.0 * 1024 * 1024 * 1024, Scope::kAgreed, false,
     "As ROCENANTE_ALL_REDUCE_MAX_BYTES for all-to-all, by what a rank sends. auto is half of what it is "
     "for all-reduce."},
    {Key::kSpinUs, "ROCENANTE_SPIN_US", ValueType::kInteger, nullptr, "20", "us", nullptr, 0, 10e6,
     Scope::kLocal, false,
     "How long a waiting call spins before it yields the processor. With more ranks on this host than "
     "processors it yields almost at once."},
    {Key::kTimeoutS, "ROCENANTE_TIMEOUT_S", ValueType::kReal, nullptr, "600", "s", nullptr, 0.001,
     30 * kDay, Scope::kAgreed, false, "How long a call waits for a peer that lives and does not come."},
    {Key::kFirstOpTimeoutS, "ROCENANTE_FIRST_OP_TIMEOUT_S", ValueType::kReal, nullptr, "1800", "s", nullptr,
     0.001, 30 * kDay, Scope::kAgreed, false,
     "The same for the first call of a communicator: ranks may start minutes apart."},
    {Key::kInitTimeoutS, "ROCENANTE_INIT_TIMEOUT_S", ValueType::kReal, nullptr, "120", "s", nullptr, 0.001,
     30 * kDay, Scope::kLocal, false, "How long initialisation waits for all ranks."},
    {Key::kSuspectS, "ROCENANTE_SUSPECT_S", ValueType::kReal, nullptr, "60", "s", nullptr, 0.001, 30 * kDay,
     Scope::kAgreed, false,
     "After how long without a heartbeat of a peer, and without progress of a call that waits for it, the "
     "call gives up."},
    {Key::kHeartbeatS, "ROCENANTE_HEARTBEAT_S", ValueType::kReal, nullptr, "5", "s", nullptr, 0.01, kDay,
     Scope::kLocal, false, "Interval of the heartbeats on control connections."},
    {Key::kGoodbyeTimeoutS, "ROCENANTE_GOODBYE_TIMEOUT_S", ValueType::kReal, nullptr, "5", "s", nullptr, 0,
     kDay, Scope::kLocal, false,
     "How long destroying a communicator waits for the goodbyes of peers that still may touch this rank's "
     "memory."},
    {Key::kSocketIfname, "ROCENANTE_SOCKET_IFNAME", ValueType::kText, "NCCL_SOCKET_IFNAME", "", "", nullptr,
     0, 0, Scope::kLocal, false,
     "Interfaces for the control and tcp data connections, in NCCL's syntax: a list of prefixes, ^ "
     "excludes, = is "
     "exact. "
     "Empty takes the first that is up, loopback last."},
    {Key::kSocketFamily, "ROCENANTE_SOCKET_FAMILY", ValueType::kChoice, "NCCL_SOCKET_FAMILY", "any", "",
     "any|AF_INET|AF_INET6", 0, 0, Scope::kLocal, false,
     "Address family of the control and tcp data connections."},
    {Key::kTcpWindow, "ROCENANTE_TCP_WINDOW", ValueType::kBytes, nullptr, "64K", "bytes", nullptr, 4096,
     1024.0 * 1024 * 1024, Scope::kLocal, false,
     "How far sending to a peer over tcp may be ahead of receiving from it: what is under way stays in the "
     "cache."},
    {Key::kSecret, "ROCENANTE_SECRET", ValueType::kText, nullptr, "", "", nullptr, 0, 0, Scope::kLocal,
     true, "Secret shared by all ranks when they meet at an address instead of through a unique id."},
    {Key::kSecretFile, "ROCENANTE_SECRET_FILE", ValueType::kText, nullptr, "", "", nullptr, 0, 0,
     Scope::kLocal, false, "File that holds the secret, without its trailing newline."},
    {Key::kDebug, "ROCENANTE_DEBUG", ValueType::kChoice, "NCCL_DEBUG", "WARN", "",
     "NONE|VERSION|WARN|INFO|ABORT|TRACE", 0, 0, Scope::kLocal, false, "What is logged to stderr."},
    {Key::kStats, "ROCENANTE_STATS", ValueType::kInteger, nullptr, "0", "", nullptr, 0, 1, Scope::kLocal,
     false, "1 writes the counters of a communicator to stderr as one JSON line when it is destroyed."},
    {Key::kStatsFile, "ROCENANTE_STATS_FILE", ValueType::kText, nullptr, "", "", nullptr, 0, 0,
     Scope::kLocal, false, "File that these lines are appended to instead of stderr."},
    {Key::kSignal, "ROCENANTE_SIGNAL", ValueType::kChoice, nullptr, "auto", "", "auto|write|imm", 0, 0,
     Scope::kAgreed, false,
     "How verbs says that a payload is there. write: an RDMA write of the epoch after it, which relies on "
     "the NIC and the bridge to place writes in order; imm: the receiver takes a completion and stores the "
     "epoch itself, which relies on nothing and costs a NIC's host more. auto: imm where every rank's "
     "adapters are software (soft RoCE), which has one packet less to carry then and wakes who waits; else "
     "write."},
    {Key::kStripeBytes, "ROCENANTE_STRIPE_BYTES", ValueType::kBytes, nullptr, "16K", "bytes", nullptr, 16,
     1024.0 * 1024 * 1024, Scope::kAgreed, false,
     "From how many bytes on the payload of a round is striped over all rails between two ranks; smaller "
     "ones take one rail, and pairs of ranks are spread over the rails."},
    {Key::kReceiveMemory, "ROCENANTE_RECEIVE_MEMORY", ValueType::kChoice, nullptr, "auto", "",
     "auto|host|device", 0, 0, Scope::kLocal, false,
     "Where peers reached over verbs write what they send to a rank whose calls are on a GPU. host: host "
     "memory; device: the GPU's own, with an error that names what is missing for it; auto: the GPU's own "
     "where GPU and adapters say that it can be, else host memory (docs/gpu.md)."},
    {Key::kIbHca, "ROCENANTE_IB_HCA", ValueType::kText, "NCCL_IB_HCA", "", "", nullptr, 0, 0, Scope::kLocal,
     false,
     "RDMA devices and ports to use, in NCCL's syntax: a list of NAME or NAME:PORT, where a name is a "
     "prefix; "
     "^ excludes, = makes names exact. Empty takes every port that can be used. One that is listed and "
     "cannot "
     "be used is an error."},
    {Key::kIbGidIndex, "ROCENANTE_IB_GID_INDEX", ValueType::kInteger, "NCCL_IB_GID_INDEX", "-1", "",
     nullptr, -1, 255, Scope::kLocal, false,
     "GID of every port. -1 finds the RoCE v2 GID of each port by itself, which is what hosts whose "
     "indexes "
     "differ need."},
    {Key::kIbAddrFamily, "ROCENANTE_IB_ADDR_FAMILY", ValueType::kChoice, "NCCL_IB_ADDR_FAMILY", "AF_INET",
     "", "AF_INET|AF_INET6", 0, 0, Scope::kLocal, false, "Address family of the GIDs that are found."},
    {Key::kIbTc, "ROCENANTE_IB_TC", ValueType::kInteger, "NCCL_IB_TC", "0", "", nullptr, 0, 255,
     Scope::kLocal, false,
     "Traffic class of RDMA packets: DSCP times four, plus ECN; 106 is DSCP 26 with ECN."},
    {Key::kIbSl, "ROCENANTE_IB_SL", ValueType::kInteger, "NCCL_IB_SL", "0", "", nullptr, 0, 15,
     Scope::kLocal, false, "Service level of RDMA packets."},
    {Key::kIbTimeout, "ROCENANTE_IB_TIMEOUT", ValueType::kInteger, "NCCL_IB_TIMEOUT", "16", "", nullptr, 1,
     31, Scope::kLocal, false,
     "How long a NIC waits for an acknowledgement before it sends again: 4.096 us times 2 to this power."},
    {Key::kIbRetryCnt, "ROCENANTE_IB_RETRY_CNT", ValueType::kInteger, "NCCL_IB_RETRY_CNT", "6", "", nullptr,
     0, 7, Scope::kLocal, false,
     "How often a NIC sends again before it gives the connection up. Soft RoCE takes 7 as never."},
    {Key::kProgressSpinUs, "ROCENANTE_PROGRESS_SPIN_US", ValueType::kInteger, nullptr, "100000", "us",
     nullptr, 0, 10e6, Scope::kLocal, false,
     "How long the thread that carries a device's operations spins after the last one before it looks only "
     "every 50 us. The default outlasts the pause between two tokens, so that a model that generates never "
     "meets it asleep."},
    {Key::kProgressCpus, "ROCENANTE_PROGRESS_CPUS", ValueType::kText, nullptr, "auto", "", nullptr, 0, 0,
     Scope::kLocal, false,
     "Processors of that thread. auto: of those that the process may use the ones near the adapters, and "
     "of "
     "these the biggest where processors differ; off leaves it where the process is; else a list such as "
     "0-3,8."},
    {Key::kMemAlloc, "ROCENANTE_MEM_ALLOC", ValueType::kChoice, nullptr, "auto", "", "auto|host", 0, 0,
     Scope::kLocal, false,
     "Whose memory ncclMemAlloc gives. auto is the real NCCL's where there is one, which its windows need; "
     "host is "
     "ours: host memory, or memory of the GPU, on an integrated one such that NICs can read it."},
}};

constexpr bool in_key_order() {
  for (std::size_t i = 0; i < kNumKeys; ++i) {
    if (static_cast<std::size_t>(kTable[i].key) != i) return false;
  }
  return true;
}
static_assert(in_key_order(), "a row's place is its key");

}  // namespace

const std::array<ConfigRow, kNumKeys>& config_table() {
  return kTable;
}

}  // namespace rocenante
