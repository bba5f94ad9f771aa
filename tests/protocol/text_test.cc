// SPDX-License-Identifier: Apache-2.0
//
// The parts of the protocol text that are plain arithmetic.
#include <algorithm>
#include <vector>

#include "lib/comm/host_env.h"
#include "lib/protocol/abort_word.h"
#include "lib/protocol/doorbell.h"
#include "lib/protocol/layout.h"
#include "lib/protocol/round.h"
#include "tests/support/catch.h"

namespace {

using namespace rocenante::protocol;

struct Span {
  std::uint64_t begin, end;
};

// No two overlap, none leaves [0, size).
void check_disjoint(std::vector<Span> spans, std::uint64_t size) {
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::uint64_t free = 0;
  bool disjoint = true;
  for (const Span& span : spans) {
    disjoint = disjoint && span.begin >= free && span.end > span.begin;
    free = span.end;
  }
  REQUIRE(disjoint);
  REQUIRE(free <= size);
}

void check_geometry(const Geometry& geometry) {
  std::vector<Span> inbox = {{Geometry::wake_offset(), Geometry::wake_offset() + sizeof(WakeLine)}};
  std::vector<Span> outbox;
  for (std::uint64_t parity = 0; parity < kParities; ++parity) {
    for (std::uint32_t source = 0; source < geometry.ranks; ++source) {
      for (std::uint32_t rail = 0; rail < geometry.rails; ++rail) {
        const std::uint64_t at = geometry.signal_offset(parity, source, rail);
        REQUIRE(at % kLineBytes == 0);
        inbox.push_back({at, at + sizeof(SignalLine)});
      }
    }
    for (std::uint32_t index = 0; index < geometry.received; ++index) {
      const std::uint64_t at = geometry.recv_offset(parity, index);
      REQUIRE(at % kPageBytes == 0);
      inbox.push_back({at, at + geometry.slot_bytes});
    }
    const std::uint64_t at = geometry.send_offset(parity);
    REQUIRE(at % kPageBytes == 0);
    outbox.push_back({at, at + geometry.slot_bytes});
  }
  check_disjoint(inbox, geometry.inbox_bytes());
  check_disjoint(outbox, geometry.outbox_bytes());
  REQUIRE(geometry.inbox_bytes() % kPageBytes == 0);
  REQUIRE(geometry.outbox_bytes() % kPageBytes == 0);
}

}  // namespace

TEST_CASE("everything in a region has a place of its own") {
  for (std::uint32_t ranks = 1; ranks <= 16; ++ranks) {
    for (std::uint32_t rails = 1; rails <= 4; ++rails) {
      for (std::uint32_t received = 0; received < ranks; ++received) {
        for (const std::uint64_t slot : {1u, 16u, 4095u, 4096u, 4097u, 1000003u}) {
          check_geometry({ranks, rails, received, slot});
        }
      }
    }
  }
}

TEST_CASE("a line's rails lie in a row") {
  const Geometry geometry{5, 3, 2, 100};
  for (std::uint64_t parity = 0; parity < kParities; ++parity) {
    for (std::uint32_t source = 0; source < 5; ++source) {
      for (std::uint32_t rail = 1; rail < 3; ++rail) {
        CHECK(geometry.signal_offset(parity, source, rail) ==
              geometry.signal_offset(parity, source, rail - 1) + sizeof(SignalLine));
      }
    }
  }
}

TEST_CASE("a payload in the line is aligned and ends before the epoch") {
  for (std::uint64_t bytes = 0; bytes <= kInlineBytes; ++bytes) {
    const std::uint64_t at = inline_offset(bytes);
    CHECK(at % 16 == 0);
    CHECK(at + bytes <= kInlineBytes);
    CHECK(at + bytes + 16 > kInlineBytes);
  }
  // The smallest share the epoch's cache line.
  CHECK(inline_offset(32) >= 64);
}

TEST_CASE("an abort word says what was put into it") {
  for (int reason = 0; reason < 256; ++reason) {
    for (const std::uint32_t peer : {0u, 1u, 0x7fffu, 0xfffeu, kNoPeer}) {
      for (const std::uint64_t epoch : {std::uint64_t{0}, std::uint64_t{1}, kEpochMask}) {
        const AbortCause cause{static_cast<AbortReason>(reason), peer, epoch};
        const AbortCause back = unpack_abort(pack_abort(cause));
        CHECK(back.reason == cause.reason);
        CHECK(back.peer == peer);
        CHECK(back.epoch == epoch);
      }
    }
  }
  // A later epoch than fits keeps its low bits and reaches into nothing else.
  const AbortCause late = unpack_abort(pack_abort({AbortReason::kDeadline, 3, kEpochMask + 5}));
  CHECK(late.reason == AbortReason::kDeadline);
  CHECK(late.peer == 3);
  CHECK(late.epoch == 4);
  CHECK(pack_abort({AbortReason::kNone, 0, 0}) == 0);
  CHECK(pack_abort({AbortReason::kExplicit, 0, 0}) != 0);
}

