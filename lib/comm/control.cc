// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/control.h"

#include <utility>

#include "lib/base/log.h"
#include "lib/comm/control_join.h"
#include "lib/comm/star_core.h"
#include "lib/net/fork.h"
#include "lib/net/keep_forever.h"

namespace rocenante {
namespace {

constexpr std::uint64_t kLeaveTimeNs = net::kNanosecondsPerSecond;

Status inherited_error() {
  return make_error(Code::kInvalidUsage,
                    "this communicator was made before a fork and cannot be used in the child");
}

}  // namespace

ControlStar::ControlStar(std::shared_ptr<StarCore> core, const net::SecretKey& key)
    : core_(std::move(core)), fork_generation_(net::fork_generation()), key_(key) {}

Result<std::unique_ptr<ControlStar>> ControlStar::join(const UniqueId& id, std::uint32_t rank,
                                                       std::uint32_t nranks, const Config& config,
                                                       net::Deadline deadline) {
  JoinedStar joined;
  RCN_ASSIGN(joined, join_star(id, rank, nranks, config, deadline));
  return std::unique_ptr<ControlStar>(new ControlStar(std::move(joined.core), joined.key));
}

ControlStar::~ControlStar() {
  if (is_inherited()) {
    // Its state may have been in the middle of a change when the process forked: left alone.
    net::keep_forever(std::move(core_));
    return;
  }
  core_->stop_events();
  core_->close_in_order(net::Deadline::after_ns(kLeaveTimeNs));
}

bool ControlStar::is_inherited() const {
  return fork_generation_ != net::fork_generation();
}

Result<std::vector<std::string>> ControlStar::all_gather(std::string_view blob, net::Deadline deadline) {
  if (is_inherited()) return inherited_error();
  return gather_blobs(core_.get(), blob, deadline);
}

Status ControlStar::start_events(ControlListener* listener) {
  return is_inherited() ? inherited_error() : core_->start_events(listener);
}

void ControlStar::stop_events() {
  if (!is_inherited()) core_->stop_events();
}

Status ControlStar::watch_process(std::uint32_t rank, Fd pidfd) {
  return is_inherited() ? inherited_error() : core_->watch_process(rank, std::move(pidfd));
}

void ControlStar::broadcast_abort(std::uint64_t word, std::string_view text) {
  if (!is_inherited()) core_->broadcast_abort(word, text);
}

void ControlStar::say_goodbye() {
  if (!is_inherited()) core_->say_goodbye();
}

bool ControlStar::wait_for_goodbyes(const std::vector<bool>& from, net::Deadline deadline) {
  return !is_inherited() && core_->wait_for_goodbyes(from, deadline);
}

std::uint64_t ControlStar::last_heard_ns(std::uint32_t rank) const {
  return core_->last_heard_ns(rank);
}

std::uint32_t ControlStar::rank() const {
  return core_->rank();
}

std::uint32_t ControlStar::nranks() const {
  return core_->nranks();
}

}  // namespace rocenante
