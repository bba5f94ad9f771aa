// SPDX-License-Identifier: Apache-2.0
//
// Death, leaving and aborting of real processes, over shared memory and tcp or what
// ROCENANTE_TEST_TRANSPORTS lists, with timeouts at their defaults.
#include <dirent.h>
#include <fcntl.h>
#include <rocenante/rocenante.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <random>
#include <sstream>
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
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = 120s;  // a hang, not a speed limit

// Words shared by a test and its forked ranks.
struct Board {
  std::atomic<int> ready{0};
  std::atomic<int> go{0};
  std::atomic<std::int64_t> killed_at_ms{0};
};

class SharedBoard {
 public:
  SharedBoard()
      : board_(new (::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                           0)) Board) {}
  ~SharedBoard() { ::munmap(board_, sizeof(Board)); }
  Board* operator->() const { return board_; }
  Board& operator*() const { return *board_; }

 private:
  Board* board_;
};

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count();
}

// Gives up where a rank that should have set the word is no more.
void wait_until(const std::atomic<int>& word, int value) {
  const auto limit = Clock::now() + kPatience;
  while (word.load() < value && Clock::now() < limit) std::this_thread::sleep_for(1ms);
}

std::string sum_once(Rank& self, float value) {
  std::vector<float> data(1000, value);
  return failure(
      rcnAllReduce(data.data(), data.data(), data.size(), rcnFloat, rcnSum, self.comm(), nullptr),
      "rcnAllReduce");
}

std::string sum_until_error(Rank& self) {
  for (;;) {
    if (std::string error = sum_once(self, 1.0f); !error.empty()) return error;
  }
}

std::size_t names_in_dev_shm() {
  std::size_t names = 0;
  if (DIR* const directory = ::opendir("/dev/shm"); directory != nullptr) {
    while (::readdir(directory) != nullptr) ++names;
    ::closedir(directory);
  }
  return names;
}

void kill_and_note(Process& victim, Board& board) {
  board.killed_at_ms = now_ms();
  ::kill(victim.pid, SIGKILL);
  const Ended ended = wait_for(victim, kPatience);
  REQUIRE(ended.signal == SIGKILL);
}

// Every survivor must have said, by itself and in time, that rank 2 is gone. `seconds` is 5 by contract;
// sanitizers slow the whole machine, not the notice.
void require_named_rank_2(std::vector<Process>& processes, const Board& board) {
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    if (rank == 2) continue;
    const Ended ended = wait_for(processes[rank], kPatience);
    INFO("rank " << rank << ": " << ended.text);
    REQUIRE(ended.exited);
    REQUIRE(ended.code == 1);
    REQUIRE(ended.text.find("rank 2") != std::string::npos);
    REQUIRE(ended.text.find("at ") == 0);
    const std::int64_t noticed = std::stoll(ended.text.substr(3)) - board.killed_at_ms.load();
    std::printf("rank %zu says after %lld ms: %s\n", rank, static_cast<long long>(noticed),
                ended.text.c_str());
    REQUIRE(noticed < 5000);
  }
}

// Those of ROCENANTE_TEST_TRANSPORTS, separated by commas, where adapters are; else those that are
// everywhere.
std::vector<std::string> transports() {
  const char* const names = std::getenv("ROCENANTE_TEST_TRANSPORTS");
  std::stringstream list(names != nullptr ? names : "shm,tcp");
  std::vector<std::string> found;
  for (std::string name; std::getline(list, name, ',');) found.push_back(name);
  return found;
}

// As rcnConfig_t::options; one test case runs once for each.
std::string every_transport() {
  static const std::vector<std::string> names = transports();
  const std::size_t index = GENERATE(range(std::size_t{0}, names.size()));
  return "ROCENANTE_TRANSPORT=" + names[index];
}

std::string stamped(const std::string& error) {
  return "at " + std::to_string(now_ms()) + " " + error;
}

}  // namespace

