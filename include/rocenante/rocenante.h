/* SPDX-License-Identifier: Apache-2.0
 *
 * RoCEnante: collective communication with one exchange per call.
 *
 * This header is C11 and C++ clean. Enumerations and result codes carry the numbers of NCCL 2.30, so
 * that values may be passed between the two APIs unchanged. Every function returns an rcnResult_t
 * unless stated; on an error nothing has been changed, and rcnGetLastError(NULL) returns a text that
 * names the argument, its value and what is allowed. That text is per thread.
 *
 * Threads: separate communicators may be used from separate threads at once. One communicator is used
 * by one thread at a time, except rcnCommAbort, rcnCommGetAsyncError, rcnCommGetStats and
 * rcnGetLastError, which are safe from any thread.
 */
#ifndef ROCENANTE_ROCENANTE_H_
#define ROCENANTE_ROCENANTE_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RCN_EXPORT __attribute__((visibility("default")))
#else
#define RCN_EXPORT
#endif

/* Version of this header; rcnGetVersion returns that of the library, encoded as
 * 10000 * major + 100 * minor + patch. */
#define RCN_MAJOR 0
#define RCN_MINOR 1
#define RCN_PATCH 0
#define RCN_VERSION_CODE (10000 * RCN_MAJOR + 100 * RCN_MINOR + RCN_PATCH)

#define RCN_UNIQUE_ID_BYTES 128

/* In C++ a value that is none of an enumeration's would otherwise be undefined before it could be refused.
 */
#ifdef __cplusplus
#define RCN_ENUM_BASE : int
#else
#define RCN_ENUM_BASE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* One rank's membership of a communicator. Opaque; made by rcnCommInitRank. */
typedef struct rcnComm* rcnComm_t;

/* Names one communicator to be. Contains the address of a rendezvous and a secret: whoever holds it may
 * join. Passed by value. */
typedef struct {
  char internal[RCN_UNIQUE_ID_BYTES];
} rcnUniqueId;

typedef enum RCN_ENUM_BASE {
  rcnSuccess = 0,
  rcnUnhandledCudaError = 1, /* a CUDA call failed */
  rcnSystemError = 2,        /* a system call failed; the text holds its name and errno */
  rcnInternalError = 3,      /* a bug in this library */
  rcnInvalidArgument = 4,    /* an argument has a value that is never allowed */
  rcnInvalidUsage = 5,       /* a call that is not allowed now, or not on this communicator */
  rcnRemoteError = 6,        /* a peer failed or left; the text names it */
  rcnInProgress = 7,         /* a non-blocking call has not finished */
  rcnTimeout = 8,            /* a deadline passed; the text names who was waited for */
  rcnNumResults = 9
} rcnResult_t;

typedef enum RCN_ENUM_BASE {
  rcnInt8 = 0,
  rcnChar = 0,
  rcnUint8 = 1,
  rcnInt32 = 2,
  rcnInt = 2,
  rcnUint32 = 3,
  rcnInt64 = 4,
  rcnUint64 = 5,
  rcnFloat16 = 6,
  rcnHalf = 6,
  rcnFloat32 = 7,
  rcnFloat = 7,
  rcnFloat64 = 8,
  rcnDouble = 8,
  rcnBfloat16 = 9,
  rcnFloat8e4m3 = 10,
  rcnFloat8e5m2 = 11,
  rcnNumTypes = 12
} rcnDataType_t;

/* Built-in operators. Values from rcnNumOps on are made by rcnRedOpCreatePreMulSum and belong to one
 * communicator. docs/numerics.md defines each to the bit. */
typedef enum RCN_ENUM_BASE {
  rcnSum = 0,
  rcnProd = 1,
  rcnMax = 2,
  rcnMin = 3,
  rcnAvg = 4,
  rcnNumOps = 5,
  rcnMaxRedOp = 0x7fffffff
} rcnRedOp_t;

