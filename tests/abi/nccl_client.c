/* SPDX-License-Identifier: Apache-2.0
 *
 * A program as its author wrote it for NCCL: compiled against a real nccl.h and linked with -lnccl, it
 * knows nothing of this project. Its buffers are host memory.
 *
 *   nccl_client processes N   N ranks, one process each
 *   nccl_client all N         N ranks in one process, by ncclCommInitAll and groups
 *   nccl_client open N        processes, through dlopen("libnccl.so") instead of linking */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nccl.h>

enum { MOST_RANKS = 8, MOST = 300000 };
static const int counts[] = {1, 7, 28, 29, 1000, 65537, MOST};

#ifdef CLIENT_OPENS
static void* library;
/* By way of an integer: ISO C knows no conversion from void* to a function. */
#define CALL(name) ((__typeof__(&name))(size_t)symbol(#name))
static void* symbol(const char* name) {
  void* const found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "%s: %s\n", name, dlerror());
    exit(1);
  }
  return found;
}
#else
#define CALL(name) name
#endif

#define CHECK(call)                                                                                        \
  do {                                                                                                     \
    const ncclResult_t result_ = (call);                                                                   \
    if (result_ != ncclSuccess) {                                                                          \
      fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, CALL(ncclGetErrorString)(result_), \
              CALL(ncclGetLastError)(NULL));                                                               \
      exit(1);                                                                                             \
    }                                                                                                      \
  } while (0)

static void fail(const char* what) {
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static float value(int rank, int i) {
  return (float)((rank + 1) * (i % 1000 + 1));
}

static void expect(const float* sums, int count, int ranks) {
  for (int i = 0; i < count; ++i) {
    float expected = 0;
    for (int rank = 0; rank < ranks; ++rank) expected += value(rank, i);
    if (sums[i] != expected) {
      fprintf(stderr, "element %d of %d is %g, expected %g\n", i, count, (double)sums[i], (double)expected);
      exit(1);
    }
  }
}

static void fill(float* values, int count, int rank) {
  for (int i = 0; i < count; ++i) values[i] = value(rank, i);
}

/* The other collectives, in one group: what one gives the next takes. */
static void use_others(ncclComm_t comm, int rank, int ranks) {
  enum { COUNT = 300 };
  float blocks[MOST_RANKS * COUNT], exchanged[MOST_RANKS * COUNT], gathered[MOST_RANKS * COUNT];
  float own[COUNT], scattered[COUNT], sums[COUNT];
  const int root = ranks - 1;
  for (int to = 0; to < ranks; ++to) {
    for (int i = 0; i < COUNT; ++i) blocks[to * COUNT + i] = value(rank, i) + (float)to;
  }
  fill(own, COUNT, rank);
  CHECK(CALL(ncclGroupStart)());
  CHECK(CALL(ncclAllGather)(own, gathered, COUNT, ncclFloat, comm, NULL));
  CHECK(CALL(ncclReduceScatter)(blocks, scattered, COUNT, ncclFloat, ncclMin, comm, NULL));
  CHECK(CALL(ncclReduce)(own, sums, COUNT, ncclFloat, ncclSum, root, comm, NULL));
  CHECK(CALL(ncclBcast)(sums, COUNT, ncclFloat, root, comm, NULL));
  CHECK(CALL(ncclBroadcast)(own, own, COUNT, ncclFloat, root, comm, NULL));
  CHECK(CALL(ncclAlltoAll)(blocks, exchanged, COUNT, ncclFloat, comm, NULL));
  CHECK(CALL(ncclGroupEnd)());
  expect(sums, COUNT, ranks);
  for (int i = 0; i < COUNT; ++i) {
    for (int from = 0; from < ranks; ++from) {
      if (gathered[from * COUNT + i] != value(from, i)) fail("ncclAllGather");
      if (exchanged[from * COUNT + i] != value(from, i) + (float)rank) fail("ncclAlltoAll");
    }
    if (scattered[i] != value(0, i) + (float)rank) fail("ncclReduceScatter");
    if (own[i] != value(root, i)) fail("ncclBroadcast");
  }
}

static float* allocate(size_t bytes) {
  void* memory = NULL;
  CHECK(CALL(ncclMemAlloc)(&memory, bytes));
  if (memory == NULL || (size_t)memory % 4096 != 0) fail("ncclMemAlloc gave no page");
  return memory;
}

/* What every rank does with its communicator. */
static void use(ncclComm_t comm, int rank, int ranks) {
  int found = -1;
  CHECK(CALL(ncclCommCount)(comm, &found));
  if (found != ranks) fail("ncclCommCount");
  CHECK(CALL(ncclCommUserRank)(comm, &found));
  if (found != rank) fail("ncclCommUserRank");
  CHECK(CALL(ncclCommCuDevice)(comm, &found));
  if (found != -1) fail("ncclCommCuDevice of host memory");

  float* const values = allocate(MOST * sizeof(float));
  float* const sums = allocate(MOST * sizeof(float));
  void* registration = NULL;
  CHECK(CALL(ncclCommRegister)(comm, values, MOST * sizeof(float), &registration));
  for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
    fill(values, counts[i], rank);
    CHECK(CALL(ncclAllReduce)(values, sums, (size_t)counts[i], ncclFloat, ncclSum, comm, NULL));
    expect(sums, counts[i], ranks);
    CHECK(CALL(ncclAllReduce)(values, values, (size_t)counts[i], ncclFloat, ncclSum, comm, NULL));
    expect(values, counts[i], ranks);
  }
  /* In a group, in order: the second reads what the first wrote. */
  fill(values, 10, rank);
  CHECK(CALL(ncclGroupStart)());
  CHECK(CALL(ncclGroupStart)());
  CHECK(CALL(ncclAllReduce)(values, sums, 10, ncclFloat, ncclSum, comm, NULL));
  CHECK(CALL(ncclGroupEnd)());
  CHECK(CALL(ncclAllReduce)(sums, sums, 10, ncclFloat, ncclMax, comm, NULL));
  CHECK(CALL(ncclGroupEnd)());
  expect(sums, 10, ranks);

  ncclRedOp_t doubled;
  float two = 2;
  CHECK(CALL(ncclRedOpCreatePreMulSum)(&doubled, &two, ncclFloat, ncclScalarHostImmediate, comm));
  for (int i = 0; i < 10; ++i) values[i] = value(rank, i) / 2;
  CHECK(CALL(ncclAllReduce)(values, sums, 10, ncclFloat, doubled, comm, NULL));
  expect(sums, 10, ranks);
  CHECK(CALL(ncclRedOpDestroy)(doubled, comm));

  use_others(comm, rank, ranks);

  ncclResult_t state = ncclInternalError;
  CHECK(CALL(ncclCommGetAsyncError)(comm, &state));
  if (state != ncclSuccess) fail("ncclCommGetAsyncError");
  CHECK(CALL(ncclCommDeregister)(comm, registration));
  CHECK(CALL(ncclMemFree)(values));
  CHECK(CALL(ncclMemFree)(sums));
}

