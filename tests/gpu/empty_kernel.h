// SPDX-License-Identifier: Apache-2.0
//
// The least that a launch can cost.
#pragma once

namespace rocenante::test {

bool launch_empty(void* stream);

}  // namespace rocenante::test
