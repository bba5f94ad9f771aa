// SPDX-License-Identifier: Apache-2.0
//
// A library with every fault that check_binary.py looks for, apart from those of old and new glibc.
#include <iostream>

extern "C" __attribute__((visibility("default"))) int rcnGetVersion(int* version) {
  std::cout << "hello";
  *version = 0;
  return 0;
}

__attribute__((visibility("default"))) int not_declared = 1;
