// SPDX-License-Identifier: Apache-2.0
#include "lib/base/status.h"

#include <rocenante/rocenante.h>

#include <cerrno>
#include <memory>
#include <string>
#include <type_traits>

#include "lib/base/handle.h"
#include "tests/support/catch.h"

using namespace rocenante;

namespace {

Status fails_if(bool fail) {
  return fail ? make_error(Code::kTimeout, "peer {} after {} s", 3, 0.5) : Status();
}

Result<std::unique_ptr<int>> number(bool fail) {
  RCN_TRY(fails_if(fail));
  return std::make_unique<int>(41);
}

Result<int> next_number(bool fail) {
  RCN_ASSIGN(const std::unique_ptr<int> value, number(fail));
  return *value + 1;
}

// Counts releases; a handle of value n stands for nothing.
struct CountingTraits {
  using Value = int;
  static Value empty() { return 0; }
  static void release(Value value) { released += value; }
  static inline int released = 0;
};
using Counting = Owned<CountingTraits>;

}  // namespace

TEST_CASE("a code has the number of the public result and a name of its own") {
  CHECK(static_cast<int>(Code::kSuccess) == rcnSuccess);
  CHECK(static_cast<int>(Code::kUnhandledCudaError) == rcnUnhandledCudaError);
  CHECK(static_cast<int>(Code::kSystemError) == rcnSystemError);
  CHECK(static_cast<int>(Code::kInternalError) == rcnInternalError);
  CHECK(static_cast<int>(Code::kInvalidArgument) == rcnInvalidArgument);
  CHECK(static_cast<int>(Code::kInvalidUsage) == rcnInvalidUsage);
  CHECK(static_cast<int>(Code::kRemoteError) == rcnRemoteError);
  CHECK(static_cast<int>(Code::kInProgress) == rcnInProgress);
  CHECK(static_cast<int>(Code::kTimeout) == rcnTimeout);
  for (int a = 0; a < rcnNumResults; ++a) {
    CHECK(code_name(static_cast<Code>(a)) != code_name(static_cast<Code>(a + 1)));
  }
  CHECK(code_name(static_cast<Code>(rcnNumResults)) == "unknown code");
}

TEST_CASE("a default status is success without a text") {
  const Status status;
  CHECK(status.ok());
  CHECK(status.code() == Code::kSuccess);
  CHECK(status.text().empty());
}

TEST_CASE("an error keeps its code and its formatted text") {
  const Status status = fails_if(true);
  CHECK_FALSE(status.ok());
  CHECK(status.code() == Code::kTimeout);
  CHECK(status.text() == "peer 3 after 0.5 s");
}

TEST_CASE("a system error says what failed, why, and the number") {
  errno = ENOENT;
  const Status status = errno_error("open {}", "/nowhere");
  CHECK(status.code() == Code::kSystemError);
  CHECK(status.text() == "open /nowhere: No such file or directory (errno 2)");
}

TEST_CASE("errors pass through RCN_TRY and RCN_ASSIGN unchanged, values by move") {
  const Result<int> good = next_number(false);
  REQUIRE(good.ok());
  CHECK(good.value() == 42);
  const Result<int> bad = next_number(true);
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.status().code() == Code::kTimeout);
  CHECK(bad.status().text() == "peer 3 after 0.5 s");
}

TEST_CASE("a handle is released once, by its last owner") {
  CountingTraits::released = 0;
  {
    Counting first(1);
    Counting second(std::move(first));
    CHECK_FALSE(static_cast<bool>(first));
    CHECK(second.get() == 1);
    Counting third(10);
    third = std::move(second);
    CHECK(CountingTraits::released == 10);
    Counting& self = third;
    third = std::move(self);
    CHECK(third.get() == 1);
  }
  CHECK(CountingTraits::released == 11);
}

TEST_CASE("a handle that was taken or reset is empty") {
  CountingTraits::released = 0;
  Counting handle(5);
  CHECK(handle.take() == 5);
  CHECK_FALSE(static_cast<bool>(handle));
  handle.reset();
  CHECK(CountingTraits::released == 0);
  handle = Counting(7);
  handle.reset();
  handle.reset();
  CHECK(CountingTraits::released == 7);
  static_assert(!std::is_copy_constructible_v<Counting>);
}
