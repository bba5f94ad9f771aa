// SPDX-License-Identifier: Apache-2.0
//
// Shared memory and tcp in one communicator.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/config.h"
#include "lib/comm/communicator.h"
#include "lib/comm/unique_id.h"
#include "tests/support/catch.h"

namespace rocenante {
namespace {

// Pretends that the ranks sit on two hosts, the even and the odd ones.
class TwoHosts final : public TransportCatalog {
 public:
  struct Board {
    std::array<std::atomic<int>, 8> pid_of;
    std::atomic<int> id_is_there;
    UniqueId id;
  };
  explicit TwoHosts(Board& board) : board_(board) {}

  std::span<const char* const> names() const override { return kNames; }
  bool reachable(std::string_view name, const HostIdentity& a, const HostIdentity& b) const override {
    return name == "tcp" || (rank_of(a) + rank_of(b)) % 2 == 0;
  }
  Result<std::unique_ptr<Transport>> make(std::string_view name) const override {
    return builtin_transports().make(name);
  }

 private:
  static constexpr std::array<const char*, 2> kNames = {"shm", "tcp"};
  int rank_of(const HostIdentity& identity) const {
    const auto at = std::find(board_.pid_of.begin(), board_.pid_of.end(), identity.pid);
    return static_cast<int>(at - board_.pid_of.begin());
  }
  Board& board_;
};

// Hands out a transport whose connections to some peers fail.
class Refusing final : public Transport {
 public:
  Refusing(std::unique_ptr<Transport> real, std::uint32_t refused)
      : real_(std::move(real)), refused_(refused) {}

  const char* name() const override { return real_->name(); }
  TransportCaps caps() const override { return real_->caps(); }
  Result<std::string> open(const TransportContext& context) override { return real_->open(context); }
  Status connect(std::uint32_t peer, std::string_view blob, net::Deadline deadline,
                 protocol::PeerLink* link) override {
    if (peer == refused_) return make_error(Code::kSystemError, "rank {} refused by the test", peer);
    return real_->connect(peer, blob, deadline, link);
  }
  Status stop_serving(net::Deadline deadline) override { return real_->stop_serving(deadline); }
  Fd process_handle(std::uint32_t peer) override { return real_->process_handle(peer); }
  Status post(std::span<const Put> puts) override { return real_->post(puts); }
  Status progress() override { return real_->progress(); }
  bool drained() const override { return real_->drained(); }

 private:
  const std::unique_ptr<Transport> real_;
  const std::uint32_t refused_;
};

// loopback and tcp; one rank cannot reach one other by loopback.
class OneWayClosed final : public TransportCatalog {
 public:
  explicit OneWayClosed(std::uint32_t refused) : refused_(refused) {}

  std::span<const char* const> names() const override { return kNames; }
  bool reachable(std::string_view, const HostIdentity&, const HostIdentity&) const override { return true; }
  Result<std::unique_ptr<Transport>> make(std::string_view name) const override {
    RCN_ASSIGN(std::unique_ptr<Transport> real, builtin_transports().make(name));
    if (name != "loopback") return real;
    return std::unique_ptr<Transport>(std::make_unique<Refusing>(std::move(real), refused_));
  }

