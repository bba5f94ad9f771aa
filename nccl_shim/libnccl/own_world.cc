// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/own_world.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "lib/comm/at_once.h"
#include "lib/comm/boundary.h"
#include "lib/net/deadline.h"
#include "nccl_shim/libnccl/abi.h"
#include "nccl_shim/libnccl/thread_group.h"

namespace rocenante::nccl {
namespace {

Status meet(const OwnInit& init, OwnComm& own) {
  const net::ScopedCancel cancel(own.work.cancelled());
  void* core = nullptr;
  RCN_TRY(initialise(PendingInit{&core, init.id, static_cast<std::uint32_t>(own.rank),
                                 static_cast<std::uint32_t>(own.ranks), own.config, own.device.opened}));
  if (const ExclusiveUse use(core); use) use->set_driver(init.driver);
  set_alias(core, init.slot);
  own.core = core;
  init.slot->core.store(core, std::memory_order_release);
  return {};
}

// The client has the handle already, and may abort it from another thread.
Status initialise_own(const OwnInit& init) {
  RCN_ASSIGN(const OwnPin own, OwnPin::begin(init.slot));
  own->meeting.store(true, std::memory_order_seq_cst);
  Status status = own->work.cancelled().load(std::memory_order_seq_cst)
                      ? make_error(Code::kInvalidUsage, "comm {} was aborted while it was initialising",
                                   static_cast<const void*>(init.slot))
                      : caught([&] { return meet(init, *own); });
  if (!status.ok()) own->error = status;
  own->phase.store(status.ok() ? OwnComm::kReady : OwnComm::kFailed, std::memory_order_release);
  own->meeting.store(false, std::memory_order_seq_cst);
  return status;
}

Status start_in_background(const OwnInit& init) {
  RCN_ASSIGN(const OwnPin own, OwnPin::begin(init.slot));
  RCN_TRY(own->work.start([init] {
    const Status initialised = initialise_own(init);
    (void)initialised;  // whoever polls is told
  }));
  return make_error(Code::kInProgress, "comm {} is initialising", static_cast<const void*>(init.slot));
}

void keep_first(Status* first, Status next) {
  const bool better = first->ok() || (first->code() == Code::kInProgress && next.code() != Code::kSuccess);
  if (better) *first = std::move(next);
}

Status flush(const OwnComm& own) {
  RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(own.core));
  return use->flush();
}

// From phase `before`; ready again if it succeeds.
Status start_from(OwnComm& own, OwnSlot* slot, OwnComm::Phase before, std::function<Status()> work) {
  std::uint32_t phase = before;
  if (!own.phase.compare_exchange_strong(phase, OwnComm::kWorking, std::memory_order_acq_rel)) {
    return why_not_ready(slot);
  }
  // Calls find none until the work has ended.
  void* const core = slot->core.exchange(nullptr, std::memory_order_acq_rel);
  const auto end = [slot, core, &own](std::uint32_t next) {
    slot->core.store(own.finalized || next == OwnComm::kFailed ? nullptr : core, std::memory_order_release);
    own.phase.store(next, std::memory_order_release);
  };
  Status started = own.work.start([&own, end, work = std::move(work), driver = thread_number()] {
    const net::ScopedCancel cancel(own.work.cancelled());
    Status done = caught(work);
    if (const ExclusiveUse use(own.core); use) use->set_driver(driver);
    const bool ok = done.ok();
    if (!ok) own.error = std::move(done);
    end(ok ? OwnComm::kReady : OwnComm::kFailed);
  });
  if (started.ok()) {
    return make_error(Code::kInProgress, "comm {} goes on in the background",
                      static_cast<const void*>(slot));
  }
  end(before);
  return started;
}

}  // namespace

UniqueId to_internal(const rcnUniqueId& id) {
  UniqueId result;
  std::memcpy(result.bytes.data(), id.internal, sizeof id.internal);
  return result;
}

void to_public(const UniqueId& id, rcnUniqueId* result) {
  std::memcpy(result->internal, id.bytes.data(), sizeof result->internal);
}

