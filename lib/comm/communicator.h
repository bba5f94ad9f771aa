// SPDX-License-Identifier: Apache-2.0
//
// One rank's membership of a communicator: owns, in destruction order, the control star, regions,
// transports and the lane, and performs calls.
#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/config.h"
#include "lib/base/status.h"
#include "lib/comm/abort_state.h"
#include "lib/comm/call.h"
#include "lib/comm/control.h"
#include "lib/comm/driver.h"
#include "lib/comm/host_collectives.h"
#include "lib/comm/host_env.h"
#include "lib/comm/host_reduce.h"
#include "lib/comm/reunion.h"
#include "lib/comm/stats.h"
#include "lib/comm/stream_calls.h"
#include "lib/comm/topology.h"
#include "lib/comm/unique_id.h"
#include "lib/comm/wait_policy.h"
#include "lib/device/device.h"
#include "lib/device/registry.h"
#include "lib/net/fork.h"
#include "lib/protocol/call_rounds.h"
#include "reduce_kernels/reduce.h"
#include "transports/transport.h"

namespace rocenante {

// Custom operators alive on one communicator.
inline constexpr std::size_t kMostOperators = 65536;

// Something a group drives: step until not kPending.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual protocol::Verdict step() = 0;
  virtual std::uint64_t epoch() const = 0;
  virtual std::uint32_t missing() const = 0;
  // Whether the round in progress still wants something of this member.
  virtual bool wants(std::uint32_t peer) const = 0;
};

class Communicator final : private ControlListener {
 public:
  // Collective; returns when every rank has connected to every other, or an error on every rank that is
  // there.
  static Result<std::unique_ptr<Communicator>> create(
      const UniqueId& id, std::uint32_t rank, std::uint32_t ranks, Config config,
      const TransportCatalog& catalog = builtin_transports());
  // The same with the device that the settings name, which depends on the thread that opened it, or why
  // there is none: the other ranks are told so.
  static Result<std::unique_ptr<Communicator>> create(const UniqueId& id, std::uint32_t rank,
                                                      std::uint32_t ranks, Config config,
                                                      const TransportCatalog& catalog,
                                                      Result<std::shared_ptr<Device>> device);
  // Leaves in order unless leave() or abort() already did.
  ~Communicator() override;

  std::uint32_t rank() const { return rank_; }
  std::uint32_t ranks() const { return ranks_; }
  const Counters& counters() const { return counters_; }
  // The same on all ranks, and known to no one else.
  const net::SecretKey& key() const { return control_->key(); }
  // Reunion::id_without; also of a communicator that has failed. Any thread.
  Result<UniqueId> reunion_id(const std::vector<bool>& left_out) const;
  const char* transport_name(std::uint32_t peer) const { return transport_names_[peer].c_str(); }

  // Runs a call to its end on the calling thread. Inline, so that who names the collective pays for no
  // choice.
  Status perform(const CollectiveCall& call) {
    return call.collective == Collective::kAllReduce ? all_reduce(call) : exchange_blocks(call);
  }
  Status all_reduce(const CollectiveCall& call);

  // Whether calls are enqueued on streams and return at once, instead of being performed.
  bool on_streams() const { return streams_ != nullptr; }
  Status check_stream(const void* stream) const { return device_.value()->check_stream(stream); }
  // What of a call that check() has seen a device with streams does not do: buffers, collective.
  Status check_on_device(const CollectiveCall& call) const;
  // The capture that `stream` is in.
  Result<StreamCapture> capture_of(void* stream) const { return streams_->device().capture_of(stream); }
  // Enqueues a checked call.
  Status enqueue(const CollectiveCall& call, void* stream);
  // Returns when all that was enqueued has ended; an error if some of it has failed. Ended by an abort, and
  // at the latest some seconds after the deadlines of the calls. Any thread.
  Status flush();

  // For groups: makes the operation of a checked call, counts it, and says how its verdict reads.
  Result<std::unique_ptr<Operation>> make_operation(const CollectiveCall& call);
  // What a pending operation needs at every look besides being stepped: sockets and completion queues.
  void progress(const Operation& operation) {
    if (!lane_.all_mapped) progress_transports(operation.epoch());
  }
  // And now and then: deadlines, dead peers. May raise the abort word.
  void look_after(Operation& operation, std::uint64_t waited_ns);
  Status finish(const Operation& operation, protocol::Verdict verdict);

  // Checks the arguments and takes what the call needs of its operator, without changing anything else.
  Status check(CollectiveCall* call) const;

  // The error that poisoned the communicator, or success. Any thread.
  Status async_error();

