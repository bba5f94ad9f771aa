/* SPDX-License-Identifier: Apache-2.0
 *
 * The header from C11, without extensions: its numbers, and every function through its good and bad paths
 * on a communicator of one rank. Bad input gets an error that names the argument, and changes nothing. */
#include <rocenante/rocenante.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The numbers of NCCL 2.30: values may be passed between the two APIs unchanged. */
_Static_assert(rcnSuccess == 0 && rcnUnhandledCudaError == 1 && rcnSystemError == 2 &&
                   rcnInternalError == 3,
               "");
_Static_assert(rcnInvalidArgument == 4 && rcnInvalidUsage == 5 && rcnRemoteError == 6 && rcnInProgress == 7,
               "");
_Static_assert(rcnTimeout == 8 && rcnNumResults == 9, "");
_Static_assert(rcnInt8 == 0 && rcnChar == 0 && rcnUint8 == 1 && rcnInt32 == 2 && rcnInt == 2, "");
_Static_assert(rcnUint32 == 3 && rcnInt64 == 4 && rcnUint64 == 5 && rcnFloat16 == 6 && rcnHalf == 6, "");
_Static_assert(rcnFloat32 == 7 && rcnFloat == 7 && rcnFloat64 == 8 && rcnDouble == 8 && rcnBfloat16 == 9,
               "");
_Static_assert(rcnFloat8e4m3 == 10 && rcnFloat8e5m2 == 11 && rcnNumTypes == 12, "");
_Static_assert(rcnSum == 0 && rcnProd == 1 && rcnMax == 2 && rcnMin == 3 && rcnAvg == 4 && rcnNumOps == 5,
               "");
_Static_assert(rcnMaxRedOp == 0x7fffffff, "");
_Static_assert(rcnScalarDevice == 0 && rcnScalarHostImmediate == 1, "");
_Static_assert(sizeof(rcnUniqueId) == RCN_UNIQUE_ID_BYTES && RCN_UNIQUE_ID_BYTES == 128, "");
/* Enumerations travel as int, also from languages that cannot read this header. */
_Static_assert(sizeof(rcnResult_t) == 4 && sizeof(rcnDataType_t) == 4 && sizeof(rcnRedOp_t) == 4, "");
_Static_assert(sizeof(rcnScalarResidence_t) == 4 && sizeof(rcnColl_t) == 4, "");
/* Structures begin with their size, and have no hidden holes. */
_Static_assert(offsetof(rcnConfig_t, size) == 0 && sizeof(rcnConfig_t) == 2 * sizeof(void*), "");
_Static_assert(offsetof(rcnCommStats_t, size) == 0 && sizeof(rcnCommStats_t) == 4 * sizeof(size_t), "");
_Static_assert(sizeof(rcnStatsEntry_t) == 32 && offsetof(rcnStatsEntry_t, calls) == 16, "");

static int failures = 0;

static void expect(int holds, int line, const char* text) {
  if (holds) return;
  ++failures;
  fprintf(stderr, "c_api_test.c:%d: %s\n  last error: %s\n", line, text, rcnGetLastError(NULL));
}
#define EXPECT(condition) expect((condition), __LINE__, #condition)

/* The call returned this result, and the last error names the argument. */
static void refused(rcnResult_t result, rcnResult_t expected, const char* name, int line,
                    const char* text) {
  const char* const error = rcnGetLastError(NULL);
  if (result == expected && strstr(error, name) != NULL) return;
  ++failures;
  fprintf(stderr, "c_api_test.c:%d: %s\n  returned %d, expected %d; '%s' should name '%s'\n", line, text,
          (int)result, (int)expected, error, name);
}
#define REFUSED(call, expected, name) refused((call), (expected), (name), __LINE__, #call)
#define BAD_ARGUMENT(call, name) REFUSED(call, rcnInvalidArgument, name)

/* Values outside an enumeration, as an int from another language would be. */
static rcnDataType_t type_of(int value) {
  return (rcnDataType_t)value;
}
static rcnRedOp_t op_of(int value) {
  return (rcnRedOp_t)value;
}

