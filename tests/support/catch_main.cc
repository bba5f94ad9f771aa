// SPDX-License-Identifier: Apache-2.0
//
// The main function of every test program where Catch2 is version 2, compiled once. Version 3 brings its
// own.
#define CATCH_CONFIG_MAIN
#include "tests/support/catch.h"
