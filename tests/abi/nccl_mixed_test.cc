// SPDX-License-Identifier: Apache-2.0
//
// libnccl.so.2 beside a real library, which is the recording one: every collective, on either side of its
// limit. As nccl_beside_test.
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/abi/nccl_world.h"
#include "tests/support/catch.h"

using namespace rocenante::test;  // NOLINT(google-build-using-namespace)

namespace {

// The largest of ours has so many bytes, whatever the collective.
constexpr std::size_t kLimit = 2400;
constexpr const char* kLimits[] = {"ROCENANTE_ALL_REDUCE_MAX_BYTES",     "ROCENANTE_ALL_GATHER_MAX_BYTES",
                                   "ROCENANTE_REDUCE_SCATTER_MAX_BYTES", "ROCENANTE_BROADCAST_MAX_BYTES",
                                   "ROCENANTE_REDUCE_MAX_BYTES",         "ROCENANTE_ALL_TO_ALL_MAX_BYTES"};

class Limits {
 public:
  Limits() {
    for (const char* name : kLimits) ::setenv(name, std::to_string(kLimit).c_str(), 1);
  }
  ~Limits() {
    for (const char* name : kLimits) ::unsetenv(name);
  }
  Limits(const Limits&) = delete;
  Limits& operator=(const Limits&) = delete;
};

// What `rank` gives at element i of block `block`.
float given(int rank, int block, std::size_t i) {
  return static_cast<float>(100 * rank + 10 * block + static_cast<int>(i % 7));
}

// One call of each collective, whose blocks have `count` elements; all are issued before any is looked at.
class Calls {
 public:
  Calls(Rank& self, std::size_t count)
      : self_(self), count_(count), blocks_(static_cast<std::size_t>(self.ranks)), in_(count * blocks_) {
    for (std::size_t i = 0; i < in_.size(); ++i)
      in_[i] = given(self.rank, static_cast<int>(i / count), i % count);
    for (std::vector<float>& out : outs_) out.assign(count * blocks_, -1);
    std::copy_n(in_.begin(), count, outs_[6].begin());
  }

  std::string issue() {
    const float* const in = in_.data();
    RCN_CALL(ncclAllReduce(in, outs_[0].data(), count_, rcnFloat32, rcnSum, self_.comm, nullptr));
    RCN_CALL(ncclAllGather(in, outs_[1].data(), count_, rcnFloat32, self_.comm, nullptr));
    RCN_CALL(ncclReduceScatter(in, outs_[2].data(), count_, rcnFloat32, rcnSum, self_.comm, nullptr));
    RCN_CALL(ncclBroadcast(in, outs_[3].data(), count_, rcnFloat32, self_.ranks - 1, self_.comm, nullptr));
    RCN_CALL(ncclReduce(in, outs_[4].data(), count_, rcnFloat32, rcnSum, 0, self_.comm, nullptr));
    RCN_CALL(ncclAlltoAll(in, outs_[5].data(), count_, rcnFloat32, self_.comm, nullptr));
    RCN_CALL(ncclBcast(outs_[6].data(), count_, rcnFloat32, 0, self_.comm, nullptr));
    return "";
  }

  std::string wrong() const {
    for (std::size_t i = 0; i < count_; ++i) {
      float sum = 0;
      float part = 0;
      for (int rank = 0; rank < self_.ranks; ++rank) {
        sum += given(rank, 0, i);
        part += given(rank, self_.rank, i);
        const std::size_t at = static_cast<std::size_t>(rank) * count_ + i;
        if (outs_[1][at] != given(rank, 0, i)) return fault("all-gather", at, outs_[1][at]);
        if (outs_[5][at] != given(rank, self_.rank, i)) return fault("all-to-all", at, outs_[5][at]);
      }
      if (outs_[0][i] != sum) return fault("all-reduce", i, outs_[0][i]);
      if (outs_[2][i] != part) return fault("reduce-scatter", i, outs_[2][i]);
      if (outs_[3][i] != given(self_.ranks - 1, 0, i)) return fault("broadcast", i, outs_[3][i]);
      if (outs_[4][i] != (self_.rank == 0 ? sum : -1)) return fault("reduce", i, outs_[4][i]);
      if (outs_[6][i] != given(0, 0, i)) return fault("bcast", i, outs_[6][i]);
    }
    return "";
  }

