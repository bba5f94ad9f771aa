// SPDX-License-Identifier: Apache-2.0
//
// The control star with ranks as forked processes: deaths, exits and forks. All are tagged [fork], because
// ThreadSanitizer does not know processes.
#include <atomic>

#include "lib/comm/control.h"
#include "lib/comm/rendezvous.h"
#include "tests/support/catch.h"
#include "tests/support/star.h"

namespace rocenante {
namespace {

using test::Child;
using test::Deadline;
using test::patience;
using test::Pipe;
using test::Recorder;
using test::Star;
using test::star_config;

UniqueId fresh_id(const Config& config) {
  Result<UniqueId> id = create_unique_id(config);
  REQUIRE(id.status().text() == "");
  return id.take();
}

// In a child a failure is its exit code.
Star join_or_die(const UniqueId& id, std::uint32_t rank, std::uint32_t nranks, const Config& config) {
  Result<Star> star = ControlStar::join(id, rank, nranks, config, patience());
  if (star.ok()) return star.take();
  ::fprintf(stderr, "rank %u: %s\n", rank, star.status().text().c_str());
  ::_exit(100);
}

Star join_here(const UniqueId& id, std::uint32_t rank, std::uint32_t nranks, const Config& config) {
  Result<Star> star = ControlStar::join(id, rank, nranks, config, patience());
  REQUIRE(star.status().text() == "");
  return star.take();
}

// Ranks 1 to nranks-1 as processes that join, say so, and wait to be told to go on.
struct Ranks {
  Ranks(const UniqueId& id, std::uint32_t nranks, const Config& config,
        const std::function<int(ControlStar*, Recorder*)>& then) {
    for (std::uint32_t rank = 1; rank < nranks; ++rank) {
      children.emplace_back([&, rank] {
        Star star = join_or_die(id, rank, nranks, config);
        Recorder recorder;
        if (!star->start_events(&recorder).ok()) return 101;
        joined.signal();
        go.wait();
        const int code = then(star.get(), &recorder);
        star->stop_events();
        return code;
      });
    }
  }
  Pipe joined;
  Pipe go;
  std::vector<Child> children;
};

TEST_CASE("64 processes join and exchange blobs", "[control][fork]") {
  const std::uint32_t nranks = 64;
  const Config config = star_config();
  const UniqueId id = fresh_id(config);
  const auto run = [&](std::uint32_t rank) {
    const Star star = join_or_die(id, rank, nranks, config);
    const auto blobs = star->all_gather(std::to_string(rank), patience());
    if (!blobs.ok()) return 1;
    for (std::uint32_t r = 0; r < nranks; ++r) {
      if (blobs.value()[r] != std::to_string(r)) return 2;
    }
    star->say_goodbye();
    return 0;
  };
  std::vector<Child> children;
  for (std::uint32_t rank = 0; rank < nranks; ++rank)
    children.emplace_back([&, rank] { return run(rank); });
  for (Child& child : children) CHECK(child.wait() == 0);
}

TEST_CASE("a killed process is noticed by all", "[control][fork]") {
  const Config config = star_config();
  const UniqueId id = fresh_id(config);
  Ranks others(id, 4, config, [](ControlStar* star, Recorder* recorder) {
    const bool ok = recorder->wait_gone(2) && recorder->gone().size() == 1;
    star->say_goodbye();  // so that the other is not told of a second death
    return ok ? 0 : 1;
  });
  const Star star = join_here(id, 0, 4, config);
  Recorder recorder;
  REQUIRE(star->start_events(&recorder).ok());
  REQUIRE(others.joined.wait(3));
  others.children[1].kill(SIGKILL);
  CHECK(recorder.wait_gone(2));
  for (int i = 0; i < 2; ++i) others.go.signal();
  CHECK(others.children[0].wait() == 0);
  CHECK(others.children[2].wait() == 0);
  star->stop_events();
}

TEST_CASE("a process that exits with or without a goodbye", "[control][fork]") {
  const bool says_goodbye = GENERATE(false, true);
  const Config config = star_config();
  const UniqueId id = fresh_id(config);
  Ranks others(id, 2, config, [&](ControlStar* star, Recorder*) {
    // Without destroying the star.
    if (says_goodbye) star->say_goodbye();
    ::_exit(0);
    return 0;
  });
  const Star star = join_here(id, 0, 2, config);
  Recorder recorder;
  REQUIRE(star->start_events(&recorder).ok());
  REQUIRE(others.joined.wait());
  others.go.signal();
  CHECK((says_goodbye ? recorder.wait_left(1) : recorder.wait_gone(1)));
  CHECK(others.children[0].wait() == 0);
  star->stop_events();
  CHECK(recorder.left().size() + recorder.gone().size() == 1);
}

TEST_CASE("a process may return from main after leaving", "[control][fork][alone]") {
  test::be_alone();
  const Config config = star_config();
  const std::string address = test::free_address();
  std::vector<Child> children;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    children.emplace_back([&, rank] {
      const auto id = unique_id_at(address, rank == 0, config);
      if (!id.ok()) return 1;
      Star star = join_or_die(id.value(), rank, 3, config);
      Recorder recorder;
      if (!star->start_events(&recorder).ok()) return 1;
      star->say_goodbye();
      const bool all = star->wait_for_goodbyes({true, true, true}, patience());
      star->stop_events();
      star.reset();
      ::exit(all ? 0 : 2);  // static destructors included
      return 0;
    });
  }
  for (Child& child : children) CHECK(child.wait() == 0);
}

TEST_CASE("rank 0 may leave and exit first", "[control][fork]") {
  const Config config = star_config();
  const UniqueId id = fresh_id(config);
  Child zero([&] {
    Star star = join_or_die(id, 0, 3, config);
    Recorder recorder;
    if (!star->start_events(&recorder).ok()) return 1;
    star->say_goodbye();
    star->stop_events();
    star.reset();
    return 0;
  });
  Pipe done;
  Child one([&] {
    Star star = join_or_die(id, 1, 3, config);
    Recorder recorder;
    if (!star->start_events(&recorder).ok()) return 1;
    const bool ok = recorder.wait_left(0) && recorder.wait_lost() && recorder.gone().empty();
    done.signal();
    star->stop_events();
    return ok ? 0 : 2;
  });
  const Star star = join_here(id, 2, 3, config);
  Recorder recorder;
  REQUIRE(star->start_events(&recorder).ok());
  CHECK(recorder.wait_left(0));
  CHECK(zero.wait() == 0);
  CHECK(recorder.wait_lost());
  CHECK(recorder.gone().empty());
  CHECK(recorder.lost() == "rank 0 has left and its process has ended");
  CHECK(done.wait());
  CHECK(one.wait() == 0);
  star->stop_events();
}

TEST_CASE("a watched process is noticed without its connection", "[control][fork]") {
  // The pidfd is of a process that is no rank, so nothing but the pidfd can tell.
  const Config config = star_config();
  const UniqueId id = fresh_id(config);
  test::Stars joined = test::join_all(id, 3, config);
  REQUIRE(joined.all_ok());
  std::vector<Recorder> recorders(3);
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    REQUIRE(joined.stars[rank]->start_events(&recorders[rank]).ok());
  Pipe never;
  Child child([&] {
    never.wait();
    return 0;
  });
  CHECK(joined.stars[1]->watch_process(1, test::open_process(child.pid())).code() ==
        Code::kInvalidArgument);
  CHECK(joined.stars[1]->watch_process(3, test::open_process(child.pid())).code() ==
        Code::kInvalidArgument);
  REQUIRE(joined.stars[1]->watch_process(2, test::open_process(child.pid())).ok());
  REQUIRE(joined.stars[0]->watch_process(2, test::open_process(child.pid())).ok());
  const std::uint64_t killed = net::monotonic_ns();
  child.kill(SIGKILL);
  CHECK(recorders[1].wait_gone(2));
  // Not at once: a goodbye might still have come.
  CHECK(net::monotonic_ns() - killed >= net::kNanosecondsPerSecond);
  CHECK(recorders[1].gone()[2] == "its process has ended without a goodbye");
  CHECK(recorders[0].wait_gone(2));
  for (const Star& star : joined.stars) star->stop_events();
}

TEST_CASE("a goodbye outruns the end of a watched process", "[control][fork]") {
  const Config config = star_config();
  const UniqueId id = fresh_id(config);
  Ranks others(id, 3, config, [](ControlStar* star, Recorder*) {
    star->say_goodbye();
    return 0;
  });
  const Star star = join_here(id, 0, 3, config);
  Recorder recorder;
  REQUIRE(star->start_events(&recorder).ok());
  REQUIRE(others.joined.wait(2));
  for (std::uint32_t rank = 1; rank < 3; ++rank) {
    REQUIRE(star->watch_process(rank, test::open_process(others.children[rank - 1].pid())).ok());
  }
  for (int i = 0; i < 2; ++i) others.go.signal();
  for (Child& child : others.children) CHECK(child.wait() == 0);
  CHECK(recorder.wait_left(1));
  CHECK(recorder.wait_left(2));
  star->stop_events();
  CHECK(recorder.gone().empty());
}

TEST_CASE("a stopped process is neither gone nor in anybody's way", "[control][fork]") {
  const Config config = star_config();
  const UniqueId id = fresh_id(config);
  Ranks others(id, 3, config,
               [](ControlStar*, Recorder* recorder) { return recorder->wait_abort() ? 0 : 1; });
  const Star star = join_here(id, 0, 3, config);
  Recorder recorder;
  REQUIRE(star->start_events(&recorder).ok());
  REQUIRE(others.joined.wait(2));
  others.children[0].kill(SIGSTOP);
  // Its heartbeats end and the other's go on.
  const Deadline deadline = patience();
  const std::uint64_t heard = star->last_heard_ns(2);
  while (net::monotonic_ns() - star->last_heard_ns(1) < 500 * net::kNanosecondsPerMillisecond &&
         !deadline.passed()) {
    std::this_thread::yield();
  }
  CHECK(star->last_heard_ns(2) > heard);
  CHECK(star->last_heard_ns(2) > star->last_heard_ns(1));
  CHECK(recorder.gone().empty());
  star->broadcast_abort(1, "over");
  for (int i = 0; i < 2; ++i) others.go.signal();
  CHECK(others.children[1].wait() == 0);
  others.children[0].kill(SIGCONT);
  CHECK(others.children[0].wait() == 0);
  star->stop_events();
}

TEST_CASE("a rank killed while the ranks meet is named", "[rendezvous][fork]") {
  const Config config = star_config();
  const UniqueId id = fresh_id(config);
  Pipe joined;
  Child child([&] {
    const net::SocketFd fd = test::bare_join(id, 1, 3, config);
    joined.signal();
    ::pause();
    return fd ? 0 : 1;
  });
  REQUIRE(joined.wait());
  Status status;
  std::thread waiting([&] { status = ControlStar::join(id, 0, 3, config, patience()).status(); });
  child.kill(SIGKILL);
  waiting.join();
  CHECK(status.code() == Code::kRemoteError);
  CHECK(status.text().starts_with("rank 1 (bare:1) went away while the ranks were meeting"));
}

TEST_CASE("an id made before a fork works in parent and children", "[rendezvous][fork]") {
  const Config config = star_config();
  const UniqueId first = fresh_id(config);
  const UniqueId second = fresh_id(config);
  Child child([&] {
    const Star a = join_or_die(first, 1, 2, config);
    const Star b = join_or_die(second, 0, 2, config);
    const auto blobs = b->all_gather("child", patience());
    return blobs.ok() && blobs.value()[1] == "parent" ? 0 : 1;
  });
  const Star a = join_here(first, 0, 2, config);
  const Star b = join_here(second, 1, 2, config);
  const auto blobs = b->all_gather("parent", patience());
  REQUIRE(blobs.ok());
  CHECK(blobs.value()[0] == "child");
  CHECK(child.wait() == 0);
}

TEST_CASE("a child of a rank neither speaks for it nor keeps it alive", "[control][fork]") {
  const Config config = star_config();
  const UniqueId id = fresh_id(config);
  Pipe end_grandchild;
  Pipe grandchild_checked;
  Child rank_one([&] {
    Star star = join_or_die(id, 1, 2, config);
    Recorder recorder;
    if (!star->start_events(&recorder).ok()) return 1;
    if (::fork() == 0) {
      // Everything of the inherited star is dead, and nothing hangs.
      star->broadcast_abort(1, "from the child");
      star->say_goodbye();
      bool ok = star->all_gather("x", patience()).status().code() == Code::kInvalidUsage;
      ok = ok && star->start_events(nullptr).code() == Code::kInvalidUsage;
      ok = ok && !star->wait_for_goodbyes({true, true}, patience());
      star->stop_events();
      star.reset();
      stop_all_rendezvous();
      // A star of its own works.
      const UniqueId own = create_unique_id(config).take();
      ok = ok && ControlStar::join(own, 0, 1, config, patience()).ok();
      if (ok) grandchild_checked.signal();
      end_grandchild.wait();
      ::_exit(0);
    }
    if (!grandchild_checked.wait()) return 2;
    ::_exit(0);
    return 0;
  });
  const Star star = join_here(id, 0, 2, config);
  Recorder recorder;
  REQUIRE(star->start_events(&recorder).ok());
  // Rank 1 exits without a goodbye while its child still runs: its connection is closed all the same.
  CHECK(recorder.wait_gone(1));
  CHECK(rank_one.wait() == 0);
  CHECK(recorder.aborts() == 0);
  CHECK(recorder.left().empty());
  end_grandchild.signal();
  star->stop_events();
}

TEST_CASE("a child of a rank whose monitor was busy does not hang", "[control][fork]") {
  // Holds the star's locks for as long as the test wants.
  class Blocker final : public ControlListener {
   public:
    void on_gone(std::uint32_t, std::string_view) override {}
    void on_left(std::uint32_t) override {
      entered.signal();
      leave.wait();
    }
    void on_abort(std::uint32_t, std::uint64_t, std::string_view) override {}
    void on_control_lost(std::string_view) override {}
    Pipe entered;
    Pipe leave;
  };
  const Config config = star_config();
  test::Stars joined = test::join_all(fresh_id(config), 2, config);
  REQUIRE(joined.all_ok());
  Blocker blocker;
  REQUIRE(joined.stars[0]->start_events(&blocker).ok());
  joined.stars[1]->say_goodbye();
  REQUIRE(blocker.entered.wait());
  Child child([&] {
    joined.stars[0]->stop_events();
    joined.stars[0].reset();
    const auto id = create_unique_id(config);
    return id.ok() && ControlStar::join(id.value(), 0, 1, config, patience()).ok() ? 0 : 1;
  });
  CHECK(child.wait() == 0);
  blocker.leave.signal();
  joined.stars[0]->stop_events();
}

TEST_CASE("a child of a rank may return from main", "[control][fork]") {
  const Config config = star_config();
  [[maybe_unused]] const UniqueId waiting = fresh_id(config);
  test::Stars joined = test::join_all(fresh_id(config), 2, config);
  REQUIRE(joined.all_ok());
  Recorder recorder;
  REQUIRE(joined.stars[0]->start_events(&recorder).ok());
  Child child([] {
    ::exit(0);
    return 0;
  });
  // It ends, though the threads of the rendezvous and the monitor are not there to be waited for. (A leak
  // checker may dislike what their stacks held.)
  CHECK(child.wait() >= 0);
  joined.stars[0]->stop_events();
  CHECK(recorder.gone().empty());
}

TEST_CASE("forks amid joining ranks do not hang", "[control][fork][amid]") {
  const Config config = star_config();
  std::atomic<bool> is_over{false};
  std::atomic<int> joined{0};
  std::thread busy([&] {
    while (!is_over) {
      const auto id = create_unique_id(config);
      joined += id.ok() && test::join_all(id.value(), 2, config).all_ok();
    }
  });
  for (int i = 0; i < 30; ++i) {
    Child child([&] {
      const auto id = create_unique_id(config);
      return id.ok() && ControlStar::join(id.value(), 0, 1, config, patience()).ok() ? 0 : 1;
    });
    CHECK(child.wait() == 0);
  }
  is_over = true;
  busy.join();
  CHECK(joined > 0);
}

}  // namespace
}  // namespace rocenante