static void test_memory(void) {
  void* memory = NULL;
  EXPECT(rcnMemAlloc(&memory, 5000) == rcnSuccess);
  EXPECT((uintptr_t)memory % 4096 == 0);
  for (int i = 0; i < 5000; ++i) {
    if (((unsigned char*)memory)[i] != 0) EXPECT(!"the memory is not zero");
  }
  memset(memory, 1, 5000);
  BAD_ARGUMENT(rcnMemFree((char*)memory + 1), "ptr");
  EXPECT(rcnMemFree(memory) == rcnSuccess);
  BAD_ARGUMENT(rcnMemFree(memory), "ptr");
  EXPECT(rcnMemFree(NULL) == rcnSuccess);
  EXPECT(rcnMemAlloc(&memory, 0) == rcnSuccess && memory == NULL);
  BAD_ARGUMENT(rcnMemAlloc(NULL, 1), "ptr");
  memory = &memory;
  REFUSED(rcnMemAlloc(&memory, SIZE_MAX), rcnSystemError, "out of memory");
  EXPECT(memory == &memory);
}

static void test_without_communicator(void) {
  int version = 0;
  EXPECT(rcnGetVersion(&version) == rcnSuccess && version == RCN_VERSION_CODE);
  BAD_ARGUMENT(rcnGetVersion(NULL), "version");

  for (int a = 0; a < rcnNumResults; ++a) {
    EXPECT(rcnGetErrorString((rcnResult_t)a) != NULL);
    for (int b = 0; b < a; ++b) {
      EXPECT(strcmp(rcnGetErrorString((rcnResult_t)a), rcnGetErrorString((rcnResult_t)b)) != 0);
    }
  }
  EXPECT(rcnGetErrorString((rcnResult_t)99) != NULL);
  EXPECT(rcnGetErrorString((rcnResult_t)-1) != NULL);
  EXPECT(rcnPathName(0) != NULL);
  EXPECT(strcmp(rcnPathName(0xffffffffu), "unknown") == 0);
  EXPECT(strcmp(rcnPathName(256), "unknown") == 0);

  size_t length = 0;
  char text[16];
  for (int i = 0; i < 3; ++i) {
    static const char* const topics[] = {"info", "config", "config.md"};
    length = 0;
    EXPECT(rcnDescribe(topics[i], NULL, 0, &length) == rcnSuccess && length > sizeof text);
    memset(text, 'x', sizeof text);
    EXPECT(rcnDescribe(topics[i], text, sizeof text, &length) == rcnSuccess);
    EXPECT(strlen(text) == sizeof text - 1);
  }
  text[0] = 'x';
  EXPECT(rcnDescribe("info", text, 1, &length) == rcnSuccess && text[0] == '\0');
  BAD_ARGUMENT(rcnDescribe(NULL, text, sizeof text, &length), "topic");
  BAD_ARGUMENT(rcnDescribe("weather", text, sizeof text, &length), "weather");
  BAD_ARGUMENT(rcnDescribe("info", NULL, 1, &length), "buffer");
  BAD_ARGUMENT(rcnDescribe("info", text, sizeof text, NULL), "length");
}

static void test_ids(void) {
  rcnUniqueId id;
  memset(&id, 0x55, sizeof id);
  const rcnUniqueId untouched = id;
  BAD_ARGUMENT(rcnGetUniqueId(NULL), "id");
  BAD_ARGUMENT(rcnGetUniqueIdAt(NULL, "127.0.0.1:0", 1), "id");
  BAD_ARGUMENT(rcnGetUniqueIdAt(&id, NULL, 1), "address");
  BAD_ARGUMENT(rcnGetUniqueIdAt(&id, "", 0), "address");
  BAD_ARGUMENT(rcnGetUniqueIdAt(&id, "127.0.0.1", 0), "127.0.0.1");
  BAD_ARGUMENT(rcnGetUniqueIdAt(&id, "127.0.0.1:70000", 0), "70000");
  /* An address that is not loopback wants a secret (of the documentation's range, nothing is sent there).
   */
  REFUSED(rcnGetUniqueIdAt(&id, "192.0.2.1:5000", 0), rcnInvalidUsage, "ROCENANTE_SECRET");
  EXPECT(memcmp(&id, &untouched, sizeof id) == 0);
}

