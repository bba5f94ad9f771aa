// SPDX-License-Identifier: Apache-2.0
//
// A library that asks to stay loaded, when it is told to.
#include "lib/device/keep_loaded.h"

extern "C" __attribute__((visibility("default"))) bool rocenante_test_keep_loaded() {
  return rocenante::keep_loaded();
}
