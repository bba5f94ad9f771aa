// SPDX-License-Identifier: Apache-2.0
//
// Inside fake_*.cc: the objects that the made-up adapters hand out, and how packets move between them.
#pragma once

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "tests/support/fake_verbs.h"

namespace rocenante::test {

struct FakeContext : ibv_context {
  FakeDevice facts;
};
struct FakeDomain : ibv_pd {};
// `addr` is what requests call it.
struct FakeRegion : ibv_mr {
  int access = 0;
  unsigned char* memory = nullptr;
  bool is_dma_buf = false;
};
struct FakeChannel : ibv_comp_channel {
  std::deque<ibv_cq*> events;
};
struct FakeQueue : ibv_cq {
  std::deque<ibv_wc> entries;
  FakeChannel* events = nullptr;
  bool is_armed = false;
  unsigned unacknowledged = 0;  // events that were taken; the queue cannot go before they are acknowledged
  std::size_t capacity = 0;
};

struct Packet {
  ibv_send_wr request{};
  ibv_sge memory{};
  std::vector<unsigned char> data;  // of an inline request
};

// Written, and not yet there.
struct LateWrite {
  std::uint32_t host;  // the writer's
  const FakeRegion* region;
  unsigned char* to;
  std::vector<unsigned char> data;
};

struct FakePair : ibv_qp {
  FakeDevice facts;
  FakeQueue* completions = nullptr;
  ibv_qp_cap limits{};
  ibv_qp_attr attributes{};
  std::deque<Packet> sends;
  std::deque<std::uint64_t> receives;
  std::uint64_t held = 0;  // requests whose place in the queue is not free again
  bool error = false;
  std::vector<std::string>* log = nullptr;
};

struct FakeVerbs::State {
  std::recursive_mutex mutex;
  std::map<std::uint32_t, std::vector<std::unique_ptr<ibv_device>>> devices;
  std::map<const ibv_device*, FakeDevice> facts;
  std::map<std::uint32_t, FakePair*> pairs;
  std::set<FakeRegion*> regions;
  std::set<fabric::Gid> cut;
  std::set<fabric::Gid> without_dma_bufs, stalled;
  std::deque<LateWrite> late;
  std::set<std::uint32_t> held_hosts;
  bool is_late = false, has_ended = false;
  std::map<fabric::Gid, std::uint64_t> writes;
  std::deque<std::vector<std::string>> logs;
  std::mt19937 random{1};
  std::uint32_t delay_percent = 30;
  std::uint64_t calls = 0, failing_call = 0, most_queued = 0, overruns = 0, immediates = 0, arms = 0,
                events = 0, dma_buf_writes = 0, long_host_writes = 0;
  int error = 0;
  std::int64_t alive = 0;
  std::uint32_t next_number = 17;

  // Counts a call that can fail; whether this one does.
  bool fails() {
    if (++calls != failing_call) return false;
    errno = error;
    return true;
  }

  void complete(FakePair& pair, std::uint64_t id, ibv_wc_status status, ibv_wc_opcode opcode,
                std::uint32_t immediate) {
    FakeQueue& queue = *pair.completions;
    if (queue.entries.size() >= queue.capacity) ++overruns;
    ibv_wc done{};
    done.wr_id = id;
    done.status = status;
    done.opcode = opcode;
    done.qp_num = pair.qp_num;
    done.imm_data = immediate;
    queue.entries.push_back(done);
    notify(queue);
  }

  void notify(FakeQueue& queue) {
    if (!queue.is_armed) return;
    queue.is_armed = false;
    ++events;
    queue.events->events.push_back(&queue);
    (void)::eventfd_write(queue.events->fd, 1);
  }

  void break_pair(FakePair& pair) {
    pair.error = true;
    for (const Packet& packet : pair.sends)
      complete(pair, packet.request.wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RDMA_WRITE, 0);
    for (const std::uint64_t id : pair.receives) complete(pair, id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV, 0);
    pair.sends.clear();
    pair.receives.clear();
  }

  FakePair* other_end(const FakePair& pair) {
    const auto found = pairs.find(pair.attributes.dest_qp_num);
    if (found == pairs.end()) return nullptr;
    FakePair& there = *found->second;
    fabric::Gid target{};
    std::memcpy(target.data(), pair.attributes.ah_attr.grh.dgid.raw, target.size());
    const bool right = there.facts.gid == target && there.attributes.dest_qp_num == pair.qp_num &&
                       there.attributes.rq_psn == pair.attributes.sq_psn &&
                       there.attributes.path_mtu == pair.attributes.path_mtu && !there.error &&
                       !cut.contains(target) && !cut.contains(pair.facts.gid);
    const bool ready = there.state == IBV_QPS_RTR || there.state == IBV_QPS_RTS;
    return right && ready ? &there : nullptr;
  }

  const unsigned char* source_of(const FakePair& pair, const Packet& packet) const {
    if (!packet.data.empty()) return packet.data.data();
    for (const FakeRegion* region : regions) {
      const auto begin = reinterpret_cast<std::uintptr_t>(region->addr);
      if (region->lkey == packet.memory.lkey && region->pd == pair.pd && packet.memory.addr >= begin &&
          packet.memory.addr + packet.memory.length <= begin + region->length) {
        return reinterpret_cast<const unsigned char*>(packet.memory.addr);
      }
    }
    return nullptr;
  }

