// SPDX-License-Identifier: Apache-2.0
//
// A device made current for a while. By the driver's stack of contexts and not by cudaSetDevice: to put
// back what was, that would create a context on a device that the process has never used, where the thread
// had none. Knows no CUDA, so that it is tested without: contexts are opaque, results are 0 or the driver's
// error.
#pragma once

namespace rocenante {

// The calling thread's contexts.
class ContextStack {
 public:
  virtual ~ContextStack() = default;
  virtual int current(void** context) = 0;  // null if there is none
  virtual int device(int* device) = 0;      // of the current one
  virtual int push(void* context) = 0;
  virtual int pop() = 0;
};

// A device's primary context, which the runtime uses.
struct DeviceContext {
  void* context = nullptr;
  int device = 0;
};

// While it lives the calling thread's current context is one of `wanted.device`: what it was if that is
// one, else the primary. Then the stack is as it was, without a context if there was none.
class ContextScope {
 public:
  ContextScope(ContextStack& stack, const DeviceContext& wanted) : stack_(stack) { error_ = enter(wanted); }
  ~ContextScope() {
    if (is_pushed_) (void)stack_.pop();
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  int error() const { return error_; }

 private:
  int enter(const DeviceContext& wanted) {
    void* before = nullptr;
    if (const int error = stack_.current(&before); error != 0) return error;
    if (before == wanted.context) return 0;
    int device = 0;
    if (before != nullptr && stack_.device(&device) == 0 && device == wanted.device) return 0;
    const int error = stack_.push(wanted.context);
    is_pushed_ = error == 0;
    return error;
  }

  ContextStack& stack_;
  bool is_pushed_ = false;
  int error_ = 0;
};

}  // namespace rocenante
