// SPDX-License-Identifier: Apache-2.0
//
// The control star with ranks as threads of one process: blobs, aborts, goodbyes, heartbeats.
#include "lib/comm/control.h"

#include <atomic>

#include "lib/comm/rendezvous.h"
#include "lib/net/interfaces.h"
#include "tests/support/catch.h"
#include "tests/support/star.h"

namespace rocenante {
namespace {

using test::as_threads;
using test::Deadline;
using test::join_all;
using test::patience;
using test::Recorder;
using test::Star;
using test::star_config;
using test::Stars;

UniqueId fresh_id(const Config& config) {
  Result<UniqueId> id = create_unique_id(config);
  REQUIRE(id.status().text() == "");
  return id.take();
}

// A star whose events are recorded.
struct Watched {
  explicit Watched(std::uint32_t nranks, const Config& config = star_config()) : recorders(nranks) {
    Stars joined = join_all(fresh_id(config), nranks, config);
    for (const Status& status : joined.statuses) REQUIRE(status.text() == "");
    stars = std::move(joined.stars);
    for (std::uint32_t rank = 0; rank < nranks; ++rank) {
      REQUIRE(stars[rank]->start_events(&recorders[rank]).ok());
    }
  }
  ~Watched() {
    // In ranks' order, as threads of one process end.
    for (Star& star : stars) {
      if (star != nullptr) star->stop_events();
    }
  }
  std::vector<Recorder> recorders;
  std::vector<Star> stars;
};

TEST_CASE("all ranks join and exchange blobs", "[control]") {
  const std::uint32_t nranks = GENERATE(1u, 2u, 3u, 7u);
  const Config config = star_config();
  Stars joined = join_all(fresh_id(config), nranks, config);
  for (const Status& status : joined.statuses) REQUIRE(status.text() == "");
  std::atomic<int> right{0};
  as_threads(nranks, [&](std::uint32_t rank) {
    for (std::uint32_t round = 0; round < 3; ++round) {
      // Of very different sizes, one empty.
      const auto blob_of = [&](std::uint32_t r) {
        return std::string(r * (round * 40000 + 3), char('a' + r));
      };
      const auto blobs = joined.stars[rank]->all_gather(blob_of(rank), patience());
      if (!blobs.ok() || blobs.value().size() != nranks) return;
      for (std::uint32_t r = 0; r < nranks; ++r) right += blobs.value()[r] == blob_of(r);
    }
  });
  CHECK(right == static_cast<int>(3 * nranks * nranks));
  for (std::uint32_t rank = 1; rank < nranks; ++rank) {
    CHECK(joined.stars[rank]->key().bytes == joined.stars[0]->key().bytes);
  }
}

TEST_CASE("64 ranks join and exchange blobs", "[control]") {
  const std::uint32_t nranks = 64;
  const Config config = star_config();
  Stars joined = join_all(fresh_id(config), nranks, config);
  for (const Status& status : joined.statuses) REQUIRE(status.text() == "");
  std::atomic<int> right{0};
  as_threads(nranks, [&](std::uint32_t rank) {
    const auto blobs = joined.stars[rank]->all_gather(std::to_string(rank), patience());
    if (!blobs.ok()) return;
    for (std::uint32_t r = 0; r < nranks; ++r) right += blobs.value()[r] == std::to_string(r);
  });
  CHECK(right == 64 * 64);
}

TEST_CASE("communicators have keys of their own", "[control]") {
  const Config config = star_config();
  const Stars first = join_all(fresh_id(config), 2, config);
  const Stars second = join_all(fresh_id(config), 2, config);
  REQUIRE(first.all_ok());
  REQUIRE(second.all_ok());
  CHECK(first.stars[0]->key().bytes != second.stars[0]->key().bytes);
}

TEST_CASE("bad arguments are named", "[control]") {
  const Config config = star_config();
  const UniqueId id = fresh_id(config);
  const auto text = [&](std::uint32_t rank, std::uint32_t nranks) {
    const auto star = ControlStar::join(id, rank, nranks, config, patience());
    REQUIRE(star.status().code() == Code::kInvalidArgument);
    return star.status().text();
  };
  CHECK(text(0, 0) == "nranks is 0: expected 1 to 1024");
  CHECK(text(0, 1025) == "nranks is 1025: expected 1 to 1024");
  CHECK(text(3, 3) == "rank is 3: expected 0 to 2 for nranks 3");
  UniqueId damaged = id;
  damaged.bytes[60] ^= std::byte{1};
  const auto star = ControlStar::join(damaged, 0, 1, config, patience());
  CHECK(star.status().code() == Code::kInvalidArgument);
  CHECK(star.status().text().starts_with("id is damaged or was not made by rcnGetUniqueId"));
  stop_all_rendezvous();
}

TEST_CASE("a blob that is too long is refused", "[control]") {
  const Config config = star_config();
  Stars joined = join_all(fresh_id(config), 1, config);
  REQUIRE(joined.all_ok());
  const auto blobs = joined.stars[0]->all_gather(std::string(kLongestBlob + 1, 'x'), patience());
  CHECK(blobs.status().code() == Code::kInvalidArgument);
  CHECK(joined.stars[0]->all_gather(std::string(kLongestBlob, 'x'), patience()).ok());
}

TEST_CASE("all_gather names a rank that does not come", "[control]") {
  const Config config = star_config();
  Stars joined = join_all(fresh_id(config), 4, config);
  REQUIRE(joined.all_ok());
  std::vector<Status> statuses(4);
  as_threads(4, [&](std::uint32_t rank) {
    if (rank == 2) return;
    statuses[rank] = joined.stars[rank]->all_gather("blob", Deadline::after_ms(300)).status();
  });
  for (const std::uint32_t rank : {0, 1, 3}) {
    CHECK(statuses[rank].code() == Code::kTimeout);
    CHECK(statuses[rank].text() == "rank 2 of 4 did not take part in the initialisation in time");
  }
}

TEST_CASE("all_gather names a rank that leaves", "[control]") {
  const std::uint32_t leaver = GENERATE(0u, 2u);
  const Config config = star_config();
  Stars joined = join_all(fresh_id(config), 4, config);
  REQUIRE(joined.all_ok());
  std::vector<Status> statuses(4);
  as_threads(4, [&](std::uint32_t rank) {
    if (rank == leaver) {
      joined.stars[rank].reset();
      return;
    }
    statuses[rank] = joined.stars[rank]->all_gather(std::string(kLongestBlob, 'x'), patience()).status();
  });
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    if (rank == leaver) continue;
    CHECK(statuses[rank].code() == Code::kRemoteError);
    CHECK(statuses[rank].text().find(fmt::format("rank {} (", leaver)) != std::string::npos);
  }
}

TEST_CASE("an abort during initialisation reaches everybody", "[control]") {
  const std::uint32_t aborter = GENERATE(0u, 1u);
  const Config config = star_config();
  Stars joined = join_all(fresh_id(config), 3, config);
  REQUIRE(joined.all_ok());
  std::vector<Status> statuses(3);
  as_threads(3, [&](std::uint32_t rank) {
    if (rank == aborter) return joined.stars[rank]->broadcast_abort(1, "no memory");
    statuses[rank] = joined.stars[rank]->all_gather("blob", patience()).status();
  });
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    if (rank == aborter) continue;
    CHECK(statuses[rank].code() == Code::kRemoteError);
    CHECK(statuses[rank].text() == fmt::format("rank {} aborted: no memory", aborter));
  }
}