/* Where the scalar of rcnRedOpCreatePreMulSum lives. */
typedef enum RCN_ENUM_BASE {
  rcnScalarDevice = 0,       /* read when an operation runs; device memory is not supported yet */
  rcnScalarHostImmediate = 1 /* read before the call returns */
} rcnScalarResidence_t;

/* Per-communicator settings. Begins with its own size, so that it can grow: set
 * `rcnConfig_t config = RCN_CONFIG_INITIALIZER;` and then the fields wanted. */
typedef struct {
  size_t size;
  /* Settings as "NAME=VALUE" separated by ';' or newlines, e.g. "ROCENANTE_TRANSPORT=shm"; they win over
   * the environment. NULL for none. The string is read before the call returns. */
  const char* options;
} rcnConfig_t;
#define RCN_CONFIG_INITIALIZER \
  { sizeof(rcnConfig_t), NULL }

/* Collectives, as rcnStatsEntry_t names them. */
typedef enum RCN_ENUM_BASE {
  rcnCollAllReduce = 0,
  rcnCollAllGather = 1,
  rcnCollReduceScatter = 2,
  rcnCollBroadcast = 3,
  rcnCollReduce = 4,
  rcnCollAlltoAll = 5,
  rcnNumColls = 6
} rcnColl_t;

/* One row of rcnCommGetStats. */
typedef struct {
  uint32_t collective; /* rcnColl_t */
  uint32_t size_class; /* the calls of 2^(size_class-1) < bytes <= 2^size_class; 0 holds 0 and 1 byte */
  uint32_t path;       /* index for rcnPathName */
  uint32_t reserved;
  uint64_t calls;
  uint64_t bytes; /* sum over the calls of the bytes in the larger of their buffers */
} rcnStatsEntry_t;

/* In: size, entries (caller's array, may be NULL) and capacity (its length in rows). Out: count, the
 * number of rows there are; only the first min(capacity, count) are written. */
typedef struct {
  size_t size;
  rcnStatsEntry_t* entries;
  size_t capacity;
  size_t count;
} rcnCommStats_t;
#define RCN_COMM_STATS_INITIALIZER \
  { sizeof(rcnCommStats_t), NULL, 0, 0 }

/* Library version, encoded as RCN_VERSION_CODE. InvalidArgument if `version` is NULL. Any thread. */
RCN_EXPORT rcnResult_t rcnGetVersion(int* version);

/* The name and meaning of a result code; never NULL, also for unknown codes. Static storage. */
RCN_EXPORT const char* rcnGetErrorString(rcnResult_t result);

/* The text of the calling thread's last error, or "" if there was none. With a live `comm`, that
 * communicator's first asynchronous error if it has one. Valid until the thread's next call. */
RCN_EXPORT const char* rcnGetLastError(rcnComm_t comm);

/* The name of a path number of rcnStatsEntry_t ("one_shot_inline", "one_shot", ...); never NULL. */
RCN_EXPORT const char* rcnPathName(uint32_t path);

/* Makes an id and starts its rendezvous, a thread of this process that listens on the interface chosen
 * by NCCL_SOCKET_IFNAME until every rank has come. Call it once, hand the 128 bytes to all ranks. The
 * process must live until all ranks are initialised. SystemError if no interface can be listened on. */
RCN_EXPORT rcnResult_t rcnGetUniqueId(rcnUniqueId* id);

/* Makes the id that ranks share when all they have in common is an address, "HOST:PORT", "[V6]:PORT",
 * and a secret in ROCENANTE_SECRET or ROCENANTE_SECRET_FILE. `serve` non-zero (exactly one caller,
 * normally rank 0) also starts the rendezvous on that address. Without a secret only loopback addresses
 * are accepted (InvalidUsage otherwise). */
RCN_EXPORT rcnResult_t rcnGetUniqueIdAt(rcnUniqueId* id, const char* address, int serve);

