/* SPDX-License-Identifier: Apache-2.0
 *
 * A driver of long ago, as far as anybody gets who asks for its version first. */
int cuInit(unsigned flags) {
  return flags == 0 ? 0 : 1;
}

int cuDriverGetVersion(int* version) {
  *version = 12040;
  return 0;
}