bool is_own_id(const rcnUniqueId& id) {
  return decode_unique_id(to_internal(id)).ok();
}

Result<bool> read_blocking(const void* config) {
  if (config == nullptr) return true;
  ConfigHead head{};
  std::memcpy(&head, config, offsetof(ConfigHead, blocking));
  if (head.magic != kConfigMagic || head.size < sizeof(ConfigHead)) {
    return make_error(Code::kInvalidArgument,
                      "config has magic {:#x} and size {}: initialise it with NCCL_CONFIG_INITIALIZER",
                      head.magic, head.size);
  }
  std::memcpy(&head, config, sizeof head);
  if (head.blocking != 0 && head.blocking != 1 && head.blocking != kUndefinedInt) {
    return make_error(Code::kInvalidArgument, "config->blocking is {}: expected 0 or 1", head.blocking);
  }
  return head.blocking != 0;
}

Result<OwnInit> prepare_init(void** handle, int nranks, const UniqueId& id, int rank, bool blocking,
                             OwnDevice device, Config config) {
  RCN_TRY(require(handle, "comm"));
  RCN_TRY(check_rank(nranks, rank));
  if (auto decoded = decode_unique_id(id); !decoded.ok()) return decoded.status();
  RCN_ASSIGN(OwnSlot* const slot, reserve_slot(std::make_unique<OwnComm>(rank, nranks, std::move(device),
                                                                         blocking, std::move(config))));
  return OwnInit{handle, slot, id};
}

Status run_inits(const std::vector<OwnInit>& inits) {
  std::vector<Status> results(inits.size());
  std::vector<std::size_t> here;
  for (std::size_t i = 0; i < inits.size(); ++i) {
    if (inits[i].in_background) {
      tell(inits[i].handle, inits[i].slot);
      results[i] = start_in_background(inits[i]);
    } else {
      here.push_back(i);
    }
  }
  // After the others have been started. One alone waits for nobody else of this thread.
  if (here.size() == 1) {
    results[here[0]] = initialise_own(inits[here[0]]);
  } else {
    std::vector<Status> done =
        run_at_once(here.size(), [&](std::size_t i) { return initialise_own(inits[here[i]]); });
    for (std::size_t i = 0; i < here.size(); ++i) results[here[i]] = std::move(done[i]);
  }
  Status first;
  for (std::size_t i = 0; i < inits.size(); ++i) {
    const bool goes_on = results[i].code() == Code::kInProgress;
    if (results[i].ok() && inits[i].is_child && net::cancelled()) {
      results[i] = make_error(Code::kInvalidUsage, "the communicator it is made out of was given up");
    }
    if (results[i].ok()) {
      tell(inits[i].handle, inits[i].slot);
    } else if (!goes_on) {
      if (!inits[i].is_child) tell(inits[i].handle, nullptr);
      const Status closed = close_own(inits[i].slot, true);
      (void)closed;  // the first error is the one to tell
    }
    keep_first(&first, std::move(results[i]));
  }
  return first;
}

Status start_work(OwnSlot* slot, std::function<Status()> work) {
  RCN_ASSIGN(const OwnPin own, OwnPin::begin(slot));
  return start_from(*own, slot, OwnComm::kReady, std::move(work));
}

Status start_rescue(OwnSlot* slot, std::function<Status()> work) {
  RCN_ASSIGN(const OwnPin own, OwnPin::begin(slot));
  const bool failed = own->phase.load(std::memory_order_acquire) == OwnComm::kFailed;
  return start_from(*own, slot, failed ? OwnComm::kFailed : OwnComm::kReady, std::move(work));
}

Status init_rank(void** comm, int nranks, const rcnUniqueId& id, int rank, const void* config, bool joins) {
  RCN_ASSIGN(const bool blocking, read_blocking(config));
  RCN_ASSIGN(Config settings, load_settings({}));
  OwnDevice device{-1, open_device(settings.text(Key::kDevice))};
  RCN_ASSIGN(OwnInit init, prepare_init(comm, nranks, to_internal(id), rank, blocking, std::move(device),
                                        std::move(settings)));
  init.in_background = !blocking;
  init.joins = joins;
  tell(comm, init.slot);
  if (group_is_open()) {
    ThreadGroup::of_this_thread().inits.push_back(init);
    return {};
  }
  return run_inits({init});
}

