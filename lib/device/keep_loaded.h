// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rocenante {

// Has the library that this code is in stay loaded until the process ends, whatever dlclose() says: for
// when somebody holds addresses in it who cannot be asked to let go. In a program that contains this code
// there is nothing to do. False if the loader refuses; dlerror() then says why. Any thread; idempotent.
bool keep_loaded() noexcept;

}  // namespace rocenante
