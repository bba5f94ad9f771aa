// SPDX-License-Identifier: Apache-2.0
//
// Progress threads by themselves: their life, who is looked at, how they sleep and are woken.
#include "lib/comm/progress.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lib/comm/host_env.h"
#include "lib/net/deadline.h"
#include "tests/support/catch.h"

namespace rocenante {
namespace {

// Reached only by a hang.
net::Deadline patience() {
  return net::Deadline::after_s(60);
}

template <class Condition>
bool comes_true(Condition condition) {
  const net::Deadline deadline = patience();
  while (!condition()) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

// Looks as a test says; `true` by default never.
class Work final : public ProgressWork {
 public:
  explicit Work(std::function<bool()> body = [] { return false; }) : body_(std::move(body)) {}
  bool look() override {
    thread = ::gettid();
    ++looks;
    return body_();
  }
  void on_exception(Status status) noexcept override {
    text = status.text();
    ++exceptions;
  }

  std::atomic<std::uint64_t> looks{0};
  std::atomic<pid_t> thread{0};
  std::atomic<int> exceptions{0};
  std::string text;

 private:
  const std::function<bool()> body_;
};

const int kDevices[3] = {};

ProgressSettings crowded(std::uint64_t spin_ns = 100'000) {
  ProgressSettings settings;
  settings.spin_ns = spin_ns;
  settings.crowded = true;
  return settings;
}

ProgressPlace place(const void* device, ProgressWork* work, const ProgressSettings& settings = crowded()) {
  Result<ProgressPlace> added = Progress::add(device, work, settings);
  INFO(added.status().text());
  REQUIRE(added.ok());
  return added.take();
}

TEST_CASE("a device has a thread from its first work to its last", "[progress]") {
  REQUIRE(Progress::threads() == 0);
  for (int round = 0; round < 50; ++round) {
    Work first, second, other;
    ProgressPlace a = place(&kDevices[0], &first);
    ProgressPlace b = place(&kDevices[0], &second);
    REQUIRE(Progress::threads() == 1);
    ProgressPlace c = place(&kDevices[1], &other);
    REQUIRE(Progress::threads() == 2);
    REQUIRE(comes_true([&] { return first.looks > 3 && second.looks > 3 && other.looks > 3; }));
    REQUIRE(first.thread == second.thread);
    REQUIRE(first.thread != other.thread);
    REQUIRE(first.thread != ::gettid());
    a.leave();
    const std::uint64_t looks = second.looks;
    REQUIRE(comes_true([&] { return second.looks > looks; }));
    b.leave();
    REQUIRE(Progress::threads() == 1);
    c = ProgressPlace();
    REQUIRE(Progress::threads() == 0);
  }
  REQUIRE_FALSE(Progress::is_own_thread());
}

TEST_CASE("who has left is not looked at any more", "[progress]") {
  Work stays;
  const ProgressPlace keeps = place(&kDevices[0], &stays);
  for (int round = 0; round < 2000; ++round) {
    std::atomic<bool> in_look{false};
    auto work = std::make_unique<Work>([&] {
      in_look = true;
      for (int i = 0; i < round % 7; ++i) std::this_thread::yield();
      in_look = false;
      return round % 2 == 0;
    });
    ProgressPlace leaves = place(&kDevices[0], work.get());
    if (round % 3 != 0) REQUIRE(comes_true([&] { return work->looks != 0; }));
    leaves.leave();
    REQUIRE_FALSE(in_look);
    work.reset();  // a sanitizer sees any look after this
  }
}

TEST_CASE("a look may make any work leave, its own included", "[progress]") {
  for (int round = 0; round < 200; ++round) {
    ProgressPlace own, other;
    std::atomic<bool> is_ready{false}, is_done{false}, has_left{false};
    std::atomic<int> late{0};
    Work victim([&] {
      if (has_left) ++late;  // it comes after the other in the list
      return false;
    });
    Work work([&] {
      if (!is_ready || is_done) return false;
      REQUIRE(Progress::is_own_thread());
      other.leave();
      has_left = true;
      own.leave();
      is_done = true;
      return true;
    });
    Work stays;
    ProgressPlace keeps = place(&kDevices[0], &stays);
    own = place(&kDevices[0], &work);
    other = place(&kDevices[0], &victim);
    REQUIRE(comes_true([&] { return victim.looks != 0; }));
    is_ready = true;
    REQUIRE(comes_true([&] { return is_done.load(); }));
    const std::uint64_t looks = stays.looks;
    REQUIRE(comes_true([&] { return stays.looks > looks + 3; }));
    const std::uint64_t before = work.looks + victim.looks;
    const std::uint64_t more = stays.looks;
    REQUIRE(comes_true([&] { return stays.looks > more + 3; }));
    REQUIRE(work.looks + victim.looks == before);
    REQUIRE(late == 0);
    keeps.leave();
    REQUIRE(Progress::threads() == 0);
  }
}

TEST_CASE("the last work may leave from within its look", "[progress]") {
  for (int round = 0; round < 50; ++round) {
    ProgressPlace own;
    std::atomic<bool> is_ready{false}, is_done{false};
    Work work([&] {
      if (!is_ready || is_done) return false;
      own.leave();
      is_done = true;
      return true;
    });
    own = place(&kDevices[0], &work);
    is_ready = true;
    REQUIRE(comes_true([&] { return is_done.load(); }));
    // The device's next work finds a thread that is there or one that has ended.
    Work next;
    ProgressPlace again = place(&kDevices[0], &next);
    REQUIRE(comes_true([&] { return next.looks > 3; }));
    REQUIRE(work.looks > 0);
    again.leave();
    REQUIRE(Progress::threads() == 0);
  }
}

TEST_CASE("what a look throws becomes the work's status, and the others go on", "[progress]") {
  Work good;
  Work bad([]() -> bool { throw std::runtime_error("no such luck"); });
  Work worse([]() -> bool { throw 7; });
  ProgressPlace a = place(&kDevices[0], &bad);
  ProgressPlace b = place(&kDevices[0], &good);
  ProgressPlace c = place(&kDevices[0], &worse);
  REQUIRE(comes_true([&] { return bad.exceptions == 1 && worse.exceptions == 1; }));
  const std::uint64_t looks = good.looks;
  REQUIRE(comes_true([&] { return good.looks > looks + 10; }));
  a.leave();
  c.leave();
  REQUIRE(bad.looks == 1);
  REQUIRE(bad.exceptions == 1);
  REQUIRE(bad.text == "no such luck");
  REQUIRE(worse.text == "unknown exception");
}

TEST_CASE("a thread that cannot be started is an error and leaves nothing", "[progress][huge]") {
  pthread_attr_t before, huge;
  REQUIRE(::pthread_getattr_default_np(&before) == 0);
  REQUIRE(::pthread_attr_init(&huge) == 0);
  REQUIRE(::pthread_attr_setstacksize(&huge, std::size_t{1} << 46) == 0);
  REQUIRE(::pthread_setattr_default_np(&huge) == 0);
  Work work;
  const Result<ProgressPlace> added = Progress::add(&kDevices[0], &work, crowded());
  REQUIRE(::pthread_setattr_default_np(&before) == 0);
  REQUIRE_FALSE(added.ok());
  REQUIRE(added.status().code() == Code::kSystemError);
  REQUIRE(Progress::threads() == 0);
  // And the next one is fine.
  const ProgressPlace again = place(&kDevices[0], &work);
  REQUIRE(comes_true([&] { return work.looks != 0; }));
}

TEST_CASE("a thread has a bound on its works", "[progress]") {
  constexpr std::size_t kMost = 4096;
  Work work;
  std::vector<ProgressPlace> places;
  for (std::size_t i = 0; i < kMost; ++i) places.push_back(place(&kDevices[0], &work));
  const Result<ProgressPlace> one_more = Progress::add(&kDevices[0], &work, crowded());
  REQUIRE_FALSE(one_more.ok());
  REQUIRE(one_more.status().code() == Code::kInvalidUsage);
  places.clear();
  REQUIRE(Progress::threads() == 0);
}

// With naps that never end by themselves only wake() lets the thread look again. A flag that is set too
// late, not looked at again or not fenced hangs here.
TEST_CASE("no wake is lost", "[progress]") {
  std::atomic<std::uint64_t> rung{0}, taken{0};
  Work work([&] {
    if (taken == rung) return false;
    ++taken;
    return true;
  });
  ProgressSettings settings = crowded(0);
  settings.nap_ns = net::kNanosecondsPerSecond * 3600;
  ProgressPlace own = place(&kDevices[0], &work, settings);
  for (std::uint64_t i = 1; i <= 20'000; ++i) {
    rung = i;
    own.wake();
    // Now at once, now when the thread is likely to be about to sleep.
    for (std::uint64_t spin = 0; spin < i % 200; ++spin) cpu_pause();
    REQUIRE(comes_true([&] { return taken == i; }));
  }
  // It sleeps for an hour and ends at once.
  own.leave();
  REQUIRE(Progress::threads() == 0);
}

TEST_CASE("a thread that nobody wakes still looks", "[progress]") {
  Work work;
  const ProgressPlace own = place(&kDevices[0], &work, crowded(0));
  const std::uint64_t looks = work.looks;
  REQUIRE(comes_true([&] { return work.looks > looks + 100; }));
}

TEST_CASE("works come, go and are woken from many threads at once", "[progress]") {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 300; ++round) {
        auto work = std::make_unique<Work>();
        Result<ProgressPlace> added = Progress::add(&kDevices[t % 2], work.get(), crowded(1000));
        if (!added.ok()) {
          ++wrong;
          return;
        }
        added.value().wake();
        if (round % 2 == 0 && !comes_true([&] { return work->looks != 0; })) ++wrong;
        added.value().wake();
        added.value().leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(wrong == 0);
  REQUIRE(Progress::threads() == 0);
}

TEST_CASE("a child of fork() inherits no thread, may let go of its places, and has threads of its own",
          "[progress][fork]") {
  Work work([] { return true; });
  ProgressPlace own = place(&kDevices[0], &work);
  REQUIRE(comes_true([&] { return work.looks > 10; }));
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      int code = Progress::threads() == 0 ? 0 : 1;
      own.wake();
      own.leave();
      Work mine;
      {
        Result<ProgressPlace> added = Progress::add(&kDevices[0], &mine, crowded());
        if (!added.ok()) {
          code |= 2;
        } else if (!comes_true([&] { return mine.looks > 3; })) {
          code |= 4;
        }
      }
      if (Progress::threads() != 0) code |= 8;
      ::_exit(code);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 0);
    // The parent's goes on.
    const std::uint64_t looks = work.looks;
    REQUIRE(comes_true([&] { return work.looks > looks + 10; }));
  }
}

TEST_CASE("a process may exit while works are looked at, and from within a look", "[progress][fork]") {
  const bool within = GENERATE(false, true);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);
    static Work* work = nullptr;
    static ProgressPlace* own = nullptr;
    static std::atomic<bool> is_ready{false};
    work = new Work([within] {
      if (within && is_ready) ::exit(7);
      return true;
    });
    Result<ProgressPlace> added = Progress::add(&kDevices[0], work, crowded());
    if (!added.ok()) ::_exit(1);
    own = new ProgressPlace(added.take());
    if (!comes_true([] { return work->looks > 10; })) ::_exit(2);
    if (!within) ::exit(7);
    is_ready = true;
    while (!own->empty()) ::pause();
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 7);
}

TEST_CASE("a place can be moved, and the empty one does nothing", "[progress]") {
  Work work;
  ProgressPlace first = place(&kDevices[0], &work);
  ProgressPlace second = std::move(first);
  first.wake();
  first.leave();
  REQUIRE(first.empty());
  REQUIRE_FALSE(second.empty());
  REQUIRE(Progress::threads() == 1);
  second.leave();
  second.leave();
  REQUIRE(Progress::threads() == 0);
}

}  // namespace
}  // namespace rocenante
