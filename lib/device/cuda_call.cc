// SPDX-License-Identifier: Apache-2.0
#include "lib/device/cuda_call.h"

namespace rocenante {

Status cuda_error(cudaError_t error, std::string_view what) {
  (void)cudaGetLastError();  // reported here; not once more by whoever asks next
  return make_error(Code::kUnhandledCudaError, "{}: {}: {}", what, cudaGetErrorName(error),
                    cudaGetErrorString(error));
}

DeviceScope::DeviceScope(int ordinal) : ordinal_(ordinal) {
  error_ = cudaGetDevice(&before_);
  if (error_ == cudaSuccess && before_ != ordinal) error_ = cudaSetDevice(ordinal);
}

DeviceScope::~DeviceScope() {
  if (before_ >= 0 && before_ != ordinal_) (void)cudaSetDevice(before_);
}

}  // namespace rocenante