static void test_init_arguments(void) {
  rcnUniqueId id;
  EXPECT(rcnGetUniqueId(&id) == rcnSuccess);
  static char not_a_communicator;
  rcnComm_t const before = (rcnComm_t)(void*)&not_a_communicator;
  rcnComm_t comm = before;
  BAD_ARGUMENT(rcnCommInitRank(NULL, 1, id, 0), "comm");
  BAD_ARGUMENT(rcnCommInitRank(&comm, 0, id, 0), "nranks");
  BAD_ARGUMENT(rcnCommInitRank(&comm, -1, id, 0), "nranks");
  BAD_ARGUMENT(rcnCommInitRank(&comm, 1025, id, 0), "nranks");
  BAD_ARGUMENT(rcnCommInitRank(&comm, 1, id, 1), "rank");
  BAD_ARGUMENT(rcnCommInitRank(&comm, 1, id, -1), "rank");

  rcnUniqueId damaged;
  memset(&damaged, 0, sizeof damaged);
  BAD_ARGUMENT(rcnCommInitRank(&comm, 1, damaged, 0), "id");
  memset(&damaged, 0xa5, sizeof damaged);
  BAD_ARGUMENT(rcnCommInitRank(&comm, 1, damaged, 0), "id");
  for (int byte = 0; byte < RCN_UNIQUE_ID_BYTES; byte += 9) {
    damaged = id;
    damaged.internal[byte] ^= 0x10;
    BAD_ARGUMENT(rcnCommInitRank(&comm, 1, damaged, 0), "id");
  }

  rcnConfig_t config = RCN_CONFIG_INITIALIZER;
  config.size = 1;
  BAD_ARGUMENT(rcnCommInitRankConfig(&comm, 1, id, 0, &config), "config->size");
  config.size = sizeof config;
  config.options = "ROCENANTE_NOSUCH=1";
  BAD_ARGUMENT(rcnCommInitRankConfig(&comm, 1, id, 0, &config), "ROCENANTE_NOSUCH");
  config.options = "ROCENANTE_TRANSPORT=carrier-pigeon";
  BAD_ARGUMENT(rcnCommInitRankConfig(&comm, 1, id, 0, &config), "carrier-pigeon");
  config.options = "ROCENANTE_TRANSPORT";
  BAD_ARGUMENT(rcnCommInitRankConfig(&comm, 1, id, 0, &config), "ROCENANTE_TRANSPORT");
  EXPECT(comm == before);

  /* The id is still good: errors have changed nothing. */
  config.options = "ROCENANTE_SPIN_US=1;\n ROCENANTE_TRANSPORT=auto";
  EXPECT(rcnCommInitRankConfig(&comm, 1, id, 0, &config) == rcnSuccess);
  EXPECT(comm != before);
  EXPECT(rcnCommDestroy(comm) == rcnSuccess);
}

static rcnComm_t make_communicator(void) {
  rcnUniqueId id;
  rcnComm_t comm = NULL;
  EXPECT(rcnGetUniqueId(&id) == rcnSuccess);
  EXPECT(rcnCommInitRank(&comm, 1, id, 0) == rcnSuccess);
  return comm;
}

static void test_queries(rcnComm_t comm) {
  int number = -1;
  EXPECT(rcnCommCount(comm, &number) == rcnSuccess && number == 1);
  EXPECT(rcnCommUserRank(comm, &number) == rcnSuccess && number == 0);
  rcnResult_t async_error = rcnInternalError;
  EXPECT(rcnCommGetAsyncError(comm, &async_error) == rcnSuccess && async_error == rcnSuccess);
  const char* name = NULL;
  EXPECT(rcnCommGetTransport(comm, 0, &name) == rcnSuccess && name != NULL && strcmp(name, "self") == 0);
  BAD_ARGUMENT(rcnCommCount(comm, NULL), "count");
  BAD_ARGUMENT(rcnCommUserRank(comm, NULL), "rank");
  BAD_ARGUMENT(rcnCommGetAsyncError(comm, NULL), "async_error");
  BAD_ARGUMENT(rcnCommGetTransport(comm, 0, NULL), "name");
  BAD_ARGUMENT(rcnCommGetTransport(comm, 1, &name), "peer");
  BAD_ARGUMENT(rcnCommGetTransport(comm, -1, &name), "peer");

  /* An argument error is not the communicator's. */
  EXPECT(rcnCommGetAsyncError(comm, &async_error) == rcnSuccess && async_error == rcnSuccess);
}

