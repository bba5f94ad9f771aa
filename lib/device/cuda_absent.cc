// SPDX-License-Identifier: Apache-2.0
//
// In the place of everything else that is called cuda_ here, where the build has no CUDA toolkit.
#include "lib/device/cuda_device.h"

namespace rocenante {

Status cuda_available() {
  return Status(Code::kInvalidUsage,
                "this build has no CUDA: it was configured without a CUDA toolkit (ROCENANTE_CUDA)");
}

Result<std::shared_ptr<Device>> cuda_device(int) {
  return cuda_available();
}

std::string describe_cuda() {
  return cuda_available().text();
}

}  // namespace rocenante
