/* SPDX-License-Identifier: Apache-2.0
 *
 * Two ranks of one process add up two numbers, with what an installed header and library offer. */
#include <stdio.h>

#include <rocenante/rocenante.h>

static int failed(rcnResult_t result) {
  if (result == rcnSuccess) return 0;
  fprintf(stderr, "%s: %s\n", rcnGetErrorString(result), rcnGetLastError(NULL));
  return 1;
}

int main(void) {
  rcnUniqueId id;
  rcnComm_t comm[2];
  if (failed(rcnGetUniqueId(&id)) || failed(rcnGroupStart())) return 1;
  for (int rank = 0; rank < 2; ++rank) {
    if (failed(rcnCommInitRank(&comm[rank], 2, id, rank))) return 1;
  }
  if (failed(rcnGroupEnd()) || failed(rcnGroupStart())) return 1;
  int values[2] = {20, 22};
  for (int rank = 0; rank < 2; ++rank) {
    if (failed(rcnAllReduce(&values[rank], &values[rank], 1, rcnInt32, rcnSum, comm[rank], NULL))) return 1;
  }
  if (failed(rcnGroupEnd())) return 1;
  for (int rank = 0; rank < 2; ++rank) {
    if (failed(rcnCommDestroy(comm[rank]))) return 1;
  }
  printf("sums %d %d\n", values[0], values[1]);
  return values[0] == 42 && values[1] == 42 ? 0 : 1;
}
