/* SPDX-License-Identifier: Apache-2.0
 *
 * Somebody's library on NCCL, named as the real one by mistake: what it offers under NCCL's names is what
 * it was bound to. It also asks for the version before the loader has finished with it. */
int ncclGetVersion(int* version);

__attribute__((constructor)) static void ask(void) {
  int version = 0;
  (void)ncclGetVersion(&version);
}
