/* SPDX-License-Identifier: Apache-2.0
 *
 * All-reduce of floats by the MPI it is compiled with, timed as `rocenante perf --fresh` times ours: each
 * call on each rank, no barrier between calls, every element of the send buffer rewritten before each call
 * outside the timed span; the slowest rank's median is reported.
 *
 *   mpi_allreduce ITERATIONS WARMUP BYTES...
 *
 * Prints one line per size: BYTES P50_US WRONG. ITERATIONS is for the smallest sizes; large ones get fewer.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void fill(float* data, size_t count, int rank, long call) {
  for (size_t i = 0; i < count; ++i) data[i] = (float)((i + (size_t)call) % 1000 + (size_t)rank);
}

/* Sums of small integers are exact in any order. */
static long count_wrong(const float* data, size_t count, int ranks, long call) {
  long wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    const float want = (float)((i + (size_t)call) % 1000) * (float)ranks + (float)(ranks * (ranks - 1) / 2);
    wrong += data[i] != want;
  }
  return wrong;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 4) {
    if (rank == 0) fprintf(stderr, "usage: %s ITERATIONS WARMUP BYTES...\n", argv[0]);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const long most = atol(argv[1]), warmup = atol(argv[2]);
  double* const samples = malloc((size_t)most * sizeof *samples);
  for (int arg = 3; arg < argc; ++arg) {
    const size_t bytes = strtoul(argv[arg], NULL, 10), count = bytes / sizeof(float);
    float* const send = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    float* const receive = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    long iterations = most;
    while (iterations > 10 && (double)iterations * (double)bytes > 2e9) iterations /= 2;
    for (long call = -warmup; call < iterations; ++call) {
      fill(send, count, rank, call + warmup);
      const double begin = now_us();
      MPI_Allreduce(send, receive, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      const double end = now_us();
      if (call >= 0) samples[call] = end - begin;
    }
    long wrong = count_wrong(receive, count, ranks, iterations + warmup - 1), all_wrong = 0;
    qsort(samples, (size_t)iterations, sizeof *samples, by_value);
    double p50 = samples[iterations / 2], slowest = 0;
    MPI_Reduce(&p50, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%zu %.4f %ld\n", bytes, slowest, all_wrong);
    free(send);
    free(receive);
  }
  free(samples);
  MPI_Finalize();
  return 0;
}