/* Joins the communicator named by `id` as `rank` of `nranks` and waits for the others. Collective. Inside a
 * group it is only noted and done by rcnGroupEnd. `*comm` is written on success alone; free it with
 * rcnCommDestroy or rcnCommAbort. InvalidArgument: null pointers, nranks < 1 or > 1024, rank outside
 * [0, nranks), a damaged id. Timeout: naming the ranks that did not come within ROCENANTE_INIT_TIMEOUT_S.
 * InvalidUsage: duplicate rank, different nranks or `agreed` settings, naming rank, setting and values. */
RCN_EXPORT rcnResult_t rcnCommInitRank(rcnComm_t* comm, int nranks, rcnUniqueId id, int rank);

/* The same with settings; `config` may be NULL. */
RCN_EXPORT rcnResult_t rcnCommInitRankConfig(rcnComm_t* comm, int nranks, rcnUniqueId id, int rank,
                                             const rcnConfig_t* config);

/* Leaves in order: waits for calls that are enqueued (graphs that hold calls may be replayed later, and do
 * nothing then but end with an error), says goodbye, waits a bounded time for peers that may still touch
 * this rank's memory, frees everything. Not collective; a peer sees an error only if a later operation
 * needs this rank. */
RCN_EXPORT rcnResult_t rcnCommDestroy(rcnComm_t comm);

/* Ends the communicator at once, from any thread: a blocked call of it returns with an error, peers are
 * told, memory is freed. The handle is dead afterwards. */
RCN_EXPORT rcnResult_t rcnCommAbort(rcnComm_t comm);

/* Number of ranks, and this rank's number. */
RCN_EXPORT rcnResult_t rcnCommCount(rcnComm_t comm, int* count);
RCN_EXPORT rcnResult_t rcnCommUserRank(rcnComm_t comm, int* rank);

/* `*async_error` becomes the error that poisoned the communicator, or rcnSuccess. Any thread; never
 * blocks. */
RCN_EXPORT rcnResult_t rcnCommGetAsyncError(rcnComm_t comm, rcnResult_t* async_error);

/* Counters since init. Any thread; rows are each a consistent pair only when no call is running. */
RCN_EXPORT rcnResult_t rcnCommGetStats(rcnComm_t comm, rcnCommStats_t* stats);

/* The name of the transport that reaches `peer` ("self", "loopback", "shm", ...), valid as long as `comm`.
 */
RCN_EXPORT rcnResult_t rcnCommGetTransport(rcnComm_t comm, int peer, const char** name);

/* Memory for the buffers of calls, page-aligned and zero: of the device that ROCENANTE_DEVICE names now,
 * for the calling thread. On host memory it is host memory; on a CUDA device that shares its memory with
 * the host it is host memory that the device and NICs read, on others the device's own. size 0 gives NULL.
 * Free with rcnMemFree, never otherwise, and not while a call may use it; freeing on a device may keep the
 * memory until no communicator of the process is on one. rcnMemFree(NULL) does nothing; InvalidArgument for
 * a pointer that rcnMemAlloc did not give. Any thread. */
RCN_EXPORT rcnResult_t rcnMemAlloc(void** ptr, size_t size);
RCN_EXPORT rcnResult_t rcnMemFree(void* ptr);

/* Makes an operator "multiply each rank's value by `*scalar`, rounded once to the type, then sum", valid
 * for `datatype` on `comm`. `scalar` points at one element of `datatype` in host memory; only
 * rcnScalarHostImmediate is supported. Free with rcnRedOpDestroy. */
RCN_EXPORT rcnResult_t rcnRedOpCreatePreMulSum(rcnRedOp_t* op, void* scalar, rcnDataType_t datatype,
                                               rcnScalarResidence_t residence, rcnComm_t comm);
RCN_EXPORT rcnResult_t rcnRedOpDestroy(rcnRedOp_t op, rcnComm_t comm);

