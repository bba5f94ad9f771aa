#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loading libnccl.so.2 starts no thread, opens no file and prints nothing; unloading leaves none of it, also when it
was used in between; loading it again works."""
import _ctypes
import ctypes
import os
import subprocess
import sys
import time

ROUNDS = 5
LONGEST_WAIT_S = 60


def counts():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def expect_counts(before, when):
    # A thread that was joined stays in /proc for a moment.
    end = time.monotonic() + LONGEST_WAIT_S
    while counts() != before and time.monotonic() < end:
        time.sleep(0.01)
    if counts() != before:
        sys.exit(f"{when}: {counts()} threads and files, expected {before}")


def mapped():
    with open("/proc/self/maps") as maps:
        return any("libnccl.so" in line for line in maps)


def use(library):
    """Four ranks of this process, made and destroyed."""
    comms = (ctypes.c_void_p * 4)()
    call(library, "ncclCommInitAll", comms, 4, None)
    values = (ctypes.c_float * 4)(1, 2, 3, 4)
    call(library, "ncclGroupStart")
    for rank in range(4):
        address = ctypes.c_void_p(ctypes.addressof(values) + 4 * rank)
        call(library, "ncclAllReduce", address, address, ctypes.c_size_t(1), 7, 0, ctypes.c_void_p(comms[rank]), None)
    call(library, "ncclGroupEnd")
    if list(values) != [10] * 4:
        sys.exit(f"sums are {list(values)}")
    for rank in range(4):
        call(library, "ncclCommDestroy", ctypes.c_void_p(comms[rank]))


def call(library, name, *arguments):
    result = getattr(library, name)(*arguments)
    if result != 0:
        library.ncclGetLastError.restype = ctypes.c_char_p
        sys.exit(f"{name}: {result}: {library.ncclGetLastError(None)}")


def child(path):
    before = counts()
    for round_number in range(ROUNDS):
        library = ctypes.CDLL(path)
        expect_counts(before, "loaded")
        version = ctypes.c_int()
        call(library, "ncclGetVersion", ctypes.byref(version))
        expect_counts(before, "asked for its version")
        if round_number % 2:
            use(library)
        handle = library._handle
        del library
        _ctypes.dlclose(handle)
        expect_counts(before, "unloaded")
        if mapped():
            sys.exit("unloaded, and still mapped")


def main():
    if len(sys.argv) == 3:
        child(sys.argv[1])
        return
    done = subprocess.run([sys.executable, __file__, sys.argv[1], "child"], capture_output=True, text=True)
    if done.returncode != 0 or done.stdout or done.stderr:
        sys.exit(f"exit {done.returncode}, printed: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
