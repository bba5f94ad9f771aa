// SPDX-License-Identifier: Apache-2.0
//
// What ends a rank between the two rounds of an all-reduce, over shared memory and tcp.
//
// A rank is held there by its own input. Its own slice is not staged; it is read when all signals of the
// first round have come and nothing of the second has been published. The slice cannot be read until the
// test says so, and the reader waits in the handler of the fault.
#include <rocenante/rocenante.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/world.h"

namespace {

using namespace std::chrono_literals;
using rocenante::test::Ended;
using rocenante::test::failure;
using rocenante::test::Process;
using rocenante::test::Rank;
using rocenante::test::start_processes;
using rocenante::test::wait_for;

constexpr auto kPatience = 120s;  // a hang, not a speed limit
constexpr int kRanks = 4;
constexpr int kHeldRank = 2;
constexpr std::size_t kSliceBytes = 64 * 1024;  // whole pages on every machine
constexpr std::size_t kCount = kRanks * kSliceBytes / sizeof(float);

// Shared by a test and its forked ranks.
struct Board {
  std::atomic<int> held{0};
  std::atomic<int> go{0};
};

Board& board() {
  static Board* const shared =
      new (::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Board;
  return *shared;
}

unsigned char* closed_slice = nullptr;

void nap() {
  const timespec time{0, 1'000'000};
  ::nanosleep(&time, nullptr);
}

void on_fault(int, siginfo_t* info, void*) {
  const auto* const at = static_cast<const unsigned char*>(info->si_addr);
  if (at < closed_slice || at >= closed_slice + kSliceBytes) {
    ::signal(SIGSEGV, SIG_DFL);  // a fault of something else, which now ends the process
    return;
  }
  board().held = 1;
  while (board().go == 0) nap();
  ::mprotect(closed_slice, kSliceBytes, PROT_READ | PROT_WRITE);
}

// The input of a rank; the held rank's own slice is closed.
float* make_input(int rank) {
  auto* const input = static_cast<float*>(
      ::mmap(nullptr, kCount * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::fill(input, input + kCount, 1.0f);
  if (rank != kHeldRank) return input;
  closed_slice = reinterpret_cast<unsigned char*>(input) + kHeldRank * kSliceBytes;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGSEGV, &action, nullptr);
  ::mprotect(closed_slice, kSliceBytes, PROT_NONE);
  return input;
}

// The communicator's first call: its rounds are epochs 1 and 2.
std::string sum(Rank& self) {
  const float* const input = make_input(self.rank());
  std::vector<float> output(kCount);
  std::string error = failure(
      rcnAllReduce(input, output.data(), kCount, rcnFloat, rcnSum, self.comm(), nullptr), "rcnAllReduce");
  if (!error.empty()) return error;
  if (output != std::vector<float>(kCount, kRanks)) return "a wrong sum";
  return "";
}

std::string every_transport() {
  const std::string transport = GENERATE("shm", "tcp");
  return "ROCENANTE_TWO_ROUND_BYTES=4096;ROCENANTE_TRANSPORT=" + transport;
}

// Waits until the held rank is between its rounds.
void wait_until_held() {
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (board().held == 0 && std::chrono::steady_clock::now() < limit) nap();
  REQUIRE(board().held == 1);
}

void clear_board() {
  board().held = 0;
  board().go = 0;
}

// All ranks but the held one end with an error that has both texts.
void require_survivors_say(std::vector<Process>& processes, const std::string& one,
                           const std::string& other) {
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    if (rank == kHeldRank) continue;
    const Ended ended = wait_for(processes[rank], kPatience);
    INFO("rank " << rank << ": " << ended.text);
    REQUIRE(ended.exited);
    REQUIRE(ended.code == 1);
    REQUIRE(ended.text.find(one) != std::string::npos);
    REQUIRE(ended.text.find(other) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("A rank that is held between its rounds goes on, and every sum is right", "[processes]") {
  const std::string options = every_transport();
  INFO(options);
  clear_board();
  std::vector<Process> processes = start_processes(kRanks, options, sum);
  wait_until_held();
  board().go = 1;
  for (Process& process : processes) {
    const Ended ended = wait_for(process, kPatience);
    INFO(ended.text);
    REQUIRE(ended.code == 0);
  }
}

TEST_CASE("A rank killed between its rounds is named by every survivor, in the second", "[processes]") {
  const std::string options = every_transport();
  INFO(options);
  clear_board();
  std::vector<Process> processes = start_processes(kRanks, options, sum);
  wait_until_held();
  ::kill(processes[kHeldRank].pid, SIGKILL);
  REQUIRE(wait_for(processes[kHeldRank], kPatience).signal == SIGKILL);
  require_survivors_say(processes, "rank 2", "epoch 2, waiting for rank 2");
}

TEST_CASE("An abort of a rank between its rounds ends the others' second", "[processes]") {
  const std::string options = every_transport();
  INFO(options);
  clear_board();
  std::vector<Process> processes = start_processes(kRanks, options, [](Rank& self) {
    if (self.rank() != kHeldRank) return sum(self);
    std::thread aborter([comm = self.comm()] {
      while (board().held == 0) nap();
      (void)rcnCommAbort(comm);  // waits for the call
    });
    (void)sum(self);  // has all signals when it may go on: either end is right
    aborter.join();
    self.release();
    return std::string();
  });
  wait_until_held();
  require_survivors_say(processes, "rank 2 aborted the communicator", "");
  board().go = 1;
  const Ended ended = wait_for(processes[kHeldRank], kPatience);
  INFO(ended.text);
  REQUIRE(ended.code == 0);
}