 private:
  static constexpr std::array<const char*, 2> kNames = {"loopback", "tcp"};
  const std::uint32_t refused_;
};

// "" if the ranks are connected by both transports.
std::string check_mix(const Communicator& comm) {
  bool carries = false, maps = false;
  for (std::uint32_t peer = 0; peer < comm.ranks(); ++peer) {
    carries = carries || std::string(comm.transport_name(peer)) == "tcp";
    maps = maps || std::string(comm.transport_name(peer)) == "shm";
  }
  return !carries || (!maps && comm.ranks() > 3) ? "the ranks are not connected by both" : "";
}

// Sums at sizes that ride in the line, in a slot and in rounds; "" if all is right.
std::string check_sums(Communicator& comm) {
  std::uint32_t call = 0;
  for (const std::size_t count : {1u, 28u, 29u, 5000u, 40000u, 3u, 28u, 100000u}) {
    ++call;
    std::vector<std::uint32_t> data(count);
    for (std::size_t i = 0; i < count; ++i)
      data[i] = static_cast<std::uint32_t>(i) * 31 + call * 1000 + comm.rank() * 7;
    const Status status =
        comm.all_reduce(CollectiveCall{data.data(), data.data(), count, reduce::DataType::kUint32, 0});
    if (!status.ok()) return status.text();
    const std::uint32_t n = comm.ranks();
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t want =
          n * (static_cast<std::uint32_t>(i) * 31 + call * 1000) + 7 * n * (n - 1) / 2;
      if (data[i] != want)
        return fmt::format("call {} element {}: {} instead of {}", call, i, data[i], want);
    }
  }
  return "";
}

int run_rank(TwoHosts::Board& board, std::uint32_t rank, std::uint32_t ranks) {
  Result<Config> loaded = Config::load("ROCENANTE_SOCKET_IFNAME==lo;ROCENANTE_SLOT_BYTES=64K");
  if (!loaded.ok()) return 2;
  const Config settings = loaded.take();
  board.pid_of[rank] = ::getpid();
  if (rank == 0) {
    const Result<UniqueId> id = create_unique_id(settings);
    if (!id.ok()) return 2;
    board.id = id.value();
    board.id_is_there = 1;
  }
  while (board.id_is_there == 0) ::usleep(1000);
  const TwoHosts catalog(board);
  const auto comm = Communicator::create(board.id, rank, ranks, settings, catalog);
  std::string text = comm.ok() ? check_mix(*comm.value()) : comm.status().text();
  if (text.empty()) text = check_sums(*comm.value());
  if (!text.empty()) std::fprintf(stderr, "rank %u: %s\n", rank, text.c_str());
  return text.empty() ? 0 : 1;
}

}  // namespace

TEST_CASE("shared memory and tcp work together in one communicator", "[processes]") {
  const std::uint32_t ranks = GENERATE(2u, 3u, 4u, 5u);
  INFO(ranks << " ranks");
  void* const page =
      ::mmap(nullptr, sizeof(TwoHosts::Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  auto& board = *new (page) TwoHosts::Board{};
  std::vector<pid_t> children;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    children.push_back(::fork());
    if (children.back() == 0) ::_exit(run_rank(board, rank, ranks));
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 0);
  }
  ::munmap(page, sizeof(TwoHosts::Board));
}

// Rank 0's connection to rank 1 fails, though nothing told before that it would.
std::vector<std::string> connect_with_one_way_closed(std::uint32_t ranks, const char* setting) {
  const Config settings =
      Config::load(std::string("ROCENANTE_SOCKET_IFNAME==lo;ROCENANTE_TRANSPORT=") + setting).take();
  const UniqueId id = create_unique_id(settings).take();
  const OneWayClosed open(ranks), closed(1);
  std::vector<std::string> texts(ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto comm = Communicator::create(id, rank, ranks, settings, rank == 0 ? closed : open);
      if (!comm.ok()) {
        texts[rank] = comm.status().text();
        return;
      }
      for (std::uint32_t peer = 0; peer < ranks; ++peer)
        texts[rank] += std::string(comm.value()->transport_name(peer)) + " ";
      texts[rank] += check_sums(*comm.value());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return texts;
}

TEST_CASE("a pair that a transport cannot connect takes the next one", "[threads]") {
  const std::vector<std::string> texts = connect_with_one_way_closed(3, "auto");
  CHECK(texts[0] == "self tcp loopback ");
  CHECK(texts[1] == "tcp self loopback ");
  CHECK(texts[2] == "loopback loopback self ");
}

TEST_CASE("a forced transport that cannot connect is an error on every rank", "[threads]") {
  for (const std::string& text : connect_with_one_way_closed(3, "loopback")) {
    CHECK(text.find("rank 1 refused by the test") != std::string::npos);
  }
}

}  // namespace rocenante