Status init_all(void** comms, int count, const int* devices) {
  RCN_TRY(require(comms, "comm"));
  RCN_TRY(check_rank(count, 0));
  for (int i = 0; devices != nullptr && i < count; ++i) {
    if (devices[i] < 0) return make_error(Code::kInvalidArgument, "devlist[{}] is {}", i, devices[i]);
    if (std::find(devices, devices + i, devices[i]) != devices + i) {
      return make_error(Code::kInvalidUsage, "devlist[{}] is {}, which stands there twice", i, devices[i]);
    }
  }
  RCN_ASSIGN(const Config config, load_settings({}));
  std::vector<OwnDevice> opened;
  for (int i = 0; i < count; ++i) {
    const int number = devices == nullptr ? i : devices[i];
    opened.push_back({number, open_device(config.text(Key::kDevice), number)});
    RCN_TRY(opened.back().opened.status());
  }
  RCN_ASSIGN(const UniqueId made, create_unique_id(config));
  std::vector<OwnInit> inits;
  for (int i = 0; i < count; ++i) {
    auto init = prepare_init(&comms[i], count, made, i, true, opened[static_cast<std::size_t>(i)], config);
    if (!init.ok()) {
      for (const OwnInit& other : inits) {
        tell(other.handle, nullptr);
        RCN_TRY(close_own(other.slot, true));
      }
      return init.status();
    }
    inits.push_back(init.take());
  }
  Status status = run_inits(inits);
  for (int i = 0; !status.ok() && i < count; ++i) {
    if (comms[i] != nullptr) RCN_TRY(close_own(own_slot(std::exchange(comms[i], nullptr)), true));
  }
  return status;
}

// What was enqueued on streams ends first; calls on host memory were done when they returned. What is left
// is to part from the others, which a blocking communicator does when it is destroyed: the header asks for
// nothing sooner, and a thread with several ranks would wait for itself.
Status run_finalize(OwnSlot* slot) {
  RCN_TRY(why_not_ready(slot));
  RCN_ASSIGN(const OwnPin own, OwnPin::begin(slot));
  own->finalized.store(true);
  slot->core.store(nullptr, std::memory_order_release);
  if (own->blocking) return flush(*own);
  return start_work(slot, [&comm = *own]() -> Status {
    RCN_TRY(flush(comm));
    RCN_TRY(close_communicator(comm.core, false));
    comm.left.store(true);
    return {};
  });
}

Status finalize(OwnSlot* slot) {
  RCN_TRY(why_not_ready(slot));
  if (!group_is_open()) return run_finalize(slot);
  ThreadGroup::of_this_thread().finalizes.push_back(slot);
  return {};
}

Status revoke(OwnSlot* slot, int flags) {
  if (flags != 0) return make_error(Code::kInvalidArgument, "revokeFlags is {}: expected 0", flags);
  RCN_TRY(why_not_ready(slot));
  RCN_ASSIGN(const OwnPin own, OwnPin::begin(slot));
  own->revoked.store(true);
  slot->core.store(nullptr, std::memory_order_release);
  RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(own->core));
  use->abort_by_user();
  return {};
}

Result<Code> async_code(OwnSlot* slot) {
  RCN_ASSIGN(const OwnPin own, OwnPin::begin(slot));
  const std::uint32_t phase = own->phase.load(std::memory_order_acquire);
  if (phase == OwnComm::kInitialising || phase == OwnComm::kWorking) return Code::kInProgress;
  if (phase == OwnComm::kFailed) return own->error.code();
  // Its own doing.
  if (own->revoked || own->left) return Code::kSuccess;
  RCN_ASSIGN(const PinnedUse use, PinnedUse::begin(own->core));
  return use->async_error().code();
}

}  // namespace rocenante::nccl