static void test_all_reduce(rcnComm_t comm) {
  float in[4] = {1, 2, 3, 4};
  float out[4] = {0, 0, 0, 0};
  for (int op = 0; op < rcnNumOps; ++op) {
    memset(out, 0, sizeof out);
    EXPECT(rcnAllReduce(in, out, 4, rcnFloat32, op_of(op), comm, NULL) == rcnSuccess);
    EXPECT(memcmp(in, out, sizeof in) == 0);
    EXPECT(rcnAllReduce(in, in, 4, rcnFloat32, op_of(op), comm, NULL) == rcnSuccess);
    EXPECT(in[0] == 1 && in[3] == 4);
  }
  for (int type = 0; type < rcnNumTypes; ++type) {
    EXPECT(rcnAllReduce(in, out, 2, type_of(type), rcnMax, comm, NULL) == rcnSuccess);
  }
  /* No elements, no buffers. */
  EXPECT(rcnAllReduce(NULL, NULL, 0, rcnFloat32, rcnSum, comm, NULL) == rcnSuccess);

  memset(out, 0, sizeof out);
  BAD_ARGUMENT(rcnAllReduce(NULL, out, 4, rcnFloat32, rcnSum, comm, NULL), "sendbuff");
  BAD_ARGUMENT(rcnAllReduce(in, NULL, 4, rcnFloat32, rcnSum, comm, NULL), "recvbuff");
  BAD_ARGUMENT(rcnAllReduce(in, in + 1, 3, rcnFloat32, rcnSum, comm, NULL), "overlap");
  BAD_ARGUMENT(rcnAllReduce(in, out, (size_t)-1, rcnFloat32, rcnSum, comm, NULL), "count");
  BAD_ARGUMENT(rcnAllReduce(in, out, (size_t)1 << 62, rcnFloat32, rcnSum, comm, NULL), "count");
  BAD_ARGUMENT(rcnAllReduce(in, out, 4, type_of(-1), rcnSum, comm, NULL), "datatype");
  BAD_ARGUMENT(rcnAllReduce(in, out, 4, type_of(rcnNumTypes), rcnSum, comm, NULL), "datatype");
  BAD_ARGUMENT(rcnAllReduce(in, out, 4, rcnFloat32, op_of(-1), comm, NULL), "op");
  BAD_ARGUMENT(rcnAllReduce(in, out, 4, rcnFloat32, op_of(rcnNumOps), comm, NULL), "op");
  BAD_ARGUMENT(rcnAllReduce(in, out, 4, rcnFloat32, rcnSum, NULL, NULL), "comm");
  BAD_ARGUMENT(rcnAllReduce(in, out, 4, rcnFloat32, rcnSum, comm, out), "stream");
  EXPECT(out[0] == 0 && out[3] == 0);
  EXPECT(rcnAllReduce(in, out, 4, rcnFloat32, rcnSum, comm, NULL) == rcnSuccess && out[3] == 4);
}

static void test_operators(rcnComm_t comm) {
  float two = 2;
  const float in[2] = {3, -5};
  float out[2] = {0, 0};
  rcnRedOp_t op = rcnSum;
  EXPECT(rcnRedOpCreatePreMulSum(&op, &two, rcnFloat32, rcnScalarHostImmediate, comm) == rcnSuccess);
  EXPECT((int)op >= (int)rcnNumOps);
  two = 100; /* was read before the call returned */
  EXPECT(rcnAllReduce(in, out, 2, rcnFloat32, op, comm, NULL) == rcnSuccess && out[0] == 6 &&
         out[1] == -10);
  BAD_ARGUMENT(rcnAllReduce(in, out, 1, rcnFloat64, op, comm, NULL), "op");
  EXPECT(rcnRedOpDestroy(op, comm) == rcnSuccess);
  BAD_ARGUMENT(rcnAllReduce(in, out, 2, rcnFloat32, op, comm, NULL), "op");
  BAD_ARGUMENT(rcnRedOpDestroy(op, comm), "op");
  BAD_ARGUMENT(rcnRedOpDestroy(rcnSum, comm), "op");
  BAD_ARGUMENT(rcnRedOpDestroy(op_of(-1), comm), "op");
  BAD_ARGUMENT(rcnRedOpDestroy(op, NULL), "comm");
  const rcnRedOp_t before = op;
  BAD_ARGUMENT(rcnRedOpCreatePreMulSum(NULL, &two, rcnFloat32, rcnScalarHostImmediate, comm), "op");
  BAD_ARGUMENT(rcnRedOpCreatePreMulSum(&op, NULL, rcnFloat32, rcnScalarHostImmediate, comm), "scalar");
  BAD_ARGUMENT(rcnRedOpCreatePreMulSum(&op, &two, type_of(99), rcnScalarHostImmediate, comm), "datatype");
  BAD_ARGUMENT(rcnRedOpCreatePreMulSum(&op, &two, rcnFloat32, rcnScalarDevice, comm), "residence");
  BAD_ARGUMENT(rcnRedOpCreatePreMulSum(&op, &two, rcnFloat32, rcnScalarHostImmediate, NULL), "comm");
  EXPECT(op == before);
}

