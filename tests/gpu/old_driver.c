/* SPDX-License-Identifier: Apache-2.0
 *
 * A driver of long ago, as far as anybody gets who asks for its version first; or one that lacks what we
 * need, whatever it says of its version. */
int cuInit(unsigned flags) {
  return flags == 0 ? 0 : 1;
}

int cuDriverGetVersion(int* version) {
  *version = DRIVER_VERSION;
  return 0;
}
