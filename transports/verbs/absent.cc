// SPDX-License-Identifier: Apache-2.0
//
// In place of the transport where libibverbs' headers were not there when the library was built.
#include "transports/verbs/verbs.h"

namespace rocenante {

Status verbs_usable() {
  return make_error(
      Code::kInvalidUsage,
      "verbs: this library was built without RDMA (ROCENANTE_VERBS, and libibverbs-dev at build time)");
}

Result<std::unique_ptr<Transport>> make_verbs_transport(const VerbsApi*) {
  return verbs_usable();
}

}  // namespace rocenante
