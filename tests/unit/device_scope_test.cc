// SPDX-License-Identifier: Apache-2.0
//
// What a CUDA device does to the thread and the process that it is used by, without CUDA.
#include <dlfcn.h>

#include <string>
#include <vector>

#include "lib/device/context_scope.h"
#include "lib/device/keep_loaded.h"
#include "tests/support/catch.h"

namespace {

using rocenante::ContextScope;
using rocenante::ContextStack;
using rocenante::DeviceContext;

struct Context {
  int device;
};

// A thread's stack as the driver has it, and what was asked of it.
class RecordedStack final : public ContextStack {
 public:
  int current(void** context) override {
    calls.emplace_back("current");
    *context = contexts.empty() ? nullptr : contexts.back();
    return error_of_current;
  }
  int device(int* device) override {
    calls.emplace_back("device");
    if (contexts.empty()) return 201;  // CUDA_ERROR_INVALID_CONTEXT
    *device = static_cast<Context*>(contexts.back())->device;
    return 0;
  }
  int push(void* context) override {
    calls.emplace_back("push");
    if (error_of_push == 0) contexts.push_back(context);
    return error_of_push;
  }
  int pop() override {
    calls.emplace_back("pop");
    if (contexts.empty()) return 201;
    contexts.pop_back();
    return 0;
  }

  std::vector<void*> contexts;
  std::vector<std::string> calls;
  int error_of_current = 0;
  int error_of_push = 0;
};

using Calls = std::vector<std::string>;
using Contexts = std::vector<void*>;

}  // namespace

TEST_CASE("A thread that had no context has none afterwards") {
  RecordedStack stack;
  Context primary{1};
  {
    const ContextScope scope(stack, {&primary, 1});
    REQUIRE(scope.error() == 0);
    REQUIRE(stack.contexts == Contexts{&primary});
  }
  REQUIRE(stack.contexts.empty());
  // Nothing else, which might make a context on a device that nobody uses.
  REQUIRE(stack.calls == Calls{"current", "push", "pop"});
}

TEST_CASE("A thread on another device is there again afterwards, and scopes nest") {
  RecordedStack stack;
  Context other{0}, primary{1};
  stack.contexts = {&other};
  {
    const ContextScope scope(stack, {&primary, 1});
    REQUIRE(stack.contexts == Contexts{&other, &primary});
    {
      const ContextScope inner(stack, {&other, 0});
      REQUIRE(stack.contexts == Contexts{&other, &primary, &other});
      const ContextScope same(stack, {&other, 0});
      REQUIRE(stack.contexts.size() == 3);
    }
    REQUIRE(stack.contexts == Contexts{&other, &primary});
  }
  REQUIRE(stack.contexts == Contexts{&other});
}

TEST_CASE("A thread on the device stays in its context, be it the primary one or a user's own") {
  RecordedStack stack;
  Context users{1}, primary{1};
  stack.contexts = {GENERATE(0, 1) == 0 ? &primary : &users};
  const Contexts before = stack.contexts;
  {
    const ContextScope scope(stack, {&primary, 1});
    REQUIRE(scope.error() == 0);
    REQUIRE(stack.contexts == before);
  }
  REQUIRE(stack.contexts == before);
}

TEST_CASE("A scope that cannot be entered says so and leaves nothing") {
  RecordedStack stack;
  Context other{0}, primary{1};
  stack.contexts = {&other};
  (GENERATE(0, 1) == 0 ? stack.error_of_push : stack.error_of_current) = 709;
  {
    const ContextScope scope(stack, {&primary, 1});
    REQUIRE(scope.error() == 709);
  }
  REQUIRE(stack.contexts == Contexts{&other});
}

namespace {

bool is_loaded() {
  void* const library = ::dlopen(ROCENANTE_KEPT_LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
  if (library != nullptr) ::dlclose(library);
  return library != nullptr;
}

// Loads it, calls its function if it is to, and closes it.
void load_and_close(bool keep) {
  void* const library = ::dlopen(ROCENANTE_KEPT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  auto* const keep_loaded = reinterpret_cast<bool (*)()>(::dlsym(library, "rocenante_test_keep_loaded"));
  REQUIRE(keep_loaded != nullptr);
  if (keep) REQUIRE(keep_loaded());
  REQUIRE(::dlclose(library) == 0);
}

}  // namespace

TEST_CASE("A library that graphs call back into stays loaded when it is closed") {
  load_and_close(false);
  REQUIRE(!is_loaded());
  load_and_close(true);
  REQUIRE(is_loaded());
  load_and_close(true);
  REQUIRE(is_loaded());
}

TEST_CASE("A program that contains the code has nothing to do") {
  REQUIRE(rocenante::keep_loaded());
}
