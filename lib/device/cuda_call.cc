// SPDX-License-Identifier: Apache-2.0
#include "lib/device/cuda_call.h"

#include "lib/device/cuda_driver.h"

namespace rocenante {

Status cuda_error(cudaError_t error, std::string_view what) {
  (void)cudaGetLastError();  // reported here; not once more by whoever asks next
  return make_error(Code::kUnhandledCudaError, "{}: {}: {}", what, cudaGetErrorName(error),
                    cudaGetErrorString(error));
}

DeviceScope::DeviceScope(int ordinal) : wanted_(primary_context(ordinal)) {
  if (wanted_.ok()) scope_.emplace(context_stack(), wanted_.value());
}

Status DeviceScope::status() const {
  if (!wanted_.ok()) return wanted_.status();
  return driver_status(scope_->error(), "making a CUDA device current");
}

}  // namespace rocenante
