// SPDX-License-Identifier: Apache-2.0
//
// A transport that takes puts and moves nothing: it remembers them, and does what a test tells it.
#pragma once

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "transports/transport.h"

namespace rocenante::test {

class RecordingTransport final : public Transport {
 public:
  const char* name() const override { return "recording"; }
  TransportCaps caps() const override { return {}; }
  Result<std::string> open(const TransportContext&) override { return std::string(); }
  Status connect(std::uint32_t, std::string_view, net::Deadline, protocol::PeerLink*) override {
    return {};
  }
  Fd process_handle(std::uint32_t) override { return Fd(); }

  Status post(std::span<const Put> puts) override {
    if (refuses_post) return make_error(Code::kRemoteError, "recording: post refused");
    const std::lock_guard lock(mutex_);
    puts_.insert(puts_.end(), puts.begin(), puts.end());
    ++posts_;
    return {};
  }
  Status progress() override {
    ++looks;
    if (throws) throw std::runtime_error("recording: thrown");
    if (fails) return make_error(Code::kRemoteError, "recording: completion error");
    return {};
  }
  bool drained() const override { return !holds; }

  std::vector<Put> puts() const {
    const std::lock_guard lock(mutex_);
    return puts_;
  }
  std::uint64_t posts() const {
    const std::lock_guard lock(mutex_);
    return posts_;
  }

  std::atomic<bool> refuses_post{false}, fails{false}, throws{false};
  std::atomic<bool> holds{false};  // what is posted does not leave
  std::atomic<std::uint64_t> looks{0};

 private:
  mutable std::mutex mutex_;
  std::vector<Put> puts_;
  std::uint64_t posts_ = 0;
};

}  // namespace rocenante::test
