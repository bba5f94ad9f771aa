// SPDX-License-Identifier: Apache-2.0
//
// The source of a target that only precompiles headers.

int main() {}