TEST_CASE("the first abort reaches all others, once", "[control]") {
  const std::uint32_t first = GENERATE(0u, 1u, 4u);
  Watched all(5);
  all.stars[first]->broadcast_abort(0x1234567890abcdef, "completion error on mlx5_0");
  all.stars[first]->broadcast_abort(7, "a later one");
  for (std::uint32_t rank = 0; rank < 5; ++rank) {
    if (rank == first) continue;
    REQUIRE(all.recorders[rank].wait_abort());
    CHECK(all.recorders[rank].abort().from == first);
    CHECK(all.recorders[rank].abort().word == 0x1234567890abcdef);
    CHECK(all.recorders[rank].abort().text == "completion error on mlx5_0");
    // Too late: an abort is known here.
    all.stars[rank]->broadcast_abort(9, "mine");
  }
  all.stars[2]->say_goodbye();
  REQUIRE(all.recorders[0].wait_left(2));
  for (std::uint32_t rank = 0; rank < 5; ++rank) CHECK(all.recorders[rank].aborts() == (rank != first));
}

TEST_CASE("long texts of aborts are cut", "[control]") {
  Watched all(2);
  all.stars[1]->broadcast_abort(1, std::string(100000, 'x'));
  REQUIRE(all.recorders[0].wait_abort());
  CHECK(all.recorders[0].abort().text == std::string(kLongestControlText, 'x'));
}

TEST_CASE("goodbyes are told and waited for", "[control]") {
  Watched all(4);
  CHECK_FALSE(all.stars[1]->wait_for_goodbyes({true, false, true, true}, Deadline::after_ms(20)));
  for (const std::uint32_t rank : {0, 2, 3}) all.stars[rank]->say_goodbye();
  CHECK(all.stars[1]->wait_for_goodbyes({true, true, true, true}, patience()));
  for (const std::uint32_t rank : {0, 2, 3}) CHECK(all.recorders[1].wait_left(rank));
  CHECK(all.recorders[1].gone().empty());
}

