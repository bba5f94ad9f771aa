// SPDX-License-Identifier: Apache-2.0
//
// On CUDA alone: what the library does to the contexts of threads that use it.
#include <dlfcn.h>

#include <memory>
#include <string>
#include <thread>

#include "lib/device/cuda_device.h"
#include "lib/device/registry.h"
#include "tests/support/catch.h"

namespace {

// The calling thread's current context; null if there is none. -1 as an address if the driver does not say.
void* current_context() {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  auto* const get = reinterpret_cast<int (*)(void**)>(::dlsym(driver, "cuCtxGetCurrent"));
  void* context = nullptr;
  return get != nullptr && get(&context) == 0 ? context : reinterpret_cast<void*>(-1);
}

}  // namespace

TEST_CASE("A thread without a context uses the device and is left without one", "[alone]") {
  std::string error;
  void* before = nullptr;
  void* after = nullptr;
  std::thread([&] {
    const auto device = rocenante::cuda_device(rocenante::kCurrentDevice);
    before = current_context();
    error = device.status().text();
    if (!device.ok()) return;
    const auto memory = device.value()->allocate_for_user(4096);
    error = memory.status().text();
    after = current_context();
  }).join();
  REQUIRE(error == "");
  REQUIRE(before == nullptr);
  REQUIRE(after == nullptr);
}
