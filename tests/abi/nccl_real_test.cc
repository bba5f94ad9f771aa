// SPDX-License-Identifier: Apache-2.0
//
// libnccl.so.2 with this machine's real NCCL behind it, and no side of ours: everything is the real one's.
// Run with ROCENANTE_FALLBACK=require and ROCENANTE_DEVICE=cuda; NCCL_UNDER_TEST names the real library,
// which the test also calls directly.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "nccl_shim/libnccl/abi.h"
#include "tests/abi/nccl_api.h"
#include "tests/support/catch.h"

namespace {

template <class Function>
Function* real(const char* name) {
  static void* const handle = ::dlopen(std::getenv("NCCL_UNDER_TEST"), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(handle != nullptr);
  void* const found = ::dlsym(handle, name);
  REQUIRE(found != nullptr);
  return reinterpret_cast<Function*>(found);
}

int real_version() {
  int version = 0;
  REQUIRE(real<rcnResult_t(int*)>("ncclGetVersion")(&version) == rcnSuccess);
  return version;
}

}  // namespace

TEST_CASE("version, texts and sizes are the real library's") {
  int version = 0;
  REQUIRE(ncclGetVersion(&version) == rcnSuccess);
  CHECK(version == real_version());
  for (int code = 0; code < 8; ++code) {
    CHECK(std::string(ncclGetErrorString(static_cast<rcnResult_t>(code))) ==
          real<const char*(int)>("ncclGetErrorString")(code));
  }
  CHECK(std::string(ncclGetErrorString(rcnUnhandledCudaError)) != "unhandled CUDA error");
  CHECK(ncclLLA2ACalcSlots(1000, 8) == real<int(int, int)>("ncclLLA2ACalcSlots")(1000, 8));
  CHECK(ncclLLA2ACalcSlots(1000, 8) > 0);
}

TEST_CASE("ids and errors come back unchanged") {
  rcnUniqueId id;
  std::memset(&id, 0xff, sizeof id);
  REQUIRE(ncclGetUniqueId(&id) == rcnSuccess);
  CHECK(std::any_of(id.internal, id.internal + 40, [](char byte) { return byte != 0; }));
  CHECK(std::all_of(id.internal + 40, id.internal + 128, [](char byte) { return byte == 0; }));

  void* comm = nullptr;
  void* direct = nullptr;
  const rcnResult_t result = ncclCommInitRank(&comm, 1, id, 0);
  const std::string text = ncclGetLastError(nullptr);
  CHECK(text == real<const char*(void*)>("ncclGetLastError")(nullptr));
  rcnUniqueId second;
  REQUIRE(real<rcnResult_t(rcnUniqueId*)>("ncclGetUniqueId")(&second) == rcnSuccess);
  CHECK(result ==
        real<rcnResult_t(void**, int, rcnUniqueId, int)>("ncclCommInitRank")(&direct, 1, second, 0));
  if (result == rcnSuccess) {
    CHECK(ncclCommDestroy(comm) == rcnSuccess);
    CHECK(ncclCommDestroy(direct) == rcnSuccess);
  }
  // Makes its id by a call of a public function, which the loader leads to us.
  CHECK(ncclCommInitAll(&comm, 1, nullptr) == result);
}

TEST_CASE("a later error of ours is the last error, and then a later one of the real library's") {
  CHECK(ncclGetUniqueId(nullptr) == rcnInvalidArgument);
  CHECK(std::string(ncclGetLastError(nullptr)).find("uniqueId is NULL") != std::string::npos);
  CHECK(ncclGroupStart() == rcnSuccess);
  CHECK(ncclGroupEnd() == rcnSuccess);
  CHECK(ncclAllReduce(nullptr, nullptr, 1, rcnFloat32, rcnSum, nullptr, nullptr) == rcnInvalidArgument);
  CHECK(std::string(ncclGetLastError(nullptr)) == real<const char*(void*)>("ncclGetLastError")(nullptr));
}

TEST_CASE("what the real library lacks says so") {
  if (real_version() >= 22907) {
    WARN("skipped in part: this NCCL has ncclCommSuspend");
  } else {
    CHECK(ncclCommSuspend(nullptr, 0) == rcnInvalidUsage);
    CHECK(std::string(ncclGetLastError(nullptr)).find("lacks it (since 2.29.7)") != std::string::npos);
  }
  if (real_version() < 23203) CHECK(ncclSetEncryption(nullptr) == rcnInvalidUsage);
}
