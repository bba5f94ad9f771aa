// SPDX-License-Identifier: Apache-2.0
//
// What stands behind a ControlStar and, where it lingers, outlives it: the connections and what is known of
// every rank. During initialisation it belongs to the joining thread; afterwards the monitor's thread reads
// and any thread may speak.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lib/comm/control.h"
#include "lib/comm/control_messages.h"
#include "lib/comm/monitor.h"
#include "lib/net/socket.h"

namespace rocenante {

// Rank 0 has one to every other rank, the others have one to rank 0.
struct ControlLink {
  net::SocketFd fd;  // empty once lost or closed
  std::uint32_t peer = 0;
  std::string who;  // "rank 3 (10.0.0.1:4242)"
  net::FrameReader reader{kLongestBlob + kBlobHeaderBytes};
  std::string outbox = {};  // not yet taken by the socket
  bool awaits_room = false;
  bool is_write_closed = false;
};

class StarCore final : public MonitorClient, public std::enable_shared_from_this<StarCore> {
 public:
  StarCore(std::uint32_t rank, std::uint32_t nranks, std::vector<ControlLink> links,
           std::uint64_t heartbeat_ns);

  std::uint32_t rank() const { return rank_; }
  std::uint32_t nranks() const { return nranks_; }
  // Initialisation only, by its thread.
  std::vector<ControlLink>& links() { return links_; }
  std::uint32_t next_gather_round() { return gather_round_++; }

  // As ControlStar's, for any thread.
  Status start_events(ControlListener* listener);
  void stop_events();
  Status watch_process(std::uint32_t rank, Fd pidfd);
  void broadcast_abort(std::uint64_t word, std::string_view text);
  void say_goodbye();
  bool wait_for_goodbyes(const std::vector<bool>& from, net::Deadline deadline);
  std::uint64_t last_heard_ns(std::uint32_t rank) const {
    return last_heard_[rank].load(std::memory_order_acquire);  // see note_heard
  }

  // Leaves, as ~ControlStar describes. The core is finished some time later.
  void close_in_order(net::Deadline deadline);

  // MonitorClient.
  void on_ready(std::uint32_t index, std::uint32_t events) override;
  void on_time(std::uint64_t now_ns) override;
  // Relaxed: whoever changes one of these wakes the monitor through its lock.
  std::uint64_t due_ns() const override { return due_ns_.load(std::memory_order_relaxed); }
  bool is_finished() const override { return is_finished_.load(std::memory_order_relaxed); }

 private:
  enum class Fate : std::uint8_t { kPresent, kLeft, kGone };
  // For the listener, which is told when no lock but its own is held.
  struct Event {
    enum class Kind { kGone, kLeft, kAbort, kControlLost, kBeat } kind;
    std::uint32_t rank = 0;
    std::uint64_t word = 0;
    std::string text = {};
  };
  using Events = std::vector<Event>;

  bool is_center() const { return rank_ == 0; }
  // Rank 0 after its goodbye: closed to its own process, open to the others.
  bool is_relaying() const { return is_center() && fates_[0] == Fate::kLeft; }

  // All of these under mutex_.
  void read_link(ControlLink* link, Events* events);
  void read_frames(ControlLink* link, Events* events);
  bool handle_frame(ControlLink* link, const net::Frame& frame, Events* events);
  bool handle_heartbeat(const ControlLink& link, std::string_view body);
  bool handle_abort(const ControlLink& link, std::string_view body, Events* events);
  bool handle_left(const ControlLink& link, std::string_view body, Events* events);
  bool handle_gone(const ControlLink& link, std::string_view body, Events* events);
  void lose_link(ControlLink* link, int error, const std::string& reason, Events* events);
  void drop_link(ControlLink* link);
  void mark_left(std::uint32_t rank, Events* events);
  void mark_gone(std::uint32_t rank, const std::string& how, Events* events);
  void send_to(ControlLink* link, std::string_view frame);
  void send_to_all(std::string_view frame, std::uint32_t except);
  void flush(ControlLink* link);
  void beat(std::uint64_t now_ns);
  void check_processes(std::uint64_t now_ns, Events* events);
  void update_due();
  void finish_if_closed();
  bool is_flushed() const;

  void tell(const Events& events);
  void note_heard(std::uint32_t rank, std::uint64_t now_ns);

  const std::uint32_t rank_;
  const std::uint32_t nranks_;
  const std::uint64_t heartbeat_ns_;
  std::uint32_t gather_round_ = 0;
  std::vector<std::atomic<std::uint64_t>> last_heard_;

  std::mutex tell_mutex_;  // held while the listener is called; before mutex_
  ControlListener* listener_ = nullptr;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a fate, an outbox, is_finished_, is_control_lost_
  std::vector<ControlLink> links_;
  std::vector<Fate> fates_;
  std::vector<bool> heard_since_beat_;
  std::map<std::uint32_t, Fd> processes_;          // watched, by rank
  std::map<std::uint32_t, std::uint64_t> ended_;   // when their end is to be told
  Monitor::ClientId client_ = Monitor::kNoClient;  // none before events
  bool is_abort_known_ = false;
  bool is_control_lost_ = false;
  bool is_closing_ = false;
  std::uint64_t close_by_ns_ = 0;
  std::uint64_t next_beat_ns_ = 0;
  std::atomic<std::uint64_t> due_ns_;
  std::atomic<bool> is_finished_{false};
};

// ControlStar::all_gather.
Result<std::vector<std::string>> gather_blobs(StarCore* core, std::string_view blob,
                                              net::Deadline deadline);

}  // namespace rocenante
