// SPDX-License-Identifier: Apache-2.0
//
// Custom operators of a communicator.
#include <cstring>

#include "lib/comm/communicator.h"

namespace rocenante {

Result<std::uint32_t> Communicator::create_pre_mul_sum(reduce::DataType type, const void* scalar) {
  CustomOperator made{type, {}, true};
  std::memcpy(made.scalar.data(), scalar, reduce::element_size(type));
  for (std::size_t i = 0; i < operators_.size(); ++i) {
    if (operators_[i].used) continue;
    operators_[i] = made;
    return static_cast<std::uint32_t>(first_operator_ + i);
  }
  if (operators_.size() >= kMostOperators) {
    return make_error(Code::kInvalidUsage, "65536 operators are alive on this communicator: destroy some");
  }
  operators_.push_back(made);
  return static_cast<std::uint32_t>(first_operator_ + operators_.size() - 1);
}

Status Communicator::destroy_operator(std::uint32_t op) {
  if (find_operator(op) == nullptr) {
    return make_error(Code::kInvalidArgument, "op is {}: not a live operator made on this communicator",
                      op);
  }
  operators_[op - first_operator_].used = false;
  return {};
}

}  // namespace rocenante