TEST_CASE("a rank that leaves in order is no error", "[control]") {
  Watched all(4);
  all.stars[3]->say_goodbye();
  all.stars[3]->stop_events();
  all.stars[3].reset();
  for (const std::uint32_t rank : {0, 1, 2}) {
    REQUIRE(all.recorders[rank].wait_left(3));
    CHECK(all.recorders[rank].gone().empty());
  }
}

TEST_CASE("a rank that ends without a goodbye is gone", "[control]") {
  Watched all(4);
  all.stars[2]->stop_events();
  all.stars[2].reset();
  for (const std::uint32_t rank : {0, 1, 3}) {
    REQUIRE(all.recorders[rank].wait_gone(2));
    CHECK(all.recorders[rank].left().empty());
    CHECK(all.stars[rank]->wait_for_goodbyes({false, false, true, false}, patience()));
  }
}

TEST_CASE("rank 0 relays after it has left", "[control]") {
  Watched all(4);
  all.stars[0]->say_goodbye();
  all.stars[0]->stop_events();
  all.stars[0].reset();
  for (const std::uint32_t rank : {1, 2, 3}) REQUIRE(all.recorders[rank].wait_left(0));
  all.stars[1]->broadcast_abort(5, "later trouble");
  REQUIRE(all.recorders[3].wait_abort());
  REQUIRE(all.recorders[2].wait_abort());
  all.stars[3]->stop_events();
  all.stars[3].reset();
  REQUIRE(all.recorders[1].wait_gone(3));
  all.stars[2]->say_goodbye();
  REQUIRE(all.recorders[1].wait_left(2));
  CHECK(all.recorders[1].gone().size() == 1);
  CHECK(all.recorders[1].lost() == "");
}

TEST_CASE("rank 0 that ends without a goodbye is gone", "[control]") {
  Watched all(3);
  all.stars[0]->stop_events();
  all.stars[0].reset();
  for (const std::uint32_t rank : {1, 2}) REQUIRE(all.recorders[rank].wait_gone(0));
  // Nothing more can be heard, so nobody waits for it.
  CHECK_FALSE(all.stars[1]->wait_for_goodbyes({false, false, true}, patience()));
}

TEST_CASE("heartbeats of every rank reach every rank", "[control]") {
  Watched all(3);
  for (std::uint32_t listener = 0; listener < 3; ++listener) {
    for (std::uint32_t speaker = 0; speaker < 3; ++speaker) {
      const std::uint64_t before = all.stars[listener]->last_heard_ns(speaker);
      REQUIRE(before != 0);
      const Deadline deadline = patience();
      if (speaker == listener) continue;
      while (all.stars[listener]->last_heard_ns(speaker) == before && !deadline.passed()) {
        std::this_thread::yield();
      }
      CHECK(all.stars[listener]->last_heard_ns(speaker) > before);
    }
  }
}

TEST_CASE("no callback runs after stop_events", "[control]") {
  class Counter final : public ControlListener {
   public:
    void on_gone(std::uint32_t, std::string_view) override { ++calls; }
    void on_left(std::uint32_t) override { ++calls; }
    void on_abort(std::uint32_t, std::uint64_t, std::string_view) override { ++calls; }
    void on_control_lost(std::string_view) override { ++calls; }
    int calls = 0;  // not atomic: ThreadSanitizer sees a call that is not ordered before stop_events
  };
  for (int i = 0; i < 20; ++i) {
    const Config config = star_config();
    Stars joined = join_all(fresh_id(config), 2, config);
    REQUIRE(joined.all_ok());
    auto counter = std::make_unique<Counter>();
    REQUIRE(joined.stars[1]->start_events(nullptr).ok());
    REQUIRE(joined.stars[0]->start_events(counter.get()).ok());
    std::thread speaker([&] {
      joined.stars[1]->broadcast_abort(1, "x");
      joined.stars[1]->say_goodbye();
    });
    joined.stars[0]->stop_events();
    CHECK(counter->calls <= 2);
    counter.reset();
    speaker.join();
  }
}

TEST_CASE("what happens between initialisation and events is told", "[control]") {
  const Config config = star_config();
  Stars joined = join_all(fresh_id(config), 3, config);
  REQUIRE(joined.all_ok());
  joined.stars[1]->broadcast_abort(3, "early");
  joined.stars[2].reset();
  Recorder recorder;
  REQUIRE(joined.stars[0]->start_events(&recorder).ok());
  CHECK(recorder.wait_abort());
  CHECK(recorder.wait_gone(2));
  joined.stars[0]->stop_events();
}

}  // namespace
}  // namespace rocenante
