// SPDX-License-Identifier: Apache-2.0
//
// The protocol's template parameters, as the model sees them: every access becomes a step of the Machine.
#pragma once

#include <cstdint>

#include "lib/protocol/call_rounds.h"
#include "tests/protocol/model/machine.h"

namespace rocenante::model {

template <protocol::Mutation kMutant>
struct Env {
  static constexpr protocol::Mutation kMutation = kMutant;
  Machine& machine;

  template <class T>
  T load_acquire(const T* address) {
    return static_cast<T>(machine.access({Kind::kLoadAcquire, machine.locate(address)}));
  }
  template <class T>
  T load_relaxed(const T* address) {
    return static_cast<T>(machine.access({Kind::kLoad, machine.locate(address)}));
  }
  template <class T>
  T load_attached(const T* address) {
    return static_cast<T>(machine.access({Kind::kLoad, machine.locate(address), kNowhere, 0, true}));
  }
  template <class T>
  void store_release(T* address, T value, bool attached = false) {
    machine.access({Kind::kStoreRelease, machine.locate(address), kNowhere, value, attached});
  }
  template <class T>
  void store_relaxed(T* address, T value) {
    machine.access({Kind::kStore, machine.locate(address), kNowhere, value});
  }
  template <class T>
  T fetch_add(T* address, T value) {
    return static_cast<T>(machine.access({Kind::kAdd, machine.locate(address), kNowhere, value}));
  }
  void copy(void* to, const void* from, std::uint64_t bytes) {
    for (std::uint64_t at = 0; at < bytes; at += sizeof(Word)) {
      const Word word = load_relaxed(static_cast<const Word*>(from) + at / sizeof(Word));
      store_relaxed(static_cast<Word*>(to) + at / sizeof(Word), word);
    }
  }
  void pull(const void*) {}   // changes nothing
  void acquire_from_nic() {}  // a NIC's stores are steps like any other's
  void fence() { machine.access({Kind::kFence}); }

  // A futex without a time limit: whoever is not woken sleeps for ever. The word after the sequence says
  // that its owner is in the kernel's queue.
  void wait(const std::uint32_t* sequence, std::uint32_t before, std::uint64_t) {
    const Location queue = machine.locate(sequence + 1);
    const bool asleep = machine.access({Kind::kSleep, machine.locate(sequence), queue, before}) != 0;
    if (asleep) machine.access({Kind::kSleepEnd, kNowhere, queue});
  }
  void notify(std::uint32_t* sequence) {
    machine.access({Kind::kNotify, kNowhere, machine.locate(sequence + 1)});
  }

  void await(const Word* address, Word least) {
    machine.access({Kind::kAwait, machine.locate(address), kNowhere, least});
  }
};

// What the threads of a group meet at. After k meetings `arrived` stands at k * size.
struct Meeting {
  Word arrived;
  Word box[2];
  Word failed;  // what verdicts were bad, for good: a group ends with its first bad verdict
};

// The threads of a group; not a text under test. The verdict kPending is not handed on, because the others
// would only come back for the next one: whoever has it ends its look there.
template <class ModelEnv>
class Group {
 public:
  Group(ModelEnv& env, Meeting* meeting, std::uint32_t id, std::uint32_t size)
      : env_(env), meeting_(meeting), id_(id), size_(size) {}

  std::uint32_t id() const { return id_; }
  std::uint32_t size() const { return size_; }
  void sync() {
    if (size_ > 1) meet();
  }
  template <class T>
  T broadcast(T value) {
    if (size_ == 1) return value;
    // Everybody has left the meeting before the last one: its box is free.
    if (id_ == 0) env_.store_relaxed(box(), static_cast<Word>(value));
    Word* const mine = box();
    meet();
    ++broadcasts_;
    // It stands until this thread has come to the next meeting, so when it is looked at does not matter.
    return static_cast<T>(env_.load_attached(mine));
  }

  protocol::Verdict worst(protocol::Verdict value) {
    using protocol::Verdict;
    if (size_ == 1) return value;
    if (value == Verdict::kPending) env_.machine.pending();
    if (value != Verdict::kReady) {
      env_.fetch_add(&meeting_->failed, value == Verdict::kAborted ? Word{1} : kMismatched);
    }
    meet();
    // Nobody says more before this thread has come to the next meeting.
    const Word failed = env_.load_attached(&meeting_->failed);
    if (failed >= kMismatched) return Verdict::kMismatch;
    return failed != 0 ? Verdict::kAborted : Verdict::kReady;
  }

 private:
  static constexpr Word kMismatched = 256;

  Word* box() { return &meeting_->box[broadcasts_ % 2]; }
  void meet() {
    const Location arrived = env_.machine.locate(&meeting_->arrived);
    env_.await(&meeting_->arrived, env_.machine.access({Kind::kArrive, arrived, kNowhere, size_}));
  }

  ModelEnv& env_;
  Meeting* const meeting_;
  const std::uint32_t id_;
  const std::uint32_t size_;
  Word broadcasts_ = 0;
};

}  // namespace rocenante::model
