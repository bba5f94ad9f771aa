// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/net/fork.h"
#include "transports/transport.h"
#include "transports/verbs/adapter.h"
#include "transports/verbs/blob.h"
#include "transports/verbs/rail_end.h"

namespace rocenante {

class VerbsTransport final : public Transport {
 public:
  explicit VerbsTransport(const VerbsApi& api) : api_(api), fork_generation_(net::fork_generation()) {}
  ~VerbsTransport() override;

  const char* name() const override { return "verbs"; }
  TransportCaps caps() const override {
    return {.needs_goodbye = true,
            .has_rails = true,
            .wants_processors = settings_.immediate && context_.software_rails};
  }
  Result<std::string> open(const TransportContext& context) override;
  Status connect(std::uint32_t peer, std::string_view blob, net::Deadline deadline,
                 protocol::PeerLink* link) override;
  std::shared_ptr<DeviceInbox> device_inbox() const override { return device_inbox_; }
  Status probe(net::Deadline deadline) override;
  Fd process_handle(std::uint32_t) override { return Fd(); }
  Status post(std::span<const Put> puts) override;
  Status progress() override;
  bool drained() const override;
  int wait_descriptor() override;
  // By the signals, or their notices, in host memory. A payload that was striped needs one of each rail.
  bool expects(std::uint32_t peer) const override;

 private:
  // How long closing waits for requests that were outstanding to be flushed. They are within microseconds.
  static constexpr std::uint64_t kDrainSeconds = 1;
  // How long probing waits. All ranks begin at about the same time; an adapter gives up sooner.
  static constexpr std::uint64_t kProbeSeconds = 30;
  static constexpr std::uint64_t kProbeWord = 0x726f63656e616e74;  // "rocenant"

  // What a put needs stands first.
  struct Peer {
    Status failure;                // why nothing more can be put to it
    std::uint64_t last_epoch = 0;  // put to it, with this many stripes
    std::uint32_t last_lines = 0;
    // By parity, what stands before our slot there: the tag last sent. 0: none was.
    std::array<std::uint64_t, protocol::kParities> tags{};
    RailEnd* ends = nullptr;           // its rails, in a row; once connected
    RailEnd* single = nullptr;         // the one of payloads that are not striped
    std::uint32_t single_line = 0;     // which line here tells of one that has come
    std::vector<std::uint32_t> rails;  // in rails_
    protocol::Geometry geometry;       // of its inbox
    // A queue pair that is in error without having said why; a reason may still come.
    const RailEnd* flushed = nullptr;
  };

  Status open_adapters();
  Status choose_receive_memory();
  Status receive_in_device();
  Status open_events();
  Adapter* adapter_of(const std::string& device) const;
  VerbsBlob own_blob() const;
  static std::uint64_t tag_bytes(Peer& peer, const Put& put);
  Status put_striped(const Peer& peer, const Put& put, std::uint64_t tag);
  protocol::SignalLine* line_from(std::uint32_t peer, std::uint64_t parity, std::uint32_t line) const;

  Status ask_silent_peers();
  Status poll(Adapter& adapter);
  Status complete(const ibv_wc& completion);
  void fail(RailEnd& rail, const ibv_wc& completion);
  void fail_peer(std::uint32_t peer, Status status);
  void explain_flushes();
  Status needed_failure() const;
  void drain(net::Deadline deadline);
  std::uint64_t* probe_word(std::uint32_t peer, std::uint32_t rail) const;
  const RailEnd* silent_rail() const;

  const VerbsApi& api_;
  const std::uint64_t fork_generation_;
  TransportContext context_;
  QueueSettings settings_;
  std::optional<Requests> requests_;  // from open() on
  // The last payload that was striped: most rounds are like the one before, and peers alike.
  struct {
    std::uint64_t bytes = 0;
    std::uint32_t stripes = 0;
    std::uint64_t share = 0;
  } striped_;
  std::uint32_t first_packet_ = 0;
  std::shared_ptr<DeviceInbox> device_inbox_;  // null: peers write the inbox in host memory alone
  std::vector<std::unique_ptr<Adapter>> adapters_;
  std::vector<RailEnd> rails_;  // those of a peer in a row; destroyed before the adapters
  std::vector<Peer> peers_;
  std::uint32_t failed_peers_ = 0;
  bool any_flushed_ = false;
  std::uint32_t looks_ = 0;
  std::uint64_t taken_ = 0;  // completions
  Status poll_failure_;      // met before a sleep; for progress()
  // Where completions come with every payload, so that a sleep can be ended by them.
  net::SocketFd events_;        // readable when one of the adapters has an event
  net::SocketFd ready_;         // always readable
  std::uint64_t asked_ns_ = 0;  // when silent peers were last asked
};

}  // namespace rocenante