static void test_collectives(rcnComm_t comm) {
  const float in[2] = {3, -5};
  float out[4] = {0};
  EXPECT(rcnAllGather(in, out, 2, rcnFloat32, comm, NULL) == rcnSuccess && out[1] == -5);
  EXPECT(rcnReduceScatter(in, out, 2, rcnFloat32, rcnAvg, comm, NULL) == rcnSuccess && out[0] == 3);
  EXPECT(rcnBroadcast(in, out + 2, 2, rcnFloat32, 0, comm, NULL) == rcnSuccess && out[3] == -5);
  EXPECT(rcnReduce(in, out, 2, rcnFloat32, rcnMax, 0, comm, NULL) == rcnSuccess && out[1] == -5);
  EXPECT(rcnAlltoAll(in, out + 2, 2, rcnFloat32, comm, NULL) == rcnSuccess && out[2] == 3);
  EXPECT(rcnAllGather(NULL, NULL, 0, rcnFloat32, comm, NULL) == rcnSuccess);
  EXPECT(rcnReduce(out, out, 2, rcnFloat32, rcnSum, 0, comm, NULL) == rcnSuccess);
  memset(out, 0, sizeof out);
  BAD_ARGUMENT(rcnAllGather(NULL, out, 2, rcnFloat32, comm, NULL), "sendbuff");
  BAD_ARGUMENT(rcnAllGather(in, NULL, 2, rcnFloat32, comm, NULL), "recvbuff");
  BAD_ARGUMENT(rcnAllGather(out + 1, out, 2, rcnFloat32, comm, NULL), "recvbuff + rank * sendcount");
  BAD_ARGUMENT(rcnAllGather(in, out, SIZE_MAX, rcnFloat32, comm, NULL), "sendcount");
  BAD_ARGUMENT(rcnAllGather(in, out, 2, type_of(12), comm, NULL), "datatype");
  BAD_ARGUMENT(rcnAllGather(in, out, 2, rcnFloat32, NULL, NULL), "comm");
  BAD_ARGUMENT(rcnReduceScatter(in, out, 2, rcnFloat32, op_of(5), comm, NULL), "op");
  BAD_ARGUMENT(rcnReduceScatter(in, out, SIZE_MAX, rcnFloat32, rcnSum, comm, NULL), "recvcount");
  BAD_ARGUMENT(rcnReduceScatter(out, out + 1, 2, rcnFloat32, rcnSum, comm, NULL), "sendbuff + rank");
  BAD_ARGUMENT(rcnBroadcast(in, out, 2, rcnFloat32, -1, comm, NULL), "root is -1");
  BAD_ARGUMENT(rcnBroadcast(in, out, 2, rcnFloat32, 1, comm, NULL), "root is 1: expected 0 to 0");
  BAD_ARGUMENT(rcnBroadcast(NULL, out, 2, rcnFloat32, 0, comm, NULL), "sendbuff");
  BAD_ARGUMENT(rcnReduce(in, NULL, 2, rcnFloat32, rcnSum, 0, comm, NULL), "recvbuff");
  BAD_ARGUMENT(rcnReduce(out, out + 1, 2, rcnFloat32, rcnSum, 0, comm, NULL), "equal or apart");
  BAD_ARGUMENT(rcnReduce(in, out, 2, rcnFloat32, rcnSum, 7, comm, NULL), "root is 7");
  BAD_ARGUMENT(rcnAlltoAll(out, out, 2, rcnFloat32, comm, NULL), "apart");
  BAD_ARGUMENT(rcnAlltoAll(in, out, 2, rcnFloat32, comm, out), "stream");
  EXPECT(out[0] == 0 && out[1] == 0 && out[2] == 0 && out[3] == 0);
}