/* A non-blocking communicator's calls may only have begun. */
static void finish(ncclComm_t comm, ncclResult_t result) {
  while (result == ncclInProgress) {
    usleep(100);
    CHECK(CALL(ncclCommGetAsyncError)(comm, &result));
  }
  CHECK(result);
}

/* Ranks of the same parity, in reverse order; the last rank stays out. */
static void split(ncclComm_t comm, int rank, int ranks) {
  ncclComm_t half = (ncclComm_t)&half;
  const int color = rank == ranks - 1 ? NCCL_SPLIT_NOCOLOR : rank % 2;
  finish(comm, CALL(ncclCommSplit)(comm, color, -rank, &half, NULL));
  if (color == NCCL_SPLIT_NOCOLOR) {
    if (half != NULL) fail("a communicator for a rank without colour");
    return;
  }
  int members = 0;
  int expected_rank = 0;
  for (int other = 0; other < ranks - 1; ++other) {
    members += other % 2 == color;
    expected_rank += other % 2 == color && other > rank;
  }
  int found = -1;
  CHECK(CALL(ncclCommCount)(half, &found));
  if (found != members) fail("ncclCommCount after the split");
  CHECK(CALL(ncclCommUserRank)(half, &found));
  if (found != expected_rank) fail("ncclCommUserRank after the split");
  int one = 1;
  int sum = 0;
  CHECK(CALL(ncclAllReduce)(&one, &sum, 1, ncclInt, ncclSum, half, NULL));
  if (sum != members) fail("ncclAllReduce after the split");
  finish(half, CALL(ncclCommFinalize)(half));
  CHECK(CALL(ncclCommDestroy)(half));
}

