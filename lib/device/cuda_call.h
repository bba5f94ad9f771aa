// SPDX-License-Identifier: Apache-2.0
//
// Calls of the CUDA runtime: their errors as Status, and the state of the calling thread around them.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>
#include <utility>

#include "lib/base/status.h"
#include "lib/device/context_scope.h"

namespace rocenante {

// "TEXT: cudaErrorName: what it means".
Status cuda_error(cudaError_t error, std::string_view what);

template <class... Args>
Status cuda_status(cudaError_t error, fmt::format_string<Args...> format, Args&&... args) {
  if (error == cudaSuccess) return {};
  return cuda_error(error, fmt::format(format, std::forward<Args>(args)...));
}

// The forms with data of edges, which have the plain names since CUDA 13.
#if CUDART_VERSION >= 13000
inline constexpr auto* kStreamGetCaptureInfo = &cudaStreamGetCaptureInfo;
inline constexpr auto* kStreamUpdateCaptureDependencies = &cudaStreamUpdateCaptureDependencies;
inline constexpr auto* kGraphAddDependencies = &cudaGraphAddDependencies;
#else
inline constexpr auto* kStreamGetCaptureInfo = &cudaStreamGetCaptureInfo_v3;
inline constexpr auto* kStreamUpdateCaptureDependencies = &cudaStreamUpdateCaptureDependencies_v2;
inline constexpr auto* kGraphAddDependencies = &cudaGraphAddDependencies_v2;
#endif

// Makes a device the calling thread's current one; puts back what was, be it none.
class DeviceScope {
 public:
  explicit DeviceScope(int ordinal);
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  Status status() const;

 private:
  const Result<DeviceContext> wanted_;
  std::optional<ContextScope> scope_;
};

// Allows calls that a capture of this thread would otherwise forbid or be invalidated by: those of set-up,
// which have nothing to do with the graph.
class RelaxedCapture {
 public:
  RelaxedCapture() { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Both, as every call of set-up and release needs them.
class SetUpScope {
 public:
  explicit SetUpScope(int ordinal) : device_(ordinal) {}
  Status status() const { return device_.status(); }

 private:
  DeviceScope device_;
  RelaxedCapture capture_;
};

}  // namespace rocenante
