#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the ctypes wrappers of inference engines bind and call, on host memory: the library by name or path, ids
as bytes, one process per rank."""
import argparse
import ctypes
import os
import sys

RESULT = ctypes.c_int
COMM = ctypes.c_void_p
STREAM = ctypes.c_void_p
BUFFER = ctypes.c_void_p
SIZE = ctypes.c_size_t
INT = ctypes.c_int
FLOAT32, SUM = 7, 0
SUCCESS, INVALID_ARGUMENT, INVALID_USAGE = 0, 4, 5


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


# All are looked up when the library is opened: one that is missing is fatal to such an engine.
FUNCTIONS = {
    "ncclGetErrorString": (ctypes.c_char_p, [RESULT]),
    "ncclGetVersion": (RESULT, [ctypes.POINTER(INT)]),
    "ncclGetUniqueId": (RESULT, [ctypes.POINTER(UniqueId)]),
    "ncclCommInitRank": (RESULT, [ctypes.POINTER(COMM), INT, UniqueId, INT]),
    "ncclAllReduce": (RESULT, [BUFFER, BUFFER, SIZE, INT, INT, COMM, STREAM]),
    "ncclReduce": (RESULT, [BUFFER, BUFFER, SIZE, INT, INT, INT, COMM, STREAM]),
    "ncclAllGather": (RESULT, [BUFFER, BUFFER, SIZE, INT, COMM, STREAM]),
    "ncclReduceScatter": (RESULT, [BUFFER, BUFFER, SIZE, INT, INT, COMM, STREAM]),
    "ncclSend": (RESULT, [BUFFER, SIZE, INT, INT, COMM, STREAM]),
    "ncclRecv": (RESULT, [BUFFER, SIZE, INT, INT, COMM, STREAM]),
    "ncclBroadcast": (RESULT, [BUFFER, BUFFER, SIZE, INT, INT, COMM, STREAM]),
    "ncclCommDestroy": (RESULT, [COMM]),
    "ncclCommAbort": (RESULT, [COMM]),
    "ncclGroupStart": (RESULT, []),
    "ncclGroupEnd": (RESULT, []),
    "ncclCommWindowRegister": (RESULT, [COMM, BUFFER, SIZE, ctypes.POINTER(ctypes.c_void_p), INT]),
    "ncclCommWindowDeregister": (RESULT, [COMM, ctypes.c_void_p]),
    "ncclGetLastError": (ctypes.c_char_p, [COMM]),
    "ncclMemAlloc": (RESULT, [ctypes.POINTER(ctypes.c_void_p), SIZE]),
    "ncclMemFree": (RESULT, [ctypes.c_void_p]),
}


class Library:
    def __init__(self, path):
        self.handle = ctypes.CDLL(path)
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(self.handle, name)
            function.restype, function.argtypes = result, arguments

    def call(self, name, *arguments):
        result = getattr(self.handle, name)(*arguments)
        if result != SUCCESS:
            raise RuntimeError(f"{name}: {self.handle.ncclGetErrorString(result).decode()}: {self.last_error()}")

    def last_error(self):
        return self.handle.ncclGetLastError(None).decode()

    def expect(self, result, text, name, *arguments):
        found = getattr(self.handle, name)(*arguments)
        if found != result or text not in self.last_error():
            raise RuntimeError(f"{name}: {found}, '{self.last_error()}', expected {result}, '{text}'")


def expect_not_native(library, comm, buffer):
    """Told in words, and the communicator lives on."""
    for name, arguments in {
            "ncclSend": (buffer, 1, FLOAT32, 0, comm, None),
            "ncclRecv": (buffer, 1, FLOAT32, 0, comm, None),
            "ncclCommWindowRegister": (comm, buffer, 4096, ctypes.byref(ctypes.c_void_p()), 1),
            "ncclCommWindowDeregister": (comm, None)}.items():
        library.expect(INVALID_USAGE, "not native yet", name, *arguments)


def check_collectives(library, comm, rank, ranks):
    """The other collectives, out of place and in place where engines use them so."""
    count = 1000
    last = ranks - 1

    def array(values):
        return (ctypes.c_float * len(values))(*values)

    def equal(name, found, expected):
        if list(found) != list(expected):
            raise RuntimeError(f"{name}: {list(found)[:8]}, expected {list(expected)[:8]}")

    def part(of):
        return [float(of * 7 + i % 50) for i in range(count)]

    gathered = [value for other in range(ranks) for value in part(other)]
    whole = array([0.0] * (count * ranks))
    library.call("ncclAllGather", array(part(rank)), whole, count, FLOAT32, comm, None)
    equal("ncclAllGather", whole, gathered)
    whole = array([0.0] * (count * ranks))
    whole[rank * count:(rank + 1) * count] = part(rank)
    own = ctypes.addressof(whole) + 4 * rank * count
    library.call("ncclAllGather", own, whole, count, FLOAT32, comm, None)
    equal("ncclAllGather in place", whole, gathered)
    sums = array([0.0] * count)
    library.call("ncclReduceScatter", array([value * (rank + 1) for value in gathered]), sums, count, FLOAT32, SUM,
                 comm, None)
    factor = ranks * (ranks + 1) // 2
    equal("ncclReduceScatter", sums, [value * factor for value in part(rank)])
    copy = array([0.0] * count)
    library.call("ncclBroadcast", array(part(last)) if rank == last else None, copy, count, FLOAT32, last, comm, None)
    equal("ncclBroadcast", copy, part(last))
    total = array([0.0] * count)
    library.call("ncclReduce", array(part(0)), total if rank == last else None, count, FLOAT32, SUM, last, comm, None)
    equal("ncclReduce", total, [value * ranks for value in part(0)] if rank == last else [0.0] * count)
    library.expect(INVALID_ARGUMENT, f"root is {ranks}", "ncclBroadcast", copy, copy, 1, FLOAT32, ranks, comm, None)


def run_rank(path, rank, ranks, receive, send):
    library = Library(path)
    version = INT()
    library.call("ncclGetVersion", ctypes.byref(version))
    assert version.value >= 22800, version.value
    unique_id = UniqueId()
    if rank == 0:
        library.call("ncclGetUniqueId", ctypes.byref(unique_id))
        for pipe in send:
            os.write(pipe, bytes(unique_id))
    else:
        unique_id = UniqueId.from_buffer_copy(os.read(receive, 128))
    comm = COMM()
    library.call("ncclCommInitRank", ctypes.byref(comm), ranks, unique_id, rank)
    for count in (1, 4096, 100000):
        values = (ctypes.c_float * count)(*[rank + i % 100 for i in range(count)])
        sums = (ctypes.c_float * count)()
        library.call("ncclAllReduce", values, sums, count, FLOAT32, SUM, comm, None)
        expected = [sum(other + i % 100 for other in range(ranks)) for i in range(min(count, 100))]
        assert list(sums)[:100] == expected, (list(sums)[:10], expected[:10])
    library.call("ncclGroupStart")
    library.call("ncclAllReduce", values, sums, 10, FLOAT32, SUM, comm, None)
    library.call("ncclGroupEnd")
    check_collectives(library, comm, rank, ranks)
    expect_not_native(library, comm, ctypes.addressof(values))
    library.call("ncclAllReduce", values, sums, 10, FLOAT32, SUM, comm, None)
    library.call("ncclCommDestroy", comm)
    library.expect(INVALID_ARGUMENT, "has been destroyed", "ncclCommDestroy", comm)
    library.expect(INVALID_ARGUMENT, "has been destroyed", "ncclAllReduce", values, sums, 1, FLOAT32, SUM, comm, None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", help="what an engine would give to ctypes: a name or a path")
    parser.add_argument("ranks", type=int)
    options = parser.parse_args()
    pipes = [os.pipe() for _ in range(options.ranks)]
    children = []
    for rank in range(options.ranks):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                run_rank(options.library, rank, options.ranks, pipes[rank][0], [write for _, write in pipes[1:]])
                code = 0
            except Exception as error:  # a child must not go on as if it were the parent
                print(f"rank {rank}: {error!r}", file=sys.stderr)
            os._exit(code)
        children.append(pid)
    codes = [os.waitpid(pid, 0)[1] for pid in children]
    sys.exit(1 if any(codes) else 0)


if __name__ == "__main__":
    main()
