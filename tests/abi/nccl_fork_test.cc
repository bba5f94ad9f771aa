// SPDX-License-Identifier: Apache-2.0
//
// Forks while another thread is at a table of the library: the child finds its lock free.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>

#include "lib/comm/driver.h"
#include "lib/comm/thread_state.h"
#include "lib/device/registry.h"
#include "nccl_shim/libnccl/real.h"
#include "tests/support/catch.h"
#include "transports/loopback/loopback.h"
#include "transports/transport.h"

namespace rocenante {
namespace {

constexpr int kForks = 150;
// Ends a child that hangs, which is then no success.
constexpr unsigned kPatienceS = 60;

// How many children of forks amid `work` did not get through it once themselves.
template <class Work>
int hung(const Work& work) {
  std::atomic<bool> is_over{false};
  std::atomic<int> rounds{0};
  std::thread busy([&] {
    while (!is_over) {
      work();
      ++rounds;
    }
  });
  while (rounds == 0) std::this_thread::yield();
  int count = 0;
  for (int i = 0; i < kForks; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(kPatienceS);
      work();
      ::_exit(0);
    }
    int status = -1;
    if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) ++count;
    if (count != 0) break;  // the others would take as long
  }
  is_over = true;
  busy.join();
  return count;
}

}  // namespace

TEST_CASE("a child of a fork amid beginning and ending threads has a state of its own") {
  // Most of a thread's life is not at the table: each has several states, of which it ends with one.
  CHECK(hung([] {
          std::thread([] {
            for (int i = 0; i < 20; ++i) {
              detail::current_thread = nullptr;
              thread_state().last_error = "none";
            }
          }).join();
        }) == 0);
}

TEST_CASE("a child of a fork amid communicators' drivers registers its own") {
  const auto driver = std::make_shared<Driver>();
  CHECK(hung([&] {
          register_driver("a world", std::make_shared<Driver>());
          (void)other_drivers("a world", driver);
        }) == 0);
}

TEST_CASE("a child of a fork amid opened devices opens one") {
  CHECK(hung([] { (void)open_device("no such device"); }) == 0);
}

TEST_CASE("a child of a fork amid loopback transports makes its own") {
  CHECK(hung([] {
          const std::unique_ptr<Transport> transport = make_loopback_transport();
          (void)transport->open(TransportContext{});
        }) == 0);
}

TEST_CASE("a child of a fork amid looks at the host looks at it") {
  CHECK(hung([] { (void)local_identity(); }) == 0);
}

TEST_CASE("a child of a fork amid searches for the real NCCL does without it") {
  std::atomic<int> found{0};
  CHECK(hung([&] { found += nccl::load_real("/nowhere/libnccl.so.2").ok() ? 1 : 0; }) == 0);
  CHECK(found == 0);
}

}  // namespace rocenante