  // First cause wins; tells the peers and wakes a blocked call. Any thread.
  void abort(protocol::AbortCause cause, Status status);
  void abort_by_user();

  // Custom operators.
  Result<std::uint32_t> create_pre_mul_sum(reduce::DataType type, const void* scalar);
  Status destroy_operator(std::uint32_t op);

  // Whether calls of this thread would wait for ranks that only this thread can drive; InvalidUsage naming
  // group start.
  Status check_driver();
  void set_driver(std::uint64_t thread) { driver_->thread.store(thread, std::memory_order_relaxed); }

  // True if this process was forked after the communicator was made.
  bool inherited() const { return net::fork_generation() != fork_generation_; }

 private:
  struct CustomOperator {
    reduce::DataType type;
    Scalar scalar;
    bool used;
  };
  // The custom operator of that number; null if there is none.
  const CustomOperator* find_operator(std::uint32_t op) const;

  // The protocol's Port: puts of unmapped peers.
  class HostPort {
   public:
    explicit HostPort(Communicator& comm) : comm_(comm) {}
    void post(const protocol::Lane& lane, std::uint64_t epoch, const protocol::Piece& piece) {
      if (!lane.all_mapped) comm_.post_puts(epoch, piece);
    }
    bool drained() const { return comm_.lane_.all_mapped || comm_.puts_drained(); }

   private:
    Communicator& comm_;
  };
  template <class Combiner>
  class CollectiveOperation;

  Communicator(std::uint32_t rank, std::uint32_t ranks, Config config, const TransportCatalog& catalog,
               Result<std::shared_ptr<Device>> device);
  Status initialise(const UniqueId& id);
  Status connect_all(net::Deadline deadline);
  Result<std::string> connect_peers(const std::vector<std::string>& blobs, net::Deadline deadline,
                                    const UnusableWays& unusable);
  Status connect_peer(std::uint32_t peer, std::string_view offers, net::Deadline deadline);
  Status prepare();
  Status allocate();
  Result<std::string> open_transports();
  Result<std::string> probe(net::Deadline deadline);
  void log_connections() const;
  Result<std::vector<std::string>> exchange(const Result<std::string>& own, net::Deadline deadline);
  void link_unmapped(std::uint32_t peer);
  Status build_lane();
  void choose_pieces(bool everybody_maps);
  void choose_waiting();
  Status set_up_streams();
  Status start_progress();
  void wake_progress() const;
  void leave();
  bool end_streams();
  bool may_wait_on(std::uint64_t start_ns, std::uint64_t* aborted_ns);
  void wait_for_streams(std::uint64_t start_ns, std::uint64_t* aborted_ns);

  // What one call does: decided before its first round.
  template <class Work>
  struct CallPlan {
    protocol::Exchange exchange;
    Work work;
    Path path;
  };
  template <class Work>
  CallPlan<Work> plan(const CollectiveCall& call) const;
  HostReduction reduction_of(const CollectiveCall& call) const;
  Path path_of(std::uint64_t bytes, bool in_line, std::uint64_t piece_bytes) const;
  bool takes_two_rounds(const CollectiveCall& call) const;
  // Most bytes of one block that one round moves where blocks are sent; 0 if a slot is too small.
  std::uint64_t chunk_bytes() const;
  Status check_shape(const CollectiveCall& call) const;
  // Every collective but all-reduce.
  Status exchange_blocks(const CollectiveCall& call);
  template <class Combiner>
  Status run(const CollectiveCall& call);
  template <class Op>
  protocol::Verdict drive(Op& operation);
  template <class Op>
  protocol::Verdict drive_slowly(Op& operation);
  Status finish_verdict(protocol::Verdict verdict, std::uint64_t epoch, std::uint32_t peer);
  void sleep(std::uint64_t limit_ns, std::uint64_t nap_ns, const Operation& operation);
  void sleep_on_descriptors(std::uint64_t limit_ns, std::uint64_t nap_ns);
  void progress_transports(std::uint64_t epoch);
  void post_puts(std::uint64_t epoch, const protocol::Piece& piece);
  bool puts_drained() const;
  void fail_transport(Status status, std::uint64_t epoch);
  // The highest epoch in the first of a peer's lines, and in any of them.
  std::uint64_t first_line(std::uint32_t peer) const;
  std::uint64_t last_signal(std::uint32_t peer) const;
  std::string describe_wait(std::uint64_t epoch, std::uint32_t peer) const;
  std::uint64_t timeout_ns() const { return epoch_ == 0 ? first_timeout_ns_ : timeout_ns_; }