TEST_CASE("A rank killed in a loop of all-reduces is named by every survivor", "[processes]") {
  const std::string options = every_transport();
  INFO(options);
  const SharedBoard board;
  const std::size_t names = names_in_dev_shm();
  std::vector<Process> processes = start_processes(4, options, [&](Rank& self) {
    if (std::string error = sum_once(self, 1.0f); !error.empty()) return error;
    ++board->ready;
    return stamped(sum_until_error(self));
  });
  wait_until(board->ready, 4);
  kill_and_note(processes[2], *board);
  require_named_rank_2(processes, *board);
  REQUIRE(names_in_dev_shm() <= names);
}

TEST_CASE("A rank killed while the others already wait for it is named", "[processes]") {
  const std::string options = every_transport();
  INFO(options);
  const SharedBoard board;
  std::vector<Process> processes = start_processes(4, options, [&](Rank& self) {
    if (std::string error = sum_once(self, 1.0f); !error.empty()) return error;
    ++board->ready;
    if (self.rank() == 2) {
      for (;;) ::pause();  // never joins the second call
    }
    return stamped(sum_until_error(self));
  });
  wait_until(board->ready, 4);
  std::this_thread::sleep_for(50ms);  // lets waiters reach yield and sleep; correct without it
  kill_and_note(processes[2], *board);
  require_named_rank_2(processes, *board);
}

TEST_CASE("A rank killed while all are idle is named by the next call, not before", "[processes]") {
  const std::string options = every_transport();
  INFO(options);
  const SharedBoard board;
  std::vector<Process> processes = start_processes(4, options, [&](Rank& self) {
    if (std::string error = sum_once(self, 1.0f); !error.empty()) return error;
    ++board->ready;
    wait_until(board->go, 1);
    rcnResult_t state;
    if (rcnCommGetAsyncError(self.comm(), &state) != rcnSuccess || state != rcnSuccess) {
      return std::string("a death that nobody needed was reported as an error");
    }
    ++board->ready;
    wait_until(board->go, 2);
    return stamped(sum_once(self, 1.0f));
  });
  wait_until(board->ready, 4);
  kill_and_note(processes[2], *board);
  board->go = 1;
  wait_until(board->ready, 7);
  board->killed_at_ms = now_ms();
  board->go = 2;
  require_named_rank_2(processes, *board);
}

TEST_CASE("Ranks leave right after their last call, with and without destroy, and harm nobody",
          "[processes]") {
  const std::string options = every_transport();
  INFO(options);
  const int rounds = std::getenv("ROCENANTE_TEST_LEAVING_ROUNDS") != nullptr
                         ? std::atoi(std::getenv("ROCENANTE_TEST_LEAVING_ROUNDS"))
                         : 40;
  const unsigned seed = 20261130;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < rounds; ++round) {
    const auto manner = static_cast<unsigned>(random());
    const int ranks = 2 + static_cast<int>(random() % 3);
    std::vector<Process> processes = start_processes(ranks, options, [&](Rank& self) {
      for (int call = 0; call < 3; ++call) {
        if (std::string error = sum_once(self, 1.0f); !error.empty()) return error;
      }
      std::mt19937 own(manner + static_cast<unsigned>(self.rank()));
      if ((own() & 1) != 0) ::usleep(static_cast<useconds_t>(own() % 3000));
      if ((manner >> self.rank() & 1) != 0) {
        self.release();
        ::_exit(0);
      }
      return failure(rcnCommDestroy(self.release()), "rcnCommDestroy");
    });
    for (Process& process : processes) {
      const Ended ended = wait_for(process, kPatience);
      INFO("round " << round << ": " << ended.text);
      REQUIRE(ended.exited);
      REQUIRE(ended.code == 0);
    }
    if ((round + 1) % 50 == 0) std::fprintf(stderr, "%d rounds of leaving\n", round + 1);
  }
}

TEST_CASE("Abort frees a blocked call and tells every peer", "[processes]") {
  const std::string options = every_transport();
  INFO(options);
  const SharedBoard board;
  std::vector<Process> processes = start_processes(3, options, [&](Rank& self) -> std::string {
    if (std::string error = sum_once(self, 1.0f); !error.empty()) return error;
    if (self.rank() != 0) return sum_once(self, 1.0f);  // rank 0 never joins
    ++board->ready;
    rcnComm_t const comm = self.release();
    return failure(rcnCommAbort(comm), "rcnCommAbort");
  });
  REQUIRE(wait_for(processes[0], kPatience).code == 0);
  for (std::size_t rank : {1u, 2u}) {
    const Ended ended = wait_for(processes[rank], kPatience);
    INFO(ended.text);
    REQUIRE(ended.code == 1);
    REQUIRE(ended.text.find("rank 0 aborted") != std::string::npos);
  }
}

