/* SPDX-License-Identifier: Apache-2.0
 *
 * Four processes add up a vector of floats. The parent makes the id and forks; each child joins as one
 * rank, takes part in one all-reduce, and checks what came out.
 *
 *   cc all_reduce.c -lrocenante && ./a.out
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rocenante/rocenante.h>

enum { RANKS = 4, COUNT = 1000 };

/* Ends this process with the library's own account of what went wrong. */
static void check(rcnResult_t result, const char* call) {
  if (result == rcnSuccess) return;
  fprintf(stderr, "%s: %s: %s\n", call, rcnGetErrorString(result), rcnGetLastError(NULL));
  exit(1);
}

static int run_rank(int rank, rcnUniqueId id) {
  rcnComm_t comm;
  check(rcnCommInitRank(&comm, RANKS, id, rank), "rcnCommInitRank");

  float values[COUNT];
  float sums[COUNT];
  for (int i = 0; i < COUNT; ++i) values[i] = (float)(rank + i);
  check(rcnAllReduce(values, sums, COUNT, rcnFloat32, rcnSum, comm, NULL), "rcnAllReduce");

  int wrong = 0;
  for (int i = 0; i < COUNT; ++i) wrong += sums[i] != (float)(RANKS * i + RANKS * (RANKS - 1) / 2);
  printf("rank %d of %d: sums[0] = %g, sums[%d] = %g, %d wrong\n", rank, RANKS, (double)sums[0], COUNT - 1,
         (double)sums[COUNT - 1], wrong);

  check(rcnCommDestroy(comm), "rcnCommDestroy");
  return wrong != 0;
}

int main(void) {
  rcnUniqueId id;
  check(rcnGetUniqueId(&id), "rcnGetUniqueId");
  for (int rank = 0; rank < RANKS; ++rank) {
    const pid_t child = fork();
    if (child < 0) {
      perror("fork");
      return 1;
    }
    if (child == 0) exit(run_rank(rank, id));
  }
  /* The ranks meet at this process: it stays until all of them are done. */
  int failed = 0;
  int status = 0;
  while (wait(&status) > 0) failed |= status != 0;
  return failed;
}