static void test_stats(rcnComm_t comm) {
  rcnCommStats_t stats = RCN_COMM_STATS_INITIALIZER;
  EXPECT(rcnCommGetStats(comm, &stats) == rcnSuccess && stats.count >= 1);
  rcnStatsEntry_t entries[64];
  const size_t rows = stats.count;
  stats.entries = entries;
  stats.capacity = sizeof entries / sizeof *entries;
  EXPECT(rows <= stats.capacity);
  EXPECT(rcnCommGetStats(comm, &stats) == rcnSuccess && stats.count == rows);
  for (size_t row = 0; row < rows && row < stats.capacity; ++row) {
    EXPECT(entries[row].collective < rcnNumColls && entries[row].calls > 0);
    EXPECT(entries[row].bytes <= entries[row].calls << entries[row].size_class);
    EXPECT(strlen(rcnPathName(entries[row].path)) > 0);
  }
  stats.entries = NULL;
  BAD_ARGUMENT(rcnCommGetStats(comm, &stats), "stats->entries");
  stats.capacity = 0;
  stats.size = 3;
  BAD_ARGUMENT(rcnCommGetStats(comm, &stats), "stats->size");
  BAD_ARGUMENT(rcnCommGetStats(comm, NULL), "stats");
}

static void test_groups(rcnComm_t comm) {
  const float in[2] = {1, 2};
  float out[2] = {0, 0};
  REFUSED(rcnGroupEnd(), rcnInvalidUsage, "rcnGroupStart");
  EXPECT(rcnGroupStart() == rcnSuccess);
  EXPECT(rcnGroupEnd() == rcnSuccess);
  EXPECT(rcnGroupStart() == rcnSuccess);
  EXPECT(rcnGroupStart() == rcnSuccess);
  EXPECT(rcnAllReduce(in, out, 2, rcnFloat32, rcnSum, comm, NULL) == rcnSuccess);
  EXPECT(rcnGroupEnd() == rcnSuccess);
  EXPECT(out[0] == 0); /* only the outermost end acts */
  EXPECT(rcnGroupEnd() == rcnSuccess);
  EXPECT(out[0] == 1 && out[1] == 2);

  /* One bad call and nothing of the group happens: its other ranks could wait for the one it was for. */
  memset(out, 0, sizeof out);
  EXPECT(rcnGroupStart() == rcnSuccess);
  EXPECT(rcnAllReduce(in, out, 2, rcnFloat32, rcnSum, comm, NULL) == rcnSuccess);
  BAD_ARGUMENT(rcnAllReduce(in, NULL, 2, rcnFloat32, rcnSum, comm, NULL), "recvbuff");
  BAD_ARGUMENT(rcnAllReduce(in, out, 2, type_of(99), rcnSum, comm, NULL), "datatype");
  BAD_ARGUMENT(rcnGroupEnd(), "recvbuff");
  EXPECT(out[0] == 0 && out[1] == 0);
  EXPECT(rcnGroupStart() == rcnSuccess);
  EXPECT(rcnAllReduce(in, out, 2, rcnFloat32, rcnSum, comm, NULL) == rcnSuccess);
  EXPECT(rcnGroupEnd() == rcnSuccess); /* the next group knows nothing of it */
  EXPECT(out[0] == 1 && out[1] == 2);

  /* An operator may go as soon as the call has returned, and its number be used again. */
  float scalar = 2;
  rcnRedOp_t op = rcnSum;
  EXPECT(rcnRedOpCreatePreMulSum(&op, &scalar, rcnFloat32, rcnScalarHostImmediate, comm) == rcnSuccess);
  EXPECT(rcnGroupStart() == rcnSuccess);
  EXPECT(rcnAllReduce(in, out, 2, rcnFloat32, op, comm, NULL) == rcnSuccess);
  EXPECT(rcnRedOpDestroy(op, comm) == rcnSuccess);
  scalar = 100;
  EXPECT(rcnRedOpCreatePreMulSum(&op, &scalar, rcnFloat32, rcnScalarHostImmediate, comm) == rcnSuccess);
  EXPECT(rcnGroupEnd() == rcnSuccess);
  EXPECT(out[0] == 2 && out[1] == 4);
  EXPECT(rcnRedOpDestroy(op, comm) == rcnSuccess);

  rcnUniqueId id;
  rcnComm_t made[2] = {NULL, NULL};
  EXPECT(rcnGetUniqueId(&id) == rcnSuccess);
  EXPECT(rcnGroupStart() == rcnSuccess);
  EXPECT(rcnCommInitRank(&made[0], 2, id, 0) == rcnSuccess);
  EXPECT(rcnCommInitRank(&made[1], 2, id, 1) == rcnSuccess);
  EXPECT(made[0] == NULL && made[1] == NULL);
  EXPECT(rcnGroupEnd() == rcnSuccess);
  EXPECT(made[0] != NULL && made[1] != NULL);

  /* A bad initialisation does not leave the other ranks of the group waiting for its own. */
  rcnComm_t none[2] = {NULL, NULL};
  EXPECT(rcnGetUniqueId(&id) == rcnSuccess);
  EXPECT(rcnGroupStart() == rcnSuccess);
  EXPECT(rcnCommInitRank(&none[0], 2, id, 0) == rcnSuccess);
  BAD_ARGUMENT(rcnCommInitRank(&none[1], 2, id, 2), "rank");
  BAD_ARGUMENT(rcnGroupEnd(), "rank");
  EXPECT(none[0] == NULL && none[1] == NULL);

  /* Numbers of operators tell communicators apart. */
  rcnRedOp_t theirs = rcnSum;
  EXPECT(rcnRedOpCreatePreMulSum(&op, &scalar, rcnFloat32, rcnScalarHostImmediate, comm) == rcnSuccess);
  EXPECT(rcnRedOpCreatePreMulSum(&theirs, &scalar, rcnFloat32, rcnScalarHostImmediate, made[0]) ==
         rcnSuccess);
  EXPECT(op != theirs);
  BAD_ARGUMENT(rcnAllReduce(in, out, 2, rcnFloat32, theirs, comm, NULL), "op");
  BAD_ARGUMENT(rcnRedOpDestroy(theirs, comm), "op");
  EXPECT(rcnRedOpDestroy(op, comm) == rcnSuccess);
  EXPECT(rcnCommDestroy(made[0]) == rcnSuccess);
  EXPECT(rcnCommAbort(made[1]) == rcnSuccess);
}

