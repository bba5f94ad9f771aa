// SPDX-License-Identifier: Apache-2.0
//
// All-reduce on streams, captures and graphs of the simulated device.
#include "tests/stream/stream_world.h"
#include "tests/support/catch.h"

namespace {

using namespace rocenante::test;

}  // namespace

TEST_CASE("All-reduces on a stream give the right sums, whatever their size and place") {
  const int ranks = GENERATE(1, 2, 3, 4);
  const std::vector<std::size_t> counts = {1, 2, 5, 28, 29, 100, 1025, 5000};
  const std::string error = run_streams({ranks, 1, {}, "ROCENANTE_SLOT_BYTES=4096"}, [&](StreamRank& self) {
    SimDevice& device = self.device();
    void* const stream = device.make_stream();
    const Numbers in(device, 6000), out(device, 6000);
    std::uint64_t operation = 0;
    for (const std::size_t count : counts) {
      for (const bool in_place : {false, true}) {
        ++operation;
        std::uint32_t* const to = in_place ? in.data() + 1 : out.data() + 1;
        fill(in.data() + 1, count, operation, self.rank());
        STREAM_CALL(rcnAllReduce(in.data() + 1, to, count, rcnUint32, rcnSum, self.comm(), stream));
        STREAM_TRY(failure(device.synchronise(stream)));
        STREAM_TRY(judge(to, count, operation, self.ranks()));
      }
    }
    return std::string();
  });
  REQUIRE(error == "");
}