TEST_CASE("the doorbell ring gives each entry once, in order") {
  rocenante::HostEnv env;
  DoorbellRing ring{};
  PutDescriptor put{};
  CHECK(take_doorbell(env, ring, 1, put) == Taken::kNothing);
  std::uint64_t rung = 0;
  for (std::uint64_t next = 1; next <= 5 * kDoorbellEntries; ++next) {
    // One or two ahead, as the protocol allows.
    while (rung < next + next % 2) {
      ++rung;
      ring_doorbell(env, ring, rung, {rung * 100, rung * 7});
    }
    REQUIRE(take_doorbell(env, ring, next, put) == Taken::kEntry);
    CHECK(put.bytes == next * 100);
    CHECK(put.tag == next * 7);
  }
}

TEST_CASE("an overwritten doorbell entry is noticed") {
  rocenante::HostEnv env;
  DoorbellRing ring{};
  PutDescriptor put{};
  for (std::uint64_t epoch = 1; epoch <= kDoorbellEntries; ++epoch) ring_doorbell(env, ring, epoch, {1, 1});
  CHECK(take_doorbell(env, ring, 1, put) == Taken::kEntry);
  ring_doorbell(env, ring, kDoorbellEntries + 1, {1, 1});
  CHECK(take_doorbell(env, ring, 2, put) == Taken::kEntry);
  ring_doorbell(env, ring, kDoorbellEntries + 3, {1, 1});
  CHECK(take_doorbell(env, ring, 3, put) == Taken::kOverrun);
}

TEST_CASE("shares cover a range exactly once and are cut at 16 bytes") {
  for (std::uint32_t count = 1; count <= 9; ++count) {
    for (std::uint64_t bytes = 0; bytes <= 600; ++bytes) {
      for (const std::uint64_t begin : {std::uint64_t{0}, std::uint64_t{32}}) {
        std::uint64_t covered = begin;
        bool right = true;
        for (std::uint32_t index = 0; index < count; ++index) {
          std::uint64_t from, to;
          range_of(index, count, begin, begin + bytes, from, to);
          right = right && from == covered && to >= from;
          right = right && (from == begin + bytes || from % 16 == 0);
          covered = to;
        }
        REQUIRE(right);
        REQUIRE(covered == begin + bytes);
      }
    }
  }
}

TEST_CASE("the groups of a round share its bytes as threads share a range") {
  for (const std::uint32_t count : {1u, 2u, 4u, 8u, 64u}) {
    for (std::uint64_t bytes = 0; bytes <= 3000; bytes += 7) {
      for (std::uint32_t index = 0; index < count; ++index) {
        std::uint64_t from, to, expected_from, expected_to;
        share_of(part_of(index, count), bytes, bytes, from, to);
        range_of(index, count, 0, bytes, expected_from, expected_to);
        REQUIRE(from == expected_from);
        REQUIRE(to == expected_to);
      }
    }
  }
}

TEST_CASE("a group's share lies in one place in all rounds of a call") {
  for (const std::uint32_t count : {2u, 4u, 8u}) {
    for (std::uint64_t bytes = 0; bytes <= 3000; bytes += 7) {
      std::uint64_t covered = 0;
      for (std::uint32_t index = 0; index < count; ++index) {
        std::uint64_t from, to, full_from, full_to;
        share_of(part_of(index, count), 3000, 3000, full_from, full_to);
        share_of(part_of(index, count), 3000, bytes, from, to);
        REQUIRE(from == covered);
        REQUIRE((from == to || (from == full_from && to <= full_to)));
        covered = to;
      }
      REQUIRE(covered == bytes);
    }
  }
}

TEST_CASE("a parity's staging counter counts its own epochs") {
  std::uint64_t counted[kParities] = {};
  for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) {
    CHECK(parity_round(epoch) == ++counted[epoch % kParities]);
  }
}

TEST_CASE("the last of the groups that share a round knows it, however many the rounds before had") {
  rocenante::HostEnv env;
  rocenante::SoloGroup group;
  ArrivalCounter counter{};
  Lane lane{};
  lane.staged = &counter;
  std::uint64_t round = 0;
  for (const std::uint32_t parts : {2u, 8u, 1u, 4u, 64u, 1u, 1u, 2u}) {
    for (int i = 0; i < 3; ++i) {
      ++round;
      for (std::uint32_t arrived = 1; arrived <= parts; ++arrived) {
        CHECK(last_to_arrive(env, group, lane, part_of(0, parts), &counter, round) == (arrived == parts));
      }
    }
  }
}

TEST_CASE("a group that goes on after another has been aborted does not complete its round") {
  rocenante::HostEnv env;
  rocenante::SoloGroup group;
  ArrivalCounter counter{};
  Lane lane{};
  lane.staged = &counter;
  CHECK_FALSE(last_to_arrive(env, group, lane, part_of(0, 2), &counter, 1));
  CHECK_FALSE(last_to_arrive(env, group, lane, part_of(0, 2), &counter, 2));
}
