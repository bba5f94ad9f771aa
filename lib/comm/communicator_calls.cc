// SPDX-License-Identifier: Apache-2.0
//
// Performing calls: checks, the plan of one, and the loop that drives it.
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <type_traits>

#include "lib/comm/call_text.h"
#include "lib/comm/communicator.h"
#include "lib/comm/host_two_round.h"

namespace rocenante {
namespace {

// Stands for every custom operator in a call's tag: its number and scalar may differ between ranks.
constexpr std::uint32_t kPreMulSumTag = 5;

bool is_custom(std::uint32_t op) {
  return op >= reduce::kNumOperators;
}

// Whether the buffers of an all-reduce are plainly good, so that the shortest calls need no look at the
// rules of all collectives.
bool has_good_buffers(const CollectiveCall& call) {
  const std::uint64_t element = reduce::element_size(call.type);
  const std::uint64_t bytes = call.count * element;
  const auto send = reinterpret_cast<std::uintptr_t>(call.input);
  const auto receive = reinterpret_cast<std::uintptr_t>(call.output);
  return call.collective == Collective::kAllReduce && call.count <= (std::uint64_t{1} << 40) / element &&
         call.input != nullptr && call.output != nullptr &&
         (send == receive || send + bytes <= receive || receive + bytes <= send);
}

// What non-roots of a broadcast put into a line: it says that they are there, nobody reads it.
constexpr unsigned char kNothing[protocol::kInlineBytes] = {};

}  // namespace

const Communicator::CustomOperator* Communicator::find_operator(std::uint32_t op) const {
  const std::uint32_t index = op - first_operator_;
  return op >= first_operator_ && index < operators_.size() && operators_[index].used ? &operators_[index]
                                                                                      : nullptr;
}

Status Communicator::check(CollectiveCall* checked) const {
  const CollectiveCall& call = *checked;
  if (!has_good_buffers(call)) [[unlikely]]
    RCN_TRY(check_shape(call));
  if (!is_custom(call.op)) return {};
  const CustomOperator* const custom = find_operator(call.op);
  if (custom == nullptr) {
    return make_error(Code::kInvalidArgument,
                      "op is {}: expected 0 to {} or a live operator of this communicator", call.op,
                      reduce::kNumOperators - 1);
  }
  if (custom->type != call.type) {
    return make_error(Code::kInvalidArgument, "op {} was made for type {}, the call has {}", call.op,
                      type_name(custom->type), type_name(call.type));
  }
  checked->scalar = custom->scalar;
  return {};
}

Status Communicator::check_shape(const CollectiveCall& call) const {
  RCN_TRY(check_buffers(call, rank_, ranks_));
  if (!sends_blocks(call.collective) || chunk_bytes() != 0) return {};
  return make_error(Code::kInvalidUsage, "ROCENANTE_SLOT_BYTES is {}: {} among {} ranks needs at least {}",
                    geometry_.slot_bytes, collective_name(call.collective), ranks_, 16 * ranks_);
}

// Multiples of 16, so of every element. Chunks that would be smaller use the whole slot.
std::uint64_t Communicator::chunk_bytes() const {
  const std::uint64_t chunk = piece_bytes_ / ranks_ / 16 * 16;
  return chunk != 0 ? chunk : geometry_.slot_bytes / ranks_ / 16 * 16;
}

Path Communicator::path_of(std::uint64_t bytes, bool in_line, std::uint64_t piece_bytes) const {
  return ranks_ == 1            ? Path::kLocal
         : in_line              ? Path::kOneShotInline
         : bytes <= piece_bytes ? Path::kOneShot
                                : Path::kOneShotRounds;
}

bool Communicator::takes_two_rounds(const CollectiveCall& call) const {
  return call.count * reduce::element_size(call.type) >= two_round_bytes_;
}

HostReduction Communicator::reduction_of(const CollectiveCall& call) const {
  const bool custom = is_custom(call.op);
  const auto type = static_cast<std::size_t>(call.type);
  const auto op = custom ? static_cast<std::size_t>(reduce::Operator::kSum) : std::size_t{call.op};
  HostReduction work{kernels_->reduce[type][op],      nullptr, kernels_->copy, {},
                     reduce::element_size(call.type), ranks_,  inputs_.data()};
  if (custom) {
    work.scale = kernels_->scale[type];
    work.scalar = call.scalar;
  }
  return work;
}

// Decides by what all ranks share alone (protocol rule 7): sizes, type, operator and agreed settings. Where
// our own puts are read from is nobody else's business.
template <>
Communicator::CallPlan<HostReduction> Communicator::plan(const CollectiveCall& call) const {
  const std::uint64_t bytes = call.count * reduce::element_size(call.type);
  const bool custom = is_custom(call.op);
  const bool in_line = bytes <= protocol::kInlineBytes && !custom;
  return {protocol::Exchange{
              call.input, call.output, bytes, piece_bytes_,
              call_tag(Collective::kAllReduce, call.type, custom ? kPreMulSumTag : call.op, 0, call.count),
              in_line, false, puts_from_input_ && !custom && call.input != call.output},
          reduction_of(call), path_of(bytes, in_line, piece_bytes_)};
}

template <>
Communicator::CallPlan<HostTwoRound> Communicator::plan(const CollectiveCall& call) const {
  const CallPlan<HostReduction> whole = plan<HostReduction>(call);
  CallPlan<HostTwoRound> plan{whole.exchange, HostTwoRound{whole.work, rank_}, Path::kTwoRound};
  plan.exchange.piece_bytes = two_round_piece_bytes_;
  plan.exchange.sliced = true;
  plan.exchange.gathers = true;
  return plan;
}

// The same for the others. Every rank puts as many bytes, what of them the receiver uses or not: carriers
// open their windows by what comes back. The exchange itself gets buffers of its whole length, which a rank
// without a part in the call's own need not have.
template <>
Communicator::CallPlan<HostShape> Communicator::plan(const CollectiveCall& call) const {
  const bool custom = is_custom(call.op);
  const std::uint64_t block = call.count * reduce::element_size(call.type);
  const std::uint64_t bytes = sends_blocks(call.collective) ? block * ranks_ : block;
  const std::uint64_t piece = sends_blocks(call.collective) ? chunk_bytes() * ranks_ : piece_bytes_;
  const bool in_line = bytes <= protocol::kInlineBytes && !custom;
  const void* input = call.input;
  void* output = call.output;
  if (call.collective == Collective::kBroadcast && rank_ != call.root) input = in_line ? kNothing : output;
  const bool is_output_shorter = call.collective == Collective::kReduceScatter ||
                                 (call.collective == Collective::kReduce && rank_ != call.root);
  if (is_output_shorter) output = const_cast<void*>(call.input);  // written by nobody: the combiner knows
  return {protocol::Exchange{
              input, output, bytes, piece,
              call_tag(call.collective, call.type, custom ? kPreMulSumTag : call.op, call.root, call.count),
              in_line, false, false, sends_blocks(call.collective)},
          HostShape{reduction_of(call), call.collective, rank_, call.root,
                    static_cast<const unsigned char*>(call.input), static_cast<unsigned char*>(call.output),
                    block, static_cast<const unsigned char*>(output)},
          path_of(bytes, in_line, piece)};
}

template <class Combiner>
class Communicator::CollectiveOperation final : public Operation {
 public:
  using Protocol = protocol::CallRounds<HostEnv, SoloGroup, HostPort, Combiner>;

