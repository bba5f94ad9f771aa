#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where libnccl.so.2 finds the real NCCL, and what it says where it does not. The real one is the recorder, laid out
as an installation would have it."""
import _ctypes
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

INVALID_ARGUMENT, SYSTEM_ERROR = 4, 2
CHILD = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.ncclGetErrorString.restype = library.ncclGetLastError.restype = ctypes.c_char_p
version = ctypes.c_int()
print(library.ncclGetVersion(ctypes.byref(version)), library.ncclGetErrorString(1).decode(),
      library.ncclGetLastError(None).decode(), sep="|")
"""
RECORDED = "recorded error string"


class Case:
    def __init__(self, ours, recorder, needs_us, folder):
        self.ours, self.recorder, self.needs_us, self.folder = ours, recorder, needs_us, folder

    def run(self, interpreter=sys.executable, **environment):
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("ROCENANTE_", "LD_", "CUDA_", "VIRTUAL_ENV"))}
        done = subprocess.run([interpreter, "-c", CHILD, str(self.ours)], capture_output=True, text=True,
                              env={**clean, **environment}, timeout=120)
        if done.returncode != 0:
            sys.exit(f"exit {done.returncode}: {done.stderr}")
        result, text, last = done.stdout.strip().split("|", 2)
        return int(result), text, last

    def place(self, *parts):
        target = self.folder.joinpath(*parts)
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.recorder, target / "libnccl.so.2")
        return target


def expect(condition, what, found):
    if not condition:
        sys.exit(f"{what}: {found}")


def check(case):
    found = case.run(ROCENANTE_FALLBACK="off", ROCENANTE_NCCL_PATH=str(case.recorder))
    expect(found[0] == 0 and found[1] != RECORDED, "off never loads it", found)
    found = case.run(ROCENANTE_FALLBACK="require", ROCENANTE_NCCL_PATH=str(case.recorder))
    expect(found[:2] == (0, RECORDED), "a file", found)
    folder = case.place("folder")
    found = case.run(ROCENANTE_FALLBACK="require", ROCENANTE_NCCL_PATH=str(folder))
    expect(found[:2] == (0, RECORDED), "a folder", found)

    # Ours comes first on the path, and is not what is wanted.
    found = case.run(ROCENANTE_FALLBACK="require", LD_LIBRARY_PATH=f"{case.ours.parent}:{folder}")
    expect(found[:2] == (0, RECORDED), "the loader's path", found)
    found = case.run(ROCENANTE_FALLBACK="require", LD_PRELOAD=str(case.ours), LD_LIBRARY_PATH=str(folder))
    expect(found[:2] == (0, RECORDED), "preloaded, and the loader's path", found)
    shutil.rmtree(folder)

    # A virtual environment: the interpreter is a link into it.
    environment = case.folder / "venv"
    case.place("venv", "lib", "python3.11", "site-packages", "nvidia", "nccl", "lib")
    found = case.run(ROCENANTE_FALLBACK="require", VIRTUAL_ENV=str(environment))
    expect(found[:2] == (0, RECORDED), "VIRTUAL_ENV", found)
    (environment / "bin").mkdir()
    (environment / "bin" / "python3").symlink_to(os.path.realpath(sys.executable))
    found = case.run(interpreter=str(environment / "bin" / "python3"), ROCENANTE_FALLBACK="require",
                     PYTHONHOME=sys.base_prefix)
    expect(found[:2] == (0, RECORDED), "packages beside the interpreter", found)
    shutil.rmtree(environment)

    for path, text in {"/nowhere/libnccl.so.2": "no such file", str(case.ours): "this library itself"}.items():
        found = case.run(ROCENANTE_FALLBACK="require", ROCENANTE_NCCL_PATH=path)
        expect(found[0] == SYSTEM_ERROR and f"ROCENANTE_NCCL_PATH={path}: {text}" in found[2], path, found)
    nothing = case.folder / "nothing"
    nothing.mkdir()
    pipe = case.folder / "pipe"
    os.mkfifo(pipe)
    for path, text in {nothing: "no such file", pipe: "not a file", "/dev/zero": "not a file", "libc.so.6": "no such file",
                       case.needs_us: "no functions of NCCL but those of this library",
                       _ctypes.__file__: "no ncclGetVersion that answers"}.items():
        for way in ({}, {"LD_PRELOAD": str(case.ours)}):
            found = case.run(ROCENANTE_FALLBACK="require", ROCENANTE_NCCL_PATH=str(path), **way)
            expect(found[0] == SYSTEM_ERROR and f"ROCENANTE_NCCL_PATH={path}: " in found[2] and text in found[2], path, found)
    copy = case.folder / "copy.so"
    shutil.copy(case.ours, copy)
    found = case.run(ROCENANTE_FALLBACK="require", ROCENANTE_NCCL_PATH=str(copy))
    expect(found[0] == SYSTEM_ERROR and "a copy of this library" in found[2], "a copy", found)
    broken = case.folder / "broken.so"
    broken.write_text("not a library")
    found = case.run(ROCENANTE_FALLBACK="require", ROCENANTE_NCCL_PATH=str(broken))
    expect(found[0] == SYSTEM_ERROR and "broken.so" in found[2], "no library at all", found)
    found = case.run(ROCENANTE_FALLBACK="sometimes")
    expect(found[0] == INVALID_ARGUMENT and "auto|off|require" in found[2], "a bad switch", found)


def main():
    with tempfile.TemporaryDirectory() as folder:
        check(Case(*(pathlib.Path(path).resolve() for path in sys.argv[1:4]), pathlib.Path(folder)))


if __name__ == "__main__":
    main()