/* recvbuff[i] = op over ranks of sendbuff[i], for i < count, with the same bits on every rank. Collective:
 * all ranks pass the same count, datatype and op. Any alignment; sendbuff == recvbuff is in place, other
 * overlap is not allowed (InvalidArgument). count 0 returns at once. Inside a group the call is noted and
 * done by rcnGroupEnd.
 *
 * Host memory: `stream` must be NULL and the result is in place when the call returns.
 * A device with streams (ROCENANTE_DEVICE): the buffers are the device's, and the call returns as soon as
 * it is enqueued on `stream`, whether or not other ranks have made theirs. The calls of a communicator run
 * one after the other, whatever their streams. A stream may be in a capture: the call runs whenever the
 * graph does, in order with the communicator's other calls, and the graph keeps the memory it needs. The
 * streams of one group are all in no capture or all in one (InvalidUsage). How an enqueued call has ended
 * says rcnCommGetAsyncError.
 *
 * One call moves at most 2^40 bytes (InvalidArgument). After an error other than InvalidArgument, or the
 * InvalidUsage that asks for a group, the communicator is poisoned and recvbuff undefined. */
RCN_EXPORT rcnResult_t rcnAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                    rcnDataType_t datatype, rcnRedOp_t op, rcnComm_t comm, void* stream);

/* The other collectives, on host memory only (InvalidUsage on a device with streams). What rcnAllReduce
 * says of ranks, alignment, groups, count 0 and errors holds for each. Where a buffer holds one block for
 * each rank, the blocks stand in rank order. Buffers may overlap only in the place named as "in place"
 * (InvalidArgument otherwise).
 *
 * Block r of recvbuff = sendbuff of rank r; a block has sendcount elements. In place: sendbuff == recvbuff
 * + rank * sendcount elements. */
RCN_EXPORT rcnResult_t rcnAllGather(const void* sendbuff, void* recvbuff, size_t sendcount,
                                    rcnDataType_t datatype, rcnComm_t comm, void* stream);

/* recvbuff = op over ranks of block `rank` of sendbuff, with the bits that rcnAllReduce gives; a block has
 * recvcount elements. In place: recvbuff == sendbuff + rank * recvcount elements. */
RCN_EXPORT rcnResult_t rcnReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                        rcnDataType_t datatype, rcnRedOp_t op, rcnComm_t comm,
                                        void* stream);

/* recvbuff = sendbuff of rank `root`, on every rank; the others' sendbuff is not looked at. In place, on
 * the root: sendbuff == recvbuff. InvalidArgument if root is outside [0, nranks). Ranks that name different
 * roots get InvalidUsage. */
RCN_EXPORT rcnResult_t rcnBroadcast(const void* sendbuff, void* recvbuff, size_t count,
                                    rcnDataType_t datatype, int root, rcnComm_t comm, void* stream);

/* The root's recvbuff = what rcnAllReduce gives; the others' recvbuff is not looked at. In place, on the
 * root: sendbuff == recvbuff. Of root as rcnBroadcast. */
RCN_EXPORT rcnResult_t rcnReduce(const void* sendbuff, void* recvbuff, size_t count, rcnDataType_t datatype,
                                 rcnRedOp_t op, int root, rcnComm_t comm, void* stream);

/* Block r of recvbuff = block `rank` of rank r's sendbuff; a block has count elements. Not in place. */
RCN_EXPORT rcnResult_t rcnAlltoAll(const void* sendbuff, void* recvbuff, size_t count,
                                   rcnDataType_t datatype, rcnComm_t comm, void* stream);

/* Between start and end, calls of this thread are noted; the end performs them all together, in issue order
 * per communicator. Nests; the outermost end acts and returns the first error. Needed when several
 * communicators of one world are driven by one thread. */
RCN_EXPORT rcnResult_t rcnGroupStart(void);
RCN_EXPORT rcnResult_t rcnGroupEnd(void);

/* Writes a text about the library into `buffer` (capacity in bytes, always NUL terminated if > 0) and
 * the length it needs, without the NUL, into `*length`. Topics: "info" (version, build, processor targets,
 * what would be used here and why), "config" (the settings in force), "config.md" (their reference page).
 */
RCN_EXPORT rcnResult_t rcnDescribe(const char* topic, char* buffer, size_t capacity, size_t* length);

#ifdef __cplusplus
}
#endif

#endif /* ROCENANTE_ROCENANTE_H_ */