  // Counts the call.
  CollectiveOperation(Communicator& comm, const CollectiveCall& call)
      : plan_(comm.plan<typename Combiner::Work>(call)),
        port_(comm),
        combiner_(plan_.work),
        rounds_(comm.env_, group_, comm.lane_, port_, combiner_, {}, plan_.exchange) {
    if constexpr (!std::is_same_v<typename Combiner::Work, HostShape>) {
      comm.counters_.count(Collective::kAllReduce, plan_.exchange.bytes, plan_.path);
    } else {
      const bool gathers = call.collective == Collective::kAllGather;
      comm.counters_.count(call.collective, plan_.exchange.bytes * (gathers ? comm.ranks_ : 1), plan_.path);
    }
    comm.current_ = call;
  }

  protocol::Verdict step() override { return rounds_.step(); }
  std::uint64_t epoch() const override { return rounds_.epoch(); }
  std::uint32_t missing() const override { return rounds_.missing(); }
  bool wants(std::uint32_t peer) const override { return rounds_.wants(peer); }

 private:
  const CallPlan<typename Combiner::Work> plan_;
  SoloGroup group_;
  HostPort port_;
  Combiner combiner_;
  Protocol rounds_;
};

Result<std::unique_ptr<Operation>> Communicator::make_operation(const CollectiveCall& call) {
  if (abort_.raised()) return async_error();
  const auto made = [&]<class Combiner>(std::type_identity<Combiner>) {
    return std::unique_ptr<Operation>(std::make_unique<CollectiveOperation<Combiner>>(*this, call));
  };
  if (call.collective == Collective::kAllReduce) {
    if (takes_two_rounds(call)) {
      if (is_custom(call.op)) return made(std::type_identity<HostTwoRoundCombiner<true>>{});
      return made(std::type_identity<HostTwoRoundCombiner<false>>{});
    }
    if (is_custom(call.op)) return made(std::type_identity<HostCombiner<true>>{});
    return made(std::type_identity<HostCombiner<false>>{});
  }
  if (is_custom(call.op)) return made(std::type_identity<HostShapeCombiner<true>>{});
  return made(std::type_identity<HostShapeCombiner<false>>{});
}

Status Communicator::all_reduce(const CollectiveCall& call) {
  if (abort_.raised()) [[unlikely]]
    return async_error();
  if (!neighbours_.empty()) RCN_TRY(check_driver());
  const reduce::ScopedFpEnvironment environment;
  if (takes_two_rounds(call)) {
    if (is_custom(call.op)) return run<HostTwoRoundCombiner<true>>(call);
    return run<HostTwoRoundCombiner<false>>(call);
  }
  if (is_custom(call.op)) return run<HostCombiner<true>>(call);
  return run<HostCombiner<false>>(call);
}

Status Communicator::exchange_blocks(const CollectiveCall& call) {
  if (abort_.raised()) return async_error();
  if (!neighbours_.empty()) RCN_TRY(check_driver());
  const reduce::ScopedFpEnvironment environment;
  if (is_custom(call.op)) return run<HostShapeCombiner<true>>(call);
  return run<HostShapeCombiner<false>>(call);
}

// An error from here on leaves the ranks in different places, so it is everybody's; unless it came before
// anything was enqueued.
Status Communicator::enqueue(const CollectiveCall& call, void* stream) {
  RCN_TRY(async_error());
  CallPlan<HostReduction> plan = this->plan<HostReduction>(call);
  plan.exchange.puts_from_input = false;
  const bool custom = is_custom(call.op);
  const CallLaunch launch{
      nullptr,   plan.exchange,
      call.type, custom ? reduce::Operator::kSum : static_cast<reduce::Operator>(call.op),
      custom,    call.scalar,
      ranks_,    0};
  bool changed = false;
  Status status = streams_->enqueue(launch, stream, &changed);
  wake_progress();
  if (status.ok()) {
    counters_.count(call.collective, plan.exchange.bytes, plan.path);
  } else if (changed) {
    abort({protocol::AbortReason::kDevice, rank_, 0},
          make_error(status.code(), "rank {}, {}: {}", rank_, describe_call(call), status.text()));
    return async_error();
  }
  return status;
}

template <class Combiner>
Status Communicator::run(const CollectiveCall& call) {
  CollectiveOperation<Combiner> operation(*this, call);
  const protocol::Verdict verdict = drive(operation);
  if (verdict == protocol::Verdict::kReady) [[likely]]
    return {};
  return finish_verdict(verdict, operation.epoch(), operation.missing());
}

template <class Op>
protocol::Verdict Communicator::drive(Op& operation) {
  for (std::uint32_t look = 0; look < policy_.tight_polls; ++look) {
    const protocol::Verdict verdict = operation.step();
    if (verdict != protocol::Verdict::kPending) return verdict;
    if (!lane_.all_mapped) progress_transports(operation.epoch());
  }
  return drive_slowly(operation);
}

template <class Op>
[[gnu::noinline]] protocol::Verdict Communicator::drive_slowly(Op& operation) {
  Backoff backoff(policy_);
  std::uint64_t epoch = operation.epoch();
  std::uint32_t missing = operation.missing();
  for (;;) {
    const protocol::Verdict verdict = operation.step();
    if (verdict != protocol::Verdict::kPending) return verdict;
    if (!lane_.all_mapped) progress_transports(operation.epoch());
    // After the transports were looked at: what a peer sent before it was lost may have come while this
    // process was stopped.
    if (backoff.time_to_check()) {
      const std::uint64_t now = monotonic_ns();
      // Time counts from the last progress, not from the start of the call: a large call makes many rounds.
      if (epoch != operation.epoch() || missing != operation.missing()) backoff.restart();
      epoch = operation.epoch();
      missing = operation.missing();
      backoff.checked(now);
      look_after(operation, backoff.waited_ns(now));
    }
    backoff.pause(
        [&](std::uint64_t limit_ns, std::uint64_t nap_ns) { sleep(limit_ns, nap_ns, operation); });
  }
}

Status Communicator::finish(const Operation& operation, protocol::Verdict verdict) {
  return finish_verdict(verdict, operation.epoch(), operation.missing());
}

Status Communicator::finish_verdict(protocol::Verdict verdict, std::uint64_t epoch, std::uint32_t peer) {
  switch (verdict) {
    case protocol::Verdict::kReady:
      return {};
    case protocol::Verdict::kPending:
      return make_error(Code::kInternalError, "a pending operation was finished");
    case protocol::Verdict::kMismatch: {
      const std::uint64_t tag = env_.load_relaxed(protocol::tag_of<HostEnv>(links_[peer], epoch));
      abort({protocol::AbortReason::kMismatch, peer, epoch},
            make_error(Code::kInvalidUsage, "{}, epoch {}: rank {} called {} where rank {} called {}",
                       collective_name(current_.collective), epoch, peer, describe_tag(tag), rank_,
                       describe_call(current_)));
      break;
    }
    case protocol::Verdict::kAborted:
      break;
  }
  return async_error();
}

void Communicator::sleep(std::uint64_t limit_ns, std::uint64_t nap_ns, const Operation& operation) {
  const std::uint32_t peer = operation.missing();
  const auto is_there = [&] { return peer >= ranks_ ? puts_drained() : !operation.wants(peer); };
  if (!lane_.all_mapped) {
    // The look at the transports just before may have brought what is waited for.
    if (!is_there()) sleep_on_descriptors(limit_ns, nap_ns);
    return;
  }
  auto* const own =
      reinterpret_cast<protocol::WakeLine*>(inbox_->address() + protocol::Geometry::wake_offset());
  protocol::sleep_unless(env_, own, limit_ns, [&] {
    return abort_.raised() || absent_count_.load(std::memory_order_acquire) != 0 || is_there();
  });
}

// Not on the wake line: what a transport brings wakes nobody there (protocol rule 5). The transports'
// descriptors and the eventfd stay readable until they are looked at, so nothing that came before the sleep
// is missed.
void Communicator::sleep_on_descriptors(std::uint64_t limit_ns, std::uint64_t nap_ns) {
  // A store by a mapped member, or by a transport without a descriptor, ends no sleep.
  bool wakes_all = carriers_.size() == transports_.size();
  polls_.assign(1, {wake_fd_.get(), POLLIN, 0});
  for (Transport* const carrier : carriers_) {
    const int fd = carrier->wait_descriptor();
    wakes_all = wakes_all && fd >= 0;
    polls_.push_back({fd, POLLIN, 0});  // poll(2) skips negative ones
  }
  const std::uint64_t limit = wakes_all ? limit_ns : nap_ns;
  const timespec time = net::timespec_of(limit);
  if (::ppoll(polls_.data(), polls_.size(), &time, nullptr) > 0 && polls_[0].revents != 0) {
    eventfd_t count = 0;
    (void)::eventfd_read(wake_fd_.get(), &count);
  }
}

void Communicator::post_puts(std::uint64_t epoch, const protocol::Piece& piece) {
  for (Transport* const transport : carriers_) {
    puts_.clear();
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      if (transport_of_[peer] != transport) continue;
      const auto* payload =
          piece.from_input ? static_cast<const unsigned char*>(piece.input) : lane_.send[epoch & 1];
      if (piece.sliced)
        payload += peer * (piece.from_input ? piece.carried : protocol::slice_stride(piece.carried));
      puts_.push_back(Put{peer, payload, piece.carried, epoch, piece.tag,
                          protocol::lines_of(lane_, links_[peer], piece.carried)});
    }
    if (Status status = transport->post(puts_); !status.ok()) {
      fail_transport(std::move(status), epoch);
    }
  }
}

void Communicator::progress_transports(std::uint64_t epoch) {
  for (Transport* const transport : carriers_) {
    if (Status status = transport->progress(); !status.ok()) {
      fail_transport(std::move(status), epoch);
    }
  }
}

bool Communicator::puts_drained() const {
  return std::all_of(carriers_.begin(), carriers_.end(),
                     [](const Transport* carrier) { return carrier->drained(); });
}

}  // namespace rocenante