 private:
  static std::string fault(const char* what, std::size_t at, float value) {
    return std::string(what) + ": element " + std::to_string(at) + " is " + std::to_string(value);
  }

  const Rank& self_;
  std::size_t count_;
  std::size_t blocks_;
  std::vector<float> in_;
  std::vector<float> outs_[7];
};

// How many calls of each kind arrived: those that count one block, and those that count one for each rank.
std::pair<std::uint32_t, std::uint32_t> arrived() {
  const std::uint32_t plain =
      recorder().count(kAllReduce) + recorder().count(kReduce) + recorder().count(kBcast);
  const std::uint32_t blocks =
      recorder().count(kAllGather) + recorder().count(kReduceScatter) + recorder().count(kAlltoAll);
  return {plain, blocks};
}

}  // namespace

TEST_CASE("each collective is ours up to its limit, and right on either side") {
  const Limits limits;
  for (const int ranks : {1, 2, 3}) {
    const std::size_t most = kLimit / 4;
    const auto in_block = static_cast<std::uint32_t>(ranks);
    struct {
      std::size_t count;
      std::uint32_t plain;   // calls of each that are the real library's
      std::uint32_t blocks;  // likewise
    } cases[] = {{most / in_block, 0, 0},
                 {most / in_block + 1, ranks == 1 ? 1U : 0U, 1},
                 {most, 0, ranks == 1 ? 0U : 1U},
                 {most + 1, 1, 1}};
    for (const auto& one : cases) {
      INFO(ranks << " ranks, " << one.count << " elements");
      recorder().clear();
      const std::string text = run(ranks, [&](Rank& self) -> std::string {
        Calls calls(self, one.count);
        if (std::string failed = calls.issue(); !failed.empty()) return failed;
        return calls.wrong();
      });
      CHECK(text == "");
      const auto expected = std::pair(3 * one.plain * in_block, 3 * one.blocks * in_block);
      CHECK(arrived() == expected);
      // The recorder's bcast is made of a broadcast, which goes straight back to it.
      CHECK(recorder().count(kBroadcast) == 2 * one.plain * in_block);
    }
  }
}

TEST_CASE("collectives of both sides in one group are right") {
  const Limits limits;
  for (const bool one_thread : {false, true}) {
    recorder().clear();
    const auto body = [](std::vector<Rank> ranks) -> std::string {
      std::vector<Calls> calls;
      for (Rank& self : ranks) {
        for (const std::size_t count : {std::size_t{10}, std::size_t{5000}, std::size_t{200}})
          calls.emplace_back(self, count);
      }
      RCN_CALL(ncclGroupStart());
      for (Calls& each : calls) {
        if (std::string failed = each.issue(); !failed.empty()) return failed;
      }
      RCN_CALL(ncclGroupEnd());
      for (const Calls& each : calls) {
        if (std::string wrong = each.wrong(); !wrong.empty()) return wrong;
      }
      return "";
    };
    if (one_thread) {
      void* comms[3] = {};
      REQUIRE(ncclCommInitAll(comms, 3, nullptr) == rcnSuccess);
      CHECK(body({{0, 3, comms[0]}, {1, 3, comms[1]}, {2, 3, comms[2]}}) == "");
      for (void* comm : comms) CHECK(ncclCommDestroy(comm) == rcnSuccess);
    } else {
      CHECK(run(3, [&](Rank& self) { return body({self}); }) == "");
    }
    // Of those of 5000 all, of those of 200 and 10 none.
    CHECK(arrived() == std::pair(9U, 9U));
  }
}

TEST_CASE("an operator of the real library's is its affair in every collective that reduces") {
  recorder().clear();
  const std::string text = run(2, [](Rank& self) -> std::string {
    float value[2] = {1, 2};
    float out[2] = {};
    const auto op = static_cast<rcnRedOp_t>(5);
    RCN_CALL(ncclReduceScatter(value, out, 1, rcnFloat32, op, self.comm, nullptr));
    RCN_CALL(ncclReduce(value, out, 1, rcnFloat32, op, 0, self.comm, nullptr));
    return "";
  });
  CHECK(text == "");
  CHECK(recorder().count(kReduceScatter) == 2);
  CHECK(recorder().count(kReduce) == 2);
}