static void run_rank(int rank, int ranks, int in, int out[]) {
#ifdef CLIENT_OPENS
  library = dlopen("libnccl.so", RTLD_NOW);
  if (library == NULL) fail(dlerror());
#endif
  int version = 0;
  CHECK(CALL(ncclGetVersion)(&version));
  if (version < 22800) fail("ncclGetVersion");
  ncclUniqueId id;
  if (rank == 0) {
    CHECK(CALL(ncclGetUniqueId)(&id));
    for (int peer = 1; peer < ranks; ++peer) {
      if (write(out[peer], &id, sizeof id) != sizeof id) fail("write");
    }
  } else if (read(in, &id, sizeof id) != sizeof id) {
    fail("read");
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = rank % 2; /* ranks may differ in that */
  ncclComm_t comm;
  const ncclResult_t result = CALL(ncclCommInitRankConfig)(&comm, ranks, id, rank, &config);
  finish(comm, result);
  use(comm, rank, ranks);
  split(comm, rank, ranks);
  CHECK(CALL(ncclCommDestroy)(comm));
}

static int run_processes(int ranks) {
  int pipes[MOST_RANKS][2];
  int out[MOST_RANKS];
  pid_t pids[MOST_RANKS];
  for (int rank = 0; rank < ranks; ++rank) {
    if (pipe(pipes[rank]) != 0) fail("pipe");
    out[rank] = pipes[rank][1];
  }
  for (int rank = 0; rank < ranks; ++rank) {
    pids[rank] = fork();
    if (pids[rank] == 0) {
      run_rank(rank, ranks, pipes[rank][0], out);
      exit(0);
    }
  }
  int failures = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = -1;
    if (waitpid(pids[rank], &status, 0) != pids[rank] || status != 0) {
      fprintf(stderr, "rank %d ended with %#x\n", rank, (unsigned)status);
      ++failures;
    }
  }
  return failures != 0;
}

#ifndef CLIENT_OPENS
static int run_all(int ranks) {
  ncclComm_t comms[MOST_RANKS];
  float values[MOST_RANKS][100];
  float sums[MOST_RANKS][100];
  CHECK(ncclCommInitAll(comms, ranks, NULL));
  for (int round = 0; round < 20; ++round) {
    for (int rank = 0; rank < ranks; ++rank) fill(values[rank], 100, rank);
    CHECK(ncclGroupStart());
    for (int rank = 0; rank < ranks; ++rank) {
      CHECK(ncclAllReduce(values[rank], sums[rank], 100, ncclFloat, ncclSum, comms[rank], NULL));
    }
    CHECK(ncclGroupEnd());
    for (int rank = 0; rank < ranks; ++rank) expect(sums[rank], 100, ranks);
  }
  ncclComm_t halves[MOST_RANKS];
  CHECK(ncclGroupStart());
  for (int rank = 0; rank < ranks; ++rank)
    CHECK(ncclCommSplit(comms[rank], rank % 2, rank, &halves[rank], NULL));
  CHECK(ncclGroupEnd());
  int ones[MOST_RANKS];
  CHECK(ncclGroupStart());
  for (int rank = 0; rank < ranks; ++rank) {
    ones[rank] = 1;
    CHECK(ncclAllReduce(&ones[rank], &ones[rank], 1, ncclInt, ncclSum, halves[rank], NULL));
  }
  CHECK(ncclGroupEnd());
  for (int rank = 0; rank < ranks; ++rank) {
    if (ones[rank] != (ranks + 1 - rank % 2) / 2) fail("ncclAllReduce after a split in a group");
    CHECK(ncclCommDestroy(halves[rank]));
  }
  /* Made in a group from one id, as programs with several devices do. */
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id));
  ncclComm_t again[MOST_RANKS];
  CHECK(ncclGroupStart());
  for (int rank = 0; rank < ranks; ++rank) CHECK(ncclCommInitRank(&again[rank], ranks, id, rank));
  CHECK(ncclGroupEnd());
  CHECK(ncclGroupStart());
  for (int rank = 0; rank < ranks; ++rank) {
    ones[rank] = 1;
    CHECK(ncclAllReduce(&ones[rank], &ones[rank], 1, ncclInt, ncclSum, again[rank], NULL));
  }
  CHECK(ncclGroupEnd());
  for (int rank = 0; rank < ranks; ++rank) {
    if (ones[rank] != ranks) fail("ncclAllReduce of communicators made in a group");
  }
  CHECK(ncclGroupStart());
  for (int rank = 0; rank < ranks; ++rank) CHECK(ncclCommDestroy(again[rank]));
  CHECK(ncclGroupEnd());
  for (int rank = 0; rank < ranks; ++rank) CHECK(ncclCommDestroy(comms[rank]));
  return 0;
}
#endif

int main(int argc, char** argv) {
  const int ranks = argc == 3 ? atoi(argv[2]) : 0;
  if (ranks < 1 || ranks > MOST_RANKS) {
    fprintf(stderr, "Usage: nccl_client processes|all|open RANKS\n");
    return 2;
  }
#ifndef CLIENT_OPENS
  if (strcmp(argv[1], "all") == 0) return run_all(ranks);
#endif
  return run_processes(ranks);
}