TEST_CASE("A living peer that does not come is a timeout naming it", "[processes]") {
  const std::string options = every_transport();
  INFO(options);
  const SharedBoard board;
  std::vector<Process> processes =
      start_processes(2, options + ";ROCENANTE_TIMEOUT_S=0.3;ROCENANTE_FIRST_OP_TIMEOUT_S=60",
                      [&](Rank& self) -> std::string {
                        if (std::string error = sum_once(self, 1.0f); !error.empty()) return error;
                        if (self.rank() == 0) {
                          const std::string error = sum_once(self, 1.0f);
                          board->go = 1;
                          return error;
                        }
                        wait_until(board->go, 1);
                        return "";
                      });
  const Ended waiting = wait_for(processes[0], kPatience);
  INFO(waiting.text);
  REQUIRE(waiting.code == 1);
  REQUIRE(waiting.text.find("timeout") != std::string::npos);
  REQUIRE(waiting.text.find("rank 1 did not come within 0.300 s") != std::string::npos);
  REQUIRE(wait_for(processes[1], kPatience).code == 0);
}

TEST_CASE("While rank 0 is silent, nobody is suspected for what it does not pass on", "[processes]") {
  const SharedBoard board;
  std::vector<Process> processes =
      start_processes(3, "ROCENANTE_SUSPECT_S=1;ROCENANTE_HEARTBEAT_S=0.1", [&](Rank& self) -> std::string {
        if (std::string error = sum_once(self, 1.0f); !error.empty()) return error;
        ++board->ready;
        if (self.rank() == 2) wait_until(board->go, 1);
        return sum_once(self, 1.0f);
      });
  wait_until(board->ready, 3);
  std::this_thread::sleep_for(200ms);  // rank 0 signals and waits; stopped sooner it is no worse
  ::kill(processes[0].pid, SIGSTOP);
  // What is tested is that time passes; more of it finds no less.
  std::this_thread::sleep_for(2500ms);
  ::kill(processes[0].pid, SIGCONT);
  board->go = 1;
  for (Process& process : processes) {
    const Ended ended = wait_for(process, kPatience);
    INFO(ended.text);
    REQUIRE(ended.code == 0);
  }
}

TEST_CASE("A peer that stays away is given up when rank 0, through which it would be heard, has died",
          "[processes]") {
  const SharedBoard board;
  std::vector<Process> processes =
      start_processes(3, "ROCENANTE_SUSPECT_S=1;ROCENANTE_HEARTBEAT_S=0.1", [&](Rank& self) -> std::string {
        if (std::string error = sum_once(self, 1.0f); !error.empty()) return error;
        ++board->ready;
        if (self.rank() == 1) wait_until(board->go, 1);
        return sum_once(self, 1.0f);
      });
  wait_until(board->ready, 3);
  std::this_thread::sleep_for(200ms);  // rank 0 signals and waits; killed sooner it is what rank 2 misses
  ::kill(processes[0].pid, SIGKILL);
  (void)wait_for(processes[0], kPatience);
  const Ended waiting = wait_for(processes[2], kPatience);
  INFO(waiting.text);
  REQUIRE(waiting.code == 1);
  REQUIRE(waiting.text.find("rank 0 is gone") != std::string::npos);
  const bool was_missed = waiting.text.find("needed by") != std::string::npos;
  REQUIRE((was_missed || waiting.text.find("rank 1 has been silent for 1 s") != std::string::npos));
  board->go = 1;
  REQUIRE(wait_for(processes[1], kPatience).exited);  // it has everybody's signal
}

