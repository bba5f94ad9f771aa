// SPDX-License-Identifier: Apache-2.0
//
// Performing calls: checks, the plan of one, and the loop that drives it.
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>

#include "lib/comm/call_text.h"
#include "lib/comm/communicator.h"

namespace rocenante {
namespace {

// Stands for every custom operator in a call's tag: its number and scalar may differ between ranks.
constexpr std::uint32_t kPreMulSumTag = 5;
// Where nothing wakes a sleeper.
constexpr std::uint64_t kShortNapNs = 50'000;

bool is_custom(std::uint32_t op) {
  return op >= reduce::kNumOperators;
}

bool overlap_without_being_equal(const void* a, const void* b, std::uint64_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(a);
  const auto second = reinterpret_cast<std::uintptr_t>(b);
  return first != second && first < second + bytes && second < first + bytes;
}

}  // namespace

const Communicator::CustomOperator* Communicator::find_operator(std::uint32_t op) const {
  const std::uint32_t index = op - first_operator_;
  return op >= first_operator_ && index < operators_.size() && operators_[index].used ? &operators_[index]
                                                                                      : nullptr;
}

Status Communicator::check(AllReduceCall* checked) const {
  const AllReduceCall& call = *checked;
  const std::uint64_t element = reduce::element_size(call.type);
  if (call.count > (std::uint64_t{1} << 40) / element) {
    return make_error(Code::kInvalidArgument, "count is {}: at most 2^40 bytes may be moved by one call",
                      call.count);
  }
  if (call.count != 0 && call.input == nullptr) {
    return make_error(Code::kInvalidArgument, "sendbuff is NULL with count {}", call.count);
  }
  if (call.count != 0 && call.output == nullptr) {
    return make_error(Code::kInvalidArgument, "recvbuff is NULL with count {}", call.count);
  }
  if (overlap_without_being_equal(call.input, call.output, call.count * element)) {
    return make_error(Code::kInvalidArgument,
                      "sendbuff {} and recvbuff {} overlap over {} bytes: they must be equal or apart",
                      call.input, call.output, call.count * element);
  }
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

// Decides by what all ranks share alone (protocol rule 7): sizes, type, operator and agreed settings. Where
// our own puts are read from is nobody else's business.
Communicator::CallPlan Communicator::plan(const AllReduceCall& call) const {
  const std::uint64_t element = reduce::element_size(call.type);
  const std::uint64_t bytes = call.count * element;
  const bool custom = is_custom(call.op);
  const auto type = static_cast<std::size_t>(call.type);
  const auto op = custom ? static_cast<std::size_t>(reduce::Operator::kSum) : std::size_t{call.op};
  const bool in_line = bytes <= protocol::kInlineBytes && !custom;
  CallPlan plan{
      protocol::Exchange{
          call.input, call.output, bytes, piece_bytes_,
          call_tag(Collective::kAllReduce, call.type, custom ? kPreMulSumTag : call.op, call.count),
          in_line, false, puts_from_input_ && !custom && call.input != call.output},
      HostReduction{kernels_->reduce[type][op], nullptr, {}, element, ranks_, inputs_.data()},
      ranks_ == 1             ? Path::kLocal
      : in_line               ? Path::kOneShotInline
      : bytes <= piece_bytes_ ? Path::kOneShot
                              : Path::kOneShotRounds};
  if (custom) {
    plan.reduction.scale = kernels_->scale[type];
    plan.reduction.scalar = call.scalar;
  }
  return plan;
}

template <bool kScaled>
class Communicator::AllReduceOperation final : public Operation {
 public:
  using Protocol = protocol::OneShot<HostEnv, SoloGroup, HostPort, HostCombiner<kScaled>>;

  // Counts the call.
  AllReduceOperation(Communicator& comm, const AllReduceCall& call)
      : plan_(comm.plan(call)),
        port_(comm),
        combiner_(plan_.reduction),
        rounds_(comm.env_, group_, comm.lane_, port_, combiner_, 0, plan_.exchange) {
    comm.counters_.count(Collective::kAllReduce, plan_.exchange.bytes, plan_.path);
    comm.current_ = call;
  }

  protocol::Verdict step() override { return rounds_.step(); }
  std::uint64_t epoch() const override { return rounds_.epoch(); }
  std::uint32_t missing() const override { return rounds_.missing(); }

 private:
  const CallPlan plan_;
  SoloGroup group_;
  HostPort port_;
  HostCombiner<kScaled> combiner_;
  Protocol rounds_;
};

Result<std::unique_ptr<Operation>> Communicator::make_operation(const AllReduceCall& call) {
  if (abort_.raised()) return async_error();
  using Made = std::unique_ptr<Operation>;
  if (is_custom(call.op)) return Made(std::make_unique<AllReduceOperation<true>>(*this, call));
  return Made(std::make_unique<AllReduceOperation<false>>(*this, call));
}

Status Communicator::all_reduce(const AllReduceCall& call) {
  if (abort_.raised()) [[unlikely]]
    return async_error();
  if (!neighbours_.empty()) RCN_TRY(check_driver());
  const reduce::ScopedFpEnvironment environment;
  if (is_custom(call.op)) return run<true>(call);
  return run<false>(call);
}

template <bool kScaled>
Status Communicator::run(const AllReduceCall& call) {
  AllReduceOperation<kScaled> operation(*this, call);
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
    if (backoff.time_to_check()) {
      const std::uint64_t now = monotonic_ns();
      // Time counts from the last progress, not from the start of the call: a large call makes many rounds.
      if (epoch != operation.epoch() || missing != operation.missing()) backoff.restart();
      epoch = operation.epoch();
      missing = operation.missing();
      backoff.checked(now);
      look_after(operation, backoff.waited_ns(now));
    }
    const protocol::Verdict verdict = operation.step();
    if (verdict != protocol::Verdict::kPending) return verdict;
    if (!lane_.all_mapped) progress_transports(operation.epoch());
    backoff.pause([&](std::uint64_t limit_ns) { sleep(limit_ns, operation.epoch(), operation.missing()); });
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
                       collective_name(Collective::kAllReduce), epoch, peer, describe_tag(tag), rank_,
                       describe_call(current_)));
      break;
    }
    case protocol::Verdict::kAborted:
      break;
  }
  return async_error();
}

