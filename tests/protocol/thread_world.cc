// SPDX-License-Identifier: Apache-2.0
#include "tests/protocol/thread_world.h"

namespace rocenante::model {

using protocol::kParities;

ThreadWorld::ThreadWorld(const ThreadConfig& config) : config_(config) {
  for (std::uint32_t rank = 0; rank < config_.ranks; ++rank) {
    auto mine = std::make_unique<ThreadRank>();
    mine->inbox = pages(geometry(rank).inbox_bytes());
    mine->outbox = pages(geometry(rank).outbox_bytes());
    mine->links.resize(config_.ranks);
    mine->meetings = std::vector<MeetingPlace>(config_.parts + 1);
    ranks_.push_back(std::move(mine));
  }
  for (std::uint32_t rank = 0; rank < config_.ranks; ++rank) link(rank);
}

std::uint32_t ThreadWorld::received(std::uint32_t owner, std::uint32_t below) const {
  std::uint32_t count = 0;
  for (std::uint32_t peer = 0; peer < below; ++peer) count += peer != owner && !mapped(owner, peer) ? 1 : 0;
  return count;
}

protocol::Geometry ThreadWorld::geometry(std::uint32_t rank) const {
  return {config_.ranks, config_.rails, received(rank, config_.ranks), config_.slot_bytes};
}

protocol::SignalLine* ThreadWorld::line(std::uint32_t owner, std::uint32_t source, std::uint64_t parity,
                                        std::uint32_t rail) {
  return reinterpret_cast<protocol::SignalLine*>(ranks_[owner]->inbox.get() +
                                                 geometry(owner).signal_offset(parity, source, rail));
}

unsigned char* ThreadWorld::slot(std::uint32_t owner, std::uint32_t source, std::uint64_t parity) {
  return ranks_[owner]->inbox.get() + geometry(owner).recv_offset(parity, received(owner, source));
}

void ThreadWorld::link(std::uint32_t rank) {
  ThreadRank& mine = *ranks_[rank];
  bool all_mapped = true;
  for (std::uint32_t peer = 0; peer < config_.ranks; ++peer) {
    if (peer == rank) continue;
    const bool near = mapped(rank, peer);
    all_mapped = all_mapped && near;
    protocol::PeerLink& link = mine.links[peer];
    for (std::uint64_t parity = 0; parity < kParities; ++parity) {
      link.outbound[parity] = near ? line(peer, rank, parity, 0) : nullptr;
      link.inbound[parity] = line(rank, peer, parity, 0);
      link.source[parity] =
          near ? ranks_[peer]->outbox.get() + geometry(peer).send_offset(parity) : slot(rank, peer, parity);
      link.tag[parity] = near ? nullptr : protocol::slot_tag(slot(rank, peer, parity));
    }
    link.rails = config_.rails;
    link.wake = config_.sleeps ? reinterpret_cast<protocol::WakeLine*>(ranks_[peer]->inbox.get()) : nullptr;
  }
  unsigned char* const outbox = mine.outbox.get();
  mine.lane = {rank,
               config_.ranks,
               0,
               all_mapped,
               !all_mapped,
               config_.sleeps,
               mine.links.data(),
               {outbox + geometry(rank).send_offset(0), outbox + geometry(rank).send_offset(1)},
               &mine.epoch,
               &mine.abort_word,
               mine.staged,
               mine.finished};
}

void ThreadWorld::put(std::uint32_t from, std::uint32_t to, std::uint64_t epoch, std::uint64_t bytes,
                      bool sliced) {
  const std::uint64_t parity = epoch % kParities;
  const unsigned char* const source =
      ranks_[from]->lane.send[parity] + (sliced ? to * protocol::slice_stride(bytes) : 0);
  unsigned char* const target = slot(to, from, parity);
  std::memcpy(protocol::slot_tag(target), source - protocol::kSlotTagBytes, protocol::kSlotTagBytes);
  for (std::uint32_t rail = 0; rail < config_.rails; ++rail) {
    std::uint64_t begin, end;
    protocol::range_of(rail, config_.rails, 0, bytes, begin, end);
    const std::uint64_t middle = begin + (end - begin) / 2;
    std::memcpy(target + begin, source + begin, middle - begin);
    sched_yield();
    std::memcpy(target + middle, source + middle, end - middle);
    HostEnv().store_release(&line(to, from, parity, rail)->epoch, epoch);
  }
}

void ThreadWorld::carry(std::uint32_t rank, std::uint64_t rounds) {
  HostEnv env;
  ThreadRank& mine = *ranks_[rank];
  for (std::uint64_t next = 1; next <= rounds; ++next) {
    protocol::PutDescriptor put{};
    protocol::Taken taken;
    while ((taken = protocol::take_doorbell(env, mine.ring, next, put)) == protocol::Taken::kNothing) {
      if (env.load_acquire(&mine.abort_word) != 0) return;
      sched_yield();
    }
    if (taken == protocol::Taken::kOverrun) std::abort();
    for (std::uint32_t peer = 0; peer < config_.ranks; ++peer) {
      if (peer != rank && !mapped(rank, peer))
        this->put(rank, peer, next, put.bytes, config_.gathers && next % 2 == 1);
    }
    env.store_release(&mine.completed, next);
  }
}

}  // namespace rocenante::model