/* Every function that takes a communicator refuses one that is NULL, dead, or never was one. */
static void test_bad_handle(rcnComm_t comm) {
  int number = 7;
  const char* name = NULL;
  float value = 1;
  rcnRedOp_t op = rcnSum;
  rcnResult_t async_error = rcnInProgress;
  rcnCommStats_t stats = RCN_COMM_STATS_INITIALIZER;
  BAD_ARGUMENT(rcnCommCount(comm, &number), "comm");
  BAD_ARGUMENT(rcnCommUserRank(comm, &number), "comm");
  BAD_ARGUMENT(rcnCommGetAsyncError(comm, &async_error), "comm");
  BAD_ARGUMENT(rcnCommGetStats(comm, &stats), "comm");
  BAD_ARGUMENT(rcnCommGetTransport(comm, 0, &name), "comm");
  BAD_ARGUMENT(rcnAllReduce(&value, &value, 1, rcnFloat32, rcnSum, comm, NULL), "comm");
  BAD_ARGUMENT(rcnAllReduce(&value, &value, 0, rcnFloat32, rcnSum, comm, NULL), "comm");
  BAD_ARGUMENT(rcnRedOpCreatePreMulSum(&op, &value, rcnFloat32, rcnScalarHostImmediate, comm), "comm");
  BAD_ARGUMENT(rcnRedOpDestroy(op_of(rcnNumOps), comm), "comm");
  BAD_ARGUMENT(rcnCommDestroy(comm), "comm");
  BAD_ARGUMENT(rcnCommAbort(comm), "comm");
  EXPECT(number == 7 && name == NULL && async_error == rcnInProgress && stats.count == 0);
  EXPECT(rcnGetLastError(comm) != NULL);
}

int main(void) {
  EXPECT(strcmp(rcnGetLastError(NULL), "") == 0);
  test_without_communicator();
  test_memory();
  test_ids();
  test_init_arguments();
  rcnComm_t comm = make_communicator();
  test_queries(comm);
  test_all_reduce(comm);
  test_operators(comm);
  test_collectives(comm);
  test_stats(comm);
  test_groups(comm);
  EXPECT(rcnCommDestroy(comm) == rcnSuccess);
  test_bad_handle(comm);
  test_bad_handle(NULL);
  static char garbage[4096];
  test_bad_handle((rcnComm_t)(void*)(garbage + 64));
  rcnComm_t aborted = make_communicator();
  EXPECT(rcnCommAbort(aborted) == rcnSuccess);
  test_bad_handle(aborted);
  if (failures != 0) fprintf(stderr, "%d failures\n", failures);
  return failures != 0;
}