  void on_gone(std::uint32_t rank, std::string_view how) override;
  void on_left(std::uint32_t rank) override;
  void on_abort(std::uint32_t from, std::uint64_t word, std::string_view text) override;
  void on_control_lost(std::string_view how) override;
  void on_beat() override;
  void note_absence(std::uint32_t rank, bool without_goodbye, std::string text);
  std::string why_lost(std::uint32_t peer);
  bool misses(std::uint32_t peer, std::uint64_t epoch, std::uint32_t missing);
  bool is_silent(std::uint32_t peer) const;  // for as long as makes suspect
  bool has_lost_rank_0() const;
  std::string describe_silence(std::uint32_t peer) const;
  void wake_own_thread();
  // Makes what the device has found wrong the communicator's error. Any thread.
  void look_at_device();
  // Tells the device which carried peers are lost. The progress thread.
  void look_at_peers();
  void tell_device_of_loss(std::uint32_t peer, std::string how);
  std::string why_unseen(const protocol::FailureRecord& record, std::uint32_t peer) const;
  Status describe_failure(const DeviceFailure& failure) const;

  const std::uint32_t rank_;
  const std::uint32_t ranks_;
  const Config config_;
  const TransportCatalog& catalog_;
  const std::uint64_t fork_generation_;
  std::uint64_t timeout_ns_ = 0;
  std::uint64_t first_timeout_ns_ = 0;
  std::uint64_t suspect_ns_ = 0;
  std::uint64_t piece_bytes_ = 0;  // most bytes of one round
  // All-reduces of at least so many bytes take two rounds a piece, and the most bytes of one then.
  std::uint64_t two_round_bytes_ = 0;
  std::uint64_t two_round_piece_bytes_ = 0;

  Result<std::shared_ptr<Device>> device_;  // an error only until initialisation has reported it
  std::unique_ptr<ControlStar> control_;
  std::optional<Reunion> reunion_;
  std::vector<HostIdentity> identities_;
  std::vector<std::string> transport_names_;
  protocol::Geometry geometry_;
  std::shared_ptr<Region> inbox_;
  std::shared_ptr<Region> outbox_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<Transport*> carriers_;       // those that map nothing
  bool puts_from_input_ = false;           // nobody maps our slots, and every transport reads anywhere
  std::vector<Transport*> transport_of_;   // per peer; null for self
  std::vector<std::uint32_t> recv_index_;  // per peer: its receive slot, if it has one
  std::vector<std::vector<fabric::Rail>> rails_;  // per peer: where its transport has any

  std::vector<protocol::PeerLink> links_;
  protocol::Lane lane_{};
  std::uint64_t epoch_ = 0;
  AbortState abort_;
  WaitPolicy policy_;
  HostEnv env_;
  // On a device with streams, else null.
  std::unique_ptr<StreamCalls> streams_;
  std::vector<std::string> losses_;  // per peer: written before the device is told, by one thread each
  class StreamProgress;              // known only where it is used; where peers are carried, else null
  std::shared_ptr<StreamProgress> progress_;
  const reduce::Kernels* kernels_ = nullptr;
  mutable std::vector<const void*> inputs_;
  std::vector<Put> puts_;
  net::SocketFd wake_fd_;      // wakes sleep_on_descriptors; empty where no transport carries puts
  std::vector<pollfd> polls_;  // its argument
  // Per peer: since when one of connection and control star, but not both, says that it is no more; or 0.
  std::vector<std::uint64_t> first_doubt_ns_;
  // A lost peer that an operation still waited for, and at how many looks of its round.
  struct {
    std::uint64_t epoch = 0;
    std::uint32_t peer = 0;
    std::uint32_t looks = 0;
  } missed_;
  Counters counters_;
  // Numbers of custom operators start here, elsewhere in each communicator, so that one of another is told.
  const std::uint32_t first_operator_;
  std::vector<CustomOperator> operators_;
  CollectiveCall current_;  // for error texts

  // Peers that are gone or have left: written by the monitor thread, text before flag.
  struct Absence {
    std::atomic<bool> absent{false};
    bool without_goodbye = false;
    std::string text;
  };
  std::unique_ptr<Absence[]> absences_;  // [ranks]
  std::atomic<std::uint32_t> absent_count_{0};

  // Who drives the ranks of this world in this process (check_driver).
  std::shared_ptr<Driver> driver_;
  std::vector<std::shared_ptr<Driver>> neighbours_;
  bool drivers_checked_ = false;
  bool is_complete_ = false;  // initialised to the end
};

}  // namespace rocenante