TEST_CASE("With standard descriptors closed the library takes none of their numbers", "[processes]") {
  std::vector<Process> processes = start_processes(
      2, "",
      [&](Rank& self) -> std::string {
        for (int fd = 0; fd < 3; ++fd) {
          if (::fcntl(fd, F_GETFD) >= 0) return "descriptor " + std::to_string(fd) + " is open";
        }
        return sum_once(self, 1.0f);
      },
      [] {
        for (int fd = 0; fd < 3; ++fd) ::close(fd);
      });
  for (Process& process : processes) {
    const Ended ended = wait_for(process, kPatience);
    INFO(ended.text);
    REQUIRE(ended.code == 0);
  }
}

TEST_CASE("Limits of the process are errors that name them", "[processes]") {
  std::vector<Process> processes = start_processes(
      1, "", [](Rank&) { return std::string(); },
      [] {
        const rlimit limit{100, 100};
        ::setrlimit(RLIMIT_FSIZE, &limit);
      });
  const Ended ended = wait_for(processes[0], kPatience);
  INFO(ended.text);
  REQUIRE(ended.code == 1);
  REQUIRE(ended.text.find("ulimit -f") != std::string::npos);
}

TEST_CASE("Ranks on one thread need a group and work in one", "[group]") {
  rcnUniqueId id;
  ::setenv("ROCENANTE_SOCKET_IFNAME", "=lo", 1);
  REQUIRE(rcnGetUniqueId(&id) == rcnSuccess);
  rcnComm_t comms[3] = {};
  REQUIRE(rcnGroupStart() == rcnSuccess);
  for (int rank = 0; rank < 3; ++rank) REQUIRE(rcnCommInitRank(&comms[rank], 3, id, rank) == rcnSuccess);
  REQUIRE(comms[0] == nullptr);
  REQUIRE(rcnGroupEnd() == rcnSuccess);

  float alone = 1.0f;
  REQUIRE(rcnAllReduce(&alone, &alone, 1, rcnFloat, rcnSum, comms[0], nullptr) == rcnInvalidUsage);
  REQUIRE(std::string(rcnGetLastError(nullptr)).find("rcnGroupStart") != std::string::npos);

  for (const std::size_t count : {1u, 100u, 100000u}) {
    std::vector<std::vector<float>> data;
    for (int rank = 0; rank < 3; ++rank) data.emplace_back(count, static_cast<float>(rank + 1));
    REQUIRE(rcnGroupStart() == rcnSuccess);
    for (int call = 0; call < 2;
         ++call) {  // issue order per communicator: the second sums the first's results
      for (std::size_t rank = 0; rank < 3; ++rank) {
        float* const buffer = data[rank].data();
        REQUIRE(rcnAllReduce(buffer, buffer, count, rcnFloat, rcnSum, comms[rank], nullptr) == rcnSuccess);
      }
    }
    REQUIRE(rcnGroupEnd() == rcnSuccess);
    for (const auto& buffer : data) {
      for (const float value : buffer) REQUIRE(value == 18.0f);
    }
  }
  for (rcnComm_t comm : comms) REQUIRE(rcnCommDestroy(comm) == rcnSuccess);
}

TEST_CASE("A communicator made before a fork is refused in the child and lives on in the parent",
          "[fork]") {
  rcnUniqueId id;
  ::setenv("ROCENANTE_SOCKET_IFNAME", "=lo", 1);
  REQUIRE(rcnGetUniqueId(&id) == rcnSuccess);
  rcnComm_t comm = nullptr;
  REQUIRE(rcnCommInitRank(&comm, 1, id, 0) == rcnSuccess);
  const pid_t child = ::fork();
  if (child == 0) {
    float value = 1.0f;
    const bool refused =
        rcnAllReduce(&value, &value, 1, rcnFloat, rcnSum, comm, nullptr) == rcnInvalidUsage;
    const bool destroyed = rcnCommDestroy(comm) == rcnInvalidUsage;
    ::_exit(refused && destroyed ? 0 : 1);
  }
  Process process{child, ::dup(0)};
  const Ended ended = wait_for(process, kPatience);
  REQUIRE(ended.exited);
  REQUIRE(ended.code == 0);
  float value = 2.0f;
  REQUIRE(rcnAllReduce(&value, &value, 1, rcnFloat, rcnSum, comm, nullptr) == rcnSuccess);
  REQUIRE(value == 2.0f);
  REQUIRE(rcnCommDestroy(comm) == rcnSuccess);
}