void Communicator::sleep(std::uint64_t limit_ns, std::uint64_t epoch, std::uint32_t peer) {
  if (!lane_.all_mapped) {
    // The look at the transports just before may have brought what is waited for.
    const bool is_there = peer >= ranks_ ? puts_drained() : last_signal(peer) >= epoch;
    if (!is_there) sleep_on_descriptors(limit_ns);
    return;
  }
  auto* const own =
      reinterpret_cast<protocol::WakeLine*>(inbox_->address() + protocol::Geometry::wake_offset());
  protocol::sleep_unless(env_, own, limit_ns, [&] {
    if (abort_.raised() || absent_count_.load(std::memory_order_acquire) != 0 || peer >= ranks_)
      return true;
    return env_.load_acquire(&links_[peer].inbound[epoch & 1]->epoch) >= epoch;
  });
}

// Not on the wake line: what a transport brings wakes nobody there (protocol rule 5). The transports'
// descriptors and the eventfd stay readable until they are looked at, so nothing that came before the sleep
// is missed.
void Communicator::sleep_on_descriptors(std::uint64_t limit_ns) {
  // A store by a mapped member, or by a transport without a descriptor, ends no sleep.
  bool wakes_all = carriers_.size() == transports_.size();
  polls_.assign(1, {wake_fd_.get(), POLLIN, 0});
  for (Transport* const carrier : carriers_) {
    const int fd = carrier->wait_descriptor();
    wakes_all = wakes_all && fd >= 0;
    polls_.push_back({fd, POLLIN, 0});  // poll(2) skips negative ones
  }
  const std::uint64_t limit = wakes_all ? limit_ns : kShortNapNs;
  const timespec time{static_cast<time_t>(limit / 1'000'000'000u),
                      static_cast<long>(limit % 1'000'000'000u)};
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
      puts_.push_back(Put{peer, piece.from_input ? piece.input : lane_.send[epoch & 1], piece.bytes, epoch,
                          piece.tag, protocol::lines_of(lane_, links_[peer], piece.bytes)});
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

Result<std::uint32_t> Communicator::create_pre_mul_sum(reduce::DataType type, const void* scalar) {
  CustomOperator made{type, {}, true};
  std::memcpy(made.scalar.data(), scalar, reduce::element_size(type));
  for (std::size_t i = 0; i < operators_.size(); ++i) {
    if (operators_[i].used) continue;
    operators_[i] = made;
    return static_cast<std::uint32_t>(first_operator_ + i);
  }
  if (operators_.size() >= kMostOperators) {
    return make_error(Code::kInvalidUsage, "65536 operators are alive on this communicator: destroy some");
  }
  operators_.push_back(made);
  return static_cast<std::uint32_t>(first_operator_ + operators_.size() - 1);
}

Status Communicator::destroy_operator(std::uint32_t op) {
  if (find_operator(op) == nullptr) {
    return make_error(Code::kInvalidArgument, "op is {}: not a live operator made on this communicator",
                      op);
  }
  operators_[op - first_operator_].used = false;
  return {};
}

}  // namespace rocenante
