// SPDX-License-Identifier: Apache-2.0
//
// A launch that waits for a peer ends: by an abort of either side, or at its deadline.
#include <string>
#include <thread>

#include "tests/gpu/ranks.h"
#include "tests/support/catch.h"

namespace {

using rocenante::test::await_async_error;
using rocenante::test::gpu;
using rocenante::test::run_on_gpu;
using rocenante::test::Seat;
using rocenante::test::succeed;

constexpr std::size_t kCount = 1000;

struct Work {
  explicit Work(Seat& seat) : stream(seat.stream()), memory(seat.buffer(kCount * 4)) {}
  void call(Seat& seat) {
    seat.all_reduce(memory, memory, kCount, rcnFloat32, rcnSum, seat.rank.comm(), stream);
  }
  void* const stream;
  std::uint8_t* const memory;
};

std::string expect_error(rcnComm_t comm, rcnResult_t wanted, const std::string& part) {
  const rcnResult_t error = await_async_error(comm);
  const std::string text = rcnGetLastError(comm);
  if (error != wanted) return "the error is " + std::to_string(error) + ": " + text;
  return text.find(part) != std::string::npos ? "" : "the text does not hold '" + part + "': " + text;
}

}  // namespace

TEST_CASE("A peer's abort ends a waiting launch and poisons the communicator") {
  REQUIRE(run_on_gpu(2, "", [&](Seat& seat) -> std::string {
            Work work(seat);
            seat.meet();
            work.call(seat);  // a first call that both make
            gpu().synchronise(work.stream);
            if (seat.rank.rank() == 1) {
              seat.meet();  // rank 0 has enqueued its second
              succeed(rcnCommAbort(seat.rank.release()), "rcnCommAbort");
              return "";
            }
            work.call(seat);
            seat.meet();
            gpu().synchronise(work.stream);
            if (std::string error = expect_error(seat.rank.comm(), rcnRemoteError, "rank 1");
                !error.empty())
              return error;
            const rcnResult_t later = rcnAllReduce(work.memory, work.memory, kCount, rcnFloat32, rcnSum,
                                                   seat.rank.comm(), work.stream);
            return later == rcnRemoteError ? "" : "a later call returned " + std::to_string(later);
          }) == "");
}

TEST_CASE("An abort from another thread ends a waiting launch") {
  REQUIRE(run_on_gpu(2, "", [&](Seat& seat) -> std::string {
            Work work(seat);
            seat.meet();
            if (seat.rank.rank() == 1) {
              seat.meet();
              return "";
            }
            work.call(seat);
            std::string text;
            std::thread aborter([&] {
              gpu().attach();
              text = rocenante::test::failure(rcnCommAbort(seat.rank.release()), "rcnCommAbort");
            });
            gpu().synchronise(work.stream);
            aborter.join();
            seat.meet();
            return text;
          }) == "");
}

TEST_CASE("A launch whose peer never comes ends at its deadline and names the peer") {
  const std::string deadlines = "ROCENANTE_TIMEOUT_S=0.3;ROCENANTE_FIRST_OP_TIMEOUT_S=0.3";
  REQUIRE(run_on_gpu(2, deadlines, [&](Seat& seat) -> std::string {
            Work work(seat);
            seat.meet();
            std::string text;
            if (seat.rank.rank() == 0) {
              work.call(seat);
              gpu().synchronise(work.stream);
              text = expect_error(seat.rank.comm(), rcnTimeout, "rank 1");
            }
            seat.meet();
            return text;
          }) == "");
}
