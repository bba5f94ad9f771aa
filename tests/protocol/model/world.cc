// SPDX-License-Identifier: Apache-2.0
#include "tests/protocol/model/world.h"

#include <new>

namespace rocenante::model {
namespace {

using protocol::kLineBytes;
using protocol::kPageBytes;
using protocol::kParities;

constexpr std::uint64_t kWorldBytes = 256 * kPageBytes;
constexpr std::uint8_t kNeverFreed = 255;

std::string text(std::uint64_t number) {
  return std::to_string(number);
}

}  // namespace

World::World(const Scenario& scenario)
    : scenario_(scenario), memory_(kWorldBytes, scenario.weak), free_(memory_.base()) {
  for (std::uint32_t operation = 0; operation < scenario_.operations; ++operation) {
    for (std::uint32_t piece = 0; piece < scenario_.pieces; ++piece) {
      const std::uint64_t offset = piece * piece_bytes();
      if (scenario_.gathers) rounds_.push_back({operation, offset, 0, slice_bytes(), true});
      rounds_.push_back(
          {operation, offset, piece_bytes(), scenario_.gathers ? slice_bytes() : piece_bytes(), false});
    }
    if (scenario_.user_buffer) rounds_.push_back({operation, operation_bytes(), 0, 0, false});
  }
  for (std::uint32_t rank = 0; rank < scenario_.ranks; ++rank) lay_out(rank);
  for (std::uint32_t rank = 0; rank < scenario_.ranks; ++rank) link(rank);
}

bool World::mapped(std::uint32_t a, std::uint32_t b) const {
  if (scenario_.reach == Reach::kMixed) return a + 1 != scenario_.ranks && b + 1 != scenario_.ranks;
  return scenario_.reach == Reach::kMapped;
}

std::uint32_t World::received_index(std::uint32_t owner, std::uint32_t source) const {
  std::uint32_t index = 0;
  for (std::uint32_t peer = 0; peer < source; ++peer)
    index += peer != owner && !mapped(owner, peer) ? 1 : 0;
  return index;
}

protocol::Geometry World::geometry(std::uint32_t rank) const {
  return {scenario_.ranks, scenario_.rails, received_index(rank, scenario_.ranks), piece_bytes()};
}

unsigned char* World::recv_slot(std::uint32_t owner, std::uint32_t source, std::uint64_t parity) {
  return ranks_[owner].inbox + geometry(owner).recv_offset(parity, received_index(owner, source));
}

protocol::SignalLine* World::line(std::uint32_t owner, std::uint32_t source, std::uint64_t parity,
                                  std::uint32_t rail) {
  return reinterpret_cast<protocol::SignalLine*>(ranks_[owner].inbox +
                                                 geometry(owner).signal_offset(parity, source, rail));
}

unsigned char* World::input(std::uint32_t rank, std::uint32_t operation) {
  return ranks_[rank].input + (scenario_.user_buffer ? 0 : operation * operation_bytes());
}

unsigned char* World::output(std::uint32_t rank, std::uint32_t operation) {
  return ranks_[rank].output + operation * operation_bytes();
}

Word World::contribution(std::uint32_t rank, std::uint32_t operation, std::uint64_t word) const {
  return 1 + (operation * scenario_.words + word) * kMaxRanks + rank;
}

unsigned char* World::take(std::uint64_t bytes) {
  unsigned char* const at = free_;
  free_ += protocol::round_up(bytes, kLineBytes);
  return at;
}

Word* World::word(Word initial, Use use, const std::string& name) {
  Word* const at = reinterpret_cast<Word*>(take(sizeof(Word)));
  memory_.add(at, initial, use, kNeverFreed, name);
  return at;
}

void World::words(unsigned char* at, std::uint64_t bytes, Use use, std::uint8_t region,
                  const std::string& name) {
  for (std::uint64_t i = 0; i < bytes / sizeof(Word); ++i) {
    memory_.add(at + i * sizeof(Word), 0, use, region, name + "[" + text(i) + "]");
  }
}

void World::lay_out(std::uint32_t rank) {
  RankMemory& mine = ranks_[rank];
  const std::string who = "r" + text(rank);
  free_ =
      memory_.base() + protocol::round_up(static_cast<std::uint64_t>(free_ - memory_.base()), kPageBytes);
  mine.inbox = take(geometry(rank).inbox_bytes());
  mine.outbox = take(geometry(rank).outbox_bytes());
  lay_out_inbox(rank);
  for (std::uint64_t parity = 0; parity < kParities; ++parity) {
    if (scenario_.user_buffer) break;
    const std::uint32_t slices = scenario_.gathers ? scenario_.ranks : 1;
    for (std::uint32_t slice = 0; slice < slices; ++slice) {
      unsigned char* const at =
          mine.outbox + geometry(rank).send_offset(parity) + slice * protocol::slice_stride(slice_bytes());
      const std::string which = text(parity) + (slices > 1 ? "." + text(slice) : "");
      words(at, scenario_.gathers ? slice_bytes() : piece_bytes(), Use::kShared,
            static_cast<std::uint8_t>(rank), who + ".send" + which);
      if (!scenario_.tagged) continue;
      words(at - protocol::kSlotTagBytes, sizeof(Word), Use::kShared, static_cast<std::uint8_t>(rank),
            who + ".sendtag" + which);
    }
  }
  lay_out_private(rank);
}

void World::lay_out_inbox(std::uint32_t rank) {
  const std::string who = "r" + text(rank);
  const auto region = static_cast<std::uint8_t>(rank);
  unsigned char* const wake = ranks_[rank].inbox + protocol::Geometry::wake_offset();
  if (scenario_.sleeps) {
    memory_.add(wake, 0, Use::kShared, region, who + ".sleeping");
    memory_.add(wake + 4, 0, Use::kShared, region, who + ".sequence");
    memory_.add(wake + 8, 0, Use::kShared, kNeverFreed, who + ".queue");  // the kernel's
  }
  for (std::uint32_t source = 0; source < scenario_.ranks; ++source) {
    if (source == rank) continue;
    for (std::uint64_t parity = 0; parity < kParities; ++parity) {
      const std::string from = who + ".from" + text(source) + "." + text(parity);
      const bool near = mapped(rank, source);
      for (std::uint32_t rail = 0; rail < (near ? 1 : scenario_.rails); ++rail) {
        protocol::SignalLine* const signal = line(rank, source, parity, rail);
        memory_.add(&signal->epoch, 0, Use::kShared, region, from + ".epoch" + text(rail));
        if (!near) continue;
        memory_.add(&signal->tag, 0, Use::kShared, region, from + ".tag");
        if (!scenario_.in_line) continue;
        words(signal->payload + protocol::inline_offset(piece_bytes()), piece_bytes(), Use::kShared, region,
              from + ".line");
      }
      if (near) continue;
      words(recv_slot(rank, source, parity), piece_bytes(), Use::kShared, region, from + ".recv");
      if (!scenario_.tagged) continue;
      words(recv_slot(rank, source, parity) - protocol::kSlotTagBytes, sizeof(Word), Use::kShared, region,
            from + ".recvtag");
    }
  }
}

void World::lay_out_private(std::uint32_t rank) {
  RankMemory& mine = ranks_[rank];
  const std::string who = "r" + text(rank);
  const std::uint32_t agents = agents_of(rank);
  const bool several = agents > 1;
  mine.epoch = word(0, used_by(several), who + ".epoch");
  mine.abort_word = word(0, may_fail() ? Use::kShared : Use::kConstant, who + ".abort");
  memory_.set_abort_word(memory_.find(mine.abort_word));
  if (scenario_.leaves || scenario_.goes) mine.goodbye = word(0, Use::kShared, who + ".goodbye");
  mine.staged = reinterpret_cast<protocol::ArrivalCounter*>(word(0, used_by(several), who + ".staged0"));
  word(0, used_by(several), who + ".staged1");  // the next line
  mine.finished =
      reinterpret_cast<protocol::ArrivalCounter*>(word(0, used_by(several), who + ".finished0"));
  word(0, used_by(several), who + ".finished1");
  mine.meetings = reinterpret_cast<Meeting*>(take(sizeof(Meeting) * (kMaxParts + 1)));
  for (std::uint32_t i = 0; several && i <= parts_of(rank); ++i) {
    words(reinterpret_cast<unsigned char*>(&mine.meetings[i]), sizeof(Meeting), Use::kShared, kNeverFreed,
          who + ".meeting" + text(i));
  }
  mine.queues = reinterpret_cast<QueuePair*>(take(sizeof(QueuePair) * kMaxRanks * kMaxRails));
  for (std::uint32_t peer = 0; peer < scenario_.ranks; ++peer) {
    if (peer == rank || mapped(rank, peer)) continue;
    for (std::uint32_t rail = 0; rail < scenario_.rails; ++rail) {
      words(reinterpret_cast<unsigned char*>(&queue(rank, peer, rail)), sizeof(QueuePair), Use::kShared,
            kNeverFreed, who + ".queue" + text(peer) + "." + text(rail));
    }
  }
  mine.ring = new (take(sizeof(protocol::DoorbellRing))) protocol::DoorbellRing;
  for (std::uint64_t i = 0; scenario_.doorbell && rank == 0 && i < protocol::kDoorbellEntries; ++i) {
    words(reinterpret_cast<unsigned char*>(&mine.ring->entries[i]), 3 * sizeof(Word), Use::kShared,
          kNeverFreed, who + ".bell" + text(i));
  }
  mine.outcome = reinterpret_cast<Word*>(take(agents * sizeof(Word)));
  words(reinterpret_cast<unsigned char*>(mine.outcome), agents * sizeof(Word), Use::kWriteOnly, kNeverFreed,
        who + ".outcome");
  if (scenario_.device && rank == 0) lay_out_device(who);
  const std::uint64_t all = scenario_.operations * operation_bytes();
  mine.input = take(all);
  mine.output = scenario_.in_place ? mine.input : take(all);
  if (!scenario_.in_place) words(mine.output, all, Use::kWriteOnly, kNeverFreed, who + ".output");
  if (scenario_.user_buffer) {
    words(mine.input, operation_bytes(), Use::kShared, kNeverFreed, who + ".input");
    return;
  }
  for (std::uint64_t i = 0; i < scenario_.operations * scenario_.words; ++i) {
    memory_.add(mine.input + i * sizeof(Word), contribution(rank, 0, i),
                scenario_.in_place ? used_by(several) : Use::kConstant, kNeverFreed,
                who + ".input[" + text(i) + "]");
  }
}

void World::lay_out_device(const std::string& who) {
  RankMemory& mine = ranks_[0];
  const auto when = [](bool used) { return used ? Use::kShared : Use::kConstant; };
  mine.words = new (take(sizeof(protocol::DeviceWords))) protocol::DeviceWords;
  memory_.add(&mine.words->host_abort, 0, when(scenario_.aborts), kNeverFreed, who + ".hostabort");
  memory_.add(&mine.words->absent, 0, when(scenario_.goes), kNeverFreed, who + ".absent");
  memory_.add(&mine.words->device_abort, 0, Use::kShared, kNeverFreed, who + ".deviceabort");
  words(reinterpret_cast<unsigned char*>(&mine.words->failure), sizeof(protocol::FailureRecord),
        Use::kShared, kNeverFreed, who + ".failure");
  mine.peer_states = reinterpret_cast<std::uint32_t*>(take(kMaxRanks * sizeof(std::uint32_t)));
  for (std::uint32_t peer = 0; peer < scenario_.ranks; ++peer) {
    memory_.add(mine.peer_states + peer, 0, when(scenario_.goes || scenario_.silent), kNeverFreed,
                who + ".state" + text(peer));
  }
  mine.clock = word(0, when(scenario_.deadline || scenario_.silent), who + ".clock");
}

void World::link(std::uint32_t rank) {
  RankMemory& mine = ranks_[rank];
  bool all_mapped = true;
  for (std::uint32_t peer = 0; peer < scenario_.ranks; ++peer) {
    if (peer == rank) continue;
    const bool near = mapped(rank, peer);
    all_mapped = all_mapped && near;
    protocol::PeerLink& link = mine.links[peer];
    for (std::uint64_t parity = 0; parity < kParities; ++parity) {
      link.outbound[parity] = near ? line(peer, rank, parity, 0) : nullptr;
      link.inbound[parity] = line(rank, peer, parity, 0);
      link.source[parity] = !near ? recv_slot(rank, peer, parity)
                            : scenario_.user_buffer
                                ? ranks_[peer].input
                                : ranks_[peer].outbox + geometry(peer).send_offset(parity);
      if (scenario_.tagged && !near) link.tag[parity] = protocol::slot_tag(recv_slot(rank, peer, parity));
    }
    link.rails = scenario_.rails;
    link.wake = scenario_.sleeps ? reinterpret_cast<protocol::WakeLine*>(ranks_[peer].inbox) : nullptr;
  }
  mine.lane = {rank,
               scenario_.ranks,
               scenario_.striped_words * sizeof(Word),
               all_mapped,
               scenario_.tagged && !all_mapped,
               scenario_.sleeps,
               mine.links,
               {mine.outbox + geometry(rank).send_offset(0), mine.outbox + geometry(rank).send_offset(1)},
               mine.epoch,
               mine.abort_word,
               parts_of(rank) > 1 ? mine.staged : nullptr,
               mine.finished};
  constexpr std::uint64_t kNever = std::uint64_t{1} << 60;
  const std::uint64_t timeout = scenario_.deadline ? 1 : kNever;
  if (mine.words != nullptr) {
    mine.device = {mine.lane,  mine.ring,        mine.abort_word,
                   mine.words, mine.peer_states, scenario_.silent ? 1 : kNever,
                   timeout,    timeout};
  }
}

// Failure rule 3: of each round, a thread's share is either whole and right or untouched, as the thread
// said.
std::string World::judge_word(std::uint32_t rank, std::uint32_t round, std::uint64_t word,
                              std::uint64_t words) {
  const Round& what = rounds_[round];
  std::uint32_t owner = 0;
  for (std::uint32_t part = 0; part < parts_of(rank); ++part) {
    std::uint64_t begin, end, from, to;
    protocol::range_of(part, parts_of(rank), 0, words * sizeof(Word), begin, end);
    for (std::uint32_t thread = 0; thread < threads_of(rank, part); ++thread) {
      protocol::range_of(thread, threads_of(rank, part), begin, end, from, to);
      if (word * sizeof(Word) >= from && word * sizeof(Word) < to) owner = agent_of(rank, part, thread);
    }
  }
  const Word finished = memory_.newest(memory_.find(ranks_[rank].outcome + owner));
  const std::uint64_t at = what.offset / sizeof(Word) + word;
  Word sum = 0;
  for (std::uint32_t source = 0; source < scenario_.ranks; ++source)
    sum += payload(source, what.operation, at);
  const Word expected = round < finished ? sum : 0;
  const Word found = memory_.newest(memory_.find(output(rank, what.operation) + at * sizeof(Word)));
  if (found == expected) return {};
  return "rank " + text(rank) + " round " + text(round + 1) + " word " + text(word) + ": " + text(found) +
         " instead of " + text(expected);
}

std::string World::judge() {
  for (std::uint32_t rank = 0; rank < scenario_.ranks; ++rank) {
    for (std::uint32_t part = 0; part < parts_of(rank); ++part) {
      const Word* const outcomes = ranks_[rank].outcome + agent_of(rank, part, 0);
      for (std::uint32_t thread = 1; thread < threads_of(rank, part); ++thread) {
        if (memory_.newest(memory_.find(outcomes + thread)) != memory_.newest(memory_.find(outcomes))) {
          return "the verdict differs within a group of rank " + text(rank);
        }
      }
    }
    for (std::uint32_t round = 0; round < rounds_.size(); ++round) {
      const std::uint64_t words = rounds_[round].bytes / sizeof(Word);
      for (std::uint64_t word = 0; word < words; ++word) {
        const std::string wrong = judge_word(rank, round, word, words);
        if (!wrong.empty()) return wrong;
      }
    }
  }
  return {};
}

}  // namespace rocenante::model