  // Null where it may not be written.
  const FakeRegion* target_of(const FakePair& there, const ibv_send_wr& request,
                              std::uint32_t bytes) const {
    const auto found = std::find_if(regions.begin(), regions.end(), [&](const FakeRegion* region) {
      const auto begin = reinterpret_cast<std::uintptr_t>(region->addr);
      return region->rkey == request.wr.rdma.rkey && region->pd == there.pd &&
             (region->access & IBV_ACCESS_REMOTE_WRITE) != 0 &&
             (there.attributes.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) != 0 &&
             request.wr.rdma.remote_addr >= begin &&
             request.wr.rdma.remote_addr + bytes <= begin + region->length;
    });
    return found == regions.end() ? nullptr : *found;
  }

  static void store(unsigned char* to, const unsigned char* from, std::size_t bytes) {
    if (bytes == sizeof(std::uint64_t) &&
        reinterpret_cast<std::uintptr_t>(to) % sizeof(std::uint64_t) == 0) {
      std::uint64_t word;
      std::memcpy(&word, from, sizeof word);
      __atomic_store_n(reinterpret_cast<std::uint64_t*>(to), word, __ATOMIC_RELEASE);
      return;
    }
    std::memcpy(to, from, bytes);
  }

  void write(const FakePair& pair, const FakeRegion& region, std::uint64_t address,
             const unsigned char* from, std::uint32_t bytes) {
    unsigned char* const to = region.memory + (address - reinterpret_cast<std::uintptr_t>(region.addr));
    if (region.is_dma_buf) {
      ++dma_buf_writes;
    } else if (bytes > sizeof(std::uint64_t)) {
      ++long_host_writes;
    }
    if (region.is_dma_buf && is_late) {
      late.push_back({pair.facts.host, &region, to, {from, from + bytes}});
    } else {
      store(to, from, bytes);
    }
  }

  // The first of those that may; false if there is none.
  template <class May>
  bool let_arrive(May may) {
    const auto at = std::find_if(late.begin(), late.end(), may);
    if (at == late.end()) return false;
    store(at->to, at->data.data(), at->data.size());
    late.erase(at);
    return true;
  }

  // Moves the first request of a queue pair; false if it has to wait.
  bool move(FakePair& pair) {
    const Packet packet = pair.sends.front();
    const ibv_send_wr& request = packet.request;
    const std::uint32_t bytes = request.num_sge == 0 ? 0 : packet.memory.length;
    FakePair* const there = other_end(pair);
    const bool immediate = request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if (there != nullptr && immediate && there->receives.empty()) return false;
    const unsigned char* const from = bytes == 0 ? nullptr : source_of(pair, packet);
    const FakeRegion* const region =
        there == nullptr || bytes == 0 ? nullptr : target_of(*there, request, bytes);
    const ibv_wc_status status = there == nullptr                  ? IBV_WC_RETRY_EXC_ERR
                                 : bytes != 0 && from == nullptr   ? IBV_WC_LOC_PROT_ERR
                                 : bytes != 0 && region == nullptr ? IBV_WC_REM_ACCESS_ERR
                                                                   : IBV_WC_SUCCESS;
    pair.sends.pop_front();
    if (status != IBV_WC_SUCCESS) {
      complete(pair, request.wr_id, status, IBV_WC_RDMA_WRITE, 0);
      break_pair(pair);
      if (status == IBV_WC_REM_ACCESS_ERR) break_pair(*there);
      return true;
    }
    if (bytes != 0) write(pair, *region, request.wr.rdma.remote_addr, from, bytes);
    ++writes[pair.facts.gid];
    if (immediate) {
      ++immediates;
      complete(*there, there->receives.front(), IBV_WC_SUCCESS, IBV_WC_RECV_RDMA_WITH_IMM,
               request.imm_data);
      there->receives.pop_front();
    }
    if ((request.send_flags & IBV_SEND_SIGNALED) != 0) {
      complete(pair, request.wr_id, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE, 0);
      pair.held = pair.sends.size();
    }
    return true;
  }
};

extern FakeVerbs::State* world;
using Lock = std::lock_guard<std::recursive_mutex>;

template <class Fake, class Base>
int destroy(Base* object) {
  const Lock lock(world->mutex);
  --world->alive;
  delete static_cast<Fake*>(object);
  return 0;
}

// Completion queues and their events.
ibv_comp_channel* make_channel(ibv_context* context);
int destroy_channel(ibv_comp_channel* channel);
ibv_cq* make_queue(ibv_context* context, int entries, void* cookie, ibv_comp_channel* channel, int vector);
int destroy_queue(ibv_cq* queue);
int arm_queue(ibv_cq* queue, int solicited_only);
int take_event(ibv_comp_channel* channel, ibv_cq** queue, void** cookie);
void acknowledge_events(ibv_cq* queue, unsigned int events);
int poll_queue(ibv_cq* queue, int most, ibv_wc* completions);

}  // namespace rocenante::test
