#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""wheels_client.py NAME LIBRARY: imports PyTorch or CuPy and prints the version of NCCL that it reaches, once it is
certain that LIBRARY is what it calls. Run by wheels-test.sh."""
import ctypes
import os
import sys


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def use_torch(ours):
    """PyTorch's version() is what it was built with. Its ids come from the library that it calls: in our own world
    only ours makes what ours accepts."""
    import torch
    made = torch.cuda.nccl.unique_id()
    if os.environ["ROCENANTE_FALLBACK"] == "off":
        comm = ctypes.c_void_p()
        if ours.ncclCommInitRank(ctypes.byref(comm), 1, UniqueId.from_buffer_copy(made), 0) != 0:
            sys.exit(f"an id of torch's is not ours: {ours.ncclGetLastError(None).decode()}")
        ours.ncclCommDestroy(comm)
    return torch.__version__


def use_cupy(ours):
    import cupy
    from cupy.cuda import nccl
    if nccl.get_version() != number_of(ours):
        sys.exit(f"cupy sees {nccl.get_version()}, and ours says {number_of(ours)}")
    return cupy.__version__


def number_of(library):
    number = ctypes.c_int()
    if library.ncclGetVersion(ctypes.byref(number)) != 0:
        sys.exit("ncclGetVersion fails")
    return number.value


def text_of(number):
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def mapped_nccl():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if len(line.split(maxsplit=5)) == 6}
    return {path for path in paths if os.path.basename(path).startswith("libnccl.so")}


def main():
    name, path = sys.argv[1:]
    ours = ctypes.CDLL(path)
    ours.ncclGetLastError.restype = ctypes.c_char_p
    release = {"torch": use_torch, "cupy": use_cupy}[name](ours)
    found = mapped_nccl()
    if path not in found:
        sys.exit(f"{path} is not mapped, but {found}")
    # A wheel may open its own by path; what it calls is bound to the first all the same.
    others = [number_of(ctypes.CDLL(other)) for other in found - {path}]
    if os.environ["ROCENANTE_FALLBACK"] == "off" and number_of(ours) in others:
        sys.exit(f"one cannot tell whose version {text_of(number_of(ours))} is")
    beside = "".join(f", its own {text_of(other)} beside it" for other in others)
    print(f"{name} {release} reaches {text_of(number_of(ours))}{beside}")


if __name__ == "__main__":
    main()
