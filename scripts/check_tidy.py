#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy (.clang-tidy) over the library's sources, as the compile commands of a build have them.

clang-tidy takes seconds per file, so a file is looked at again only when something it depends on has
changed: itself, what it includes of this repository, its command, the settings or the tool. What passed is
remembered in <build>/tidy; what failed is not, so a fault is reported until it is repaired."""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

import check_format

FOLDERS = ("lib/", "reduce_kernels/", "transports/", "bench/", "nccl_shim/")
# Compiled once per SIMD target from within, half a minute each. One of the five stands for the text they
# share; format.cc holds nothing of ours.
SKIPPED = {"reduce_kernels/fp8_kernels.cc", "reduce_kernels/half_kernels.cc", "reduce_kernels/integer_kernels.cc",
           "reduce_kernels/order_kernels.cc", "lib/base/format.cc"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
# What makes a warning of the other compiler an error here, and what only GCC understands.
DROPPED = re.compile(r"-Werror|-fno-builtin-memcpy$")


def own_files(root, source, seen):
    """`source` and all files of this repository it includes, directly or not."""
    if source in seen:
        return seen
    seen.add(source)
    for name in INCLUDE.findall(source.read_text(encoding="utf-8")):
        for candidate in (root / name, root / "include" / name, source.parent / name):
            if candidate.is_file():
                own_files(root, candidate.resolve(), seen)
                break
    return seen


def digest(root, source, command, base):
    result = hashlib.sha256(base)
    result.update(command.encode())
    for path in sorted(own_files(root, source, set())):
        result.update(str(path).encode() + b"\0" + path.read_bytes() + b"\0")
    return result.hexdigest()


def tidy(tool, root, entry):
    """Output and exit code of clang-tidy for one source."""
    arguments = entry.get("arguments") or shlex.split(entry["command"])
    # Without the launcher (ccache) in front of the compiler, whose name tells the mode.
    if os.path.basename(arguments[0]) == "ccache":
        arguments = arguments[1:]
    arguments = [argument for argument in arguments if not DROPPED.match(argument)]
    done = subprocess.run([tool, "--quiet", f"--config-file={root}/.clang-tidy", str(entry["file"]), "--", *arguments[1:]],
                          cwd=entry["directory"], capture_output=True, text=True)
    # Its count of suppressed warnings goes to stderr; real faults of the command too.
    return done.stdout + (done.stderr if done.returncode and not done.stdout else ""), done.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build folder with compile_commands.json")
    parser.add_argument("--times", action="store_true", help="print what each file took")
    options = parser.parse_args()
    root = options.root.resolve()
    tool = check_format.find_tool("clang-tidy")
    base = (root / ".clang-tidy").read_bytes() + subprocess.run([tool, "--version"], capture_output=True).stdout
    known = options.build / "tidy"
    known.mkdir(exist_ok=True)

    work = []
    remembered = 0
    for entry in json.loads((options.build / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["directory"], entry["file"]).resolve()
        name = str(source.relative_to(root)) if source.is_relative_to(root) else ""
        if not name.startswith(FOLDERS) or name in SKIPPED or source.suffix == ".S":
            continue
        mark = known / digest(root, source, json.dumps(entry), base)
        if mark.exists():
            remembered += 1
        else:
            work.append((source, entry, mark))

    def one(item):
        start = time.monotonic()
        output, code = tidy(tool, root, item[1])
        return item, output, code, time.monotonic() - start

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for (source, _, mark), output, code, seconds in pool.map(one, work):
            if options.times:
                print(f"{seconds:6.1f} s {source.relative_to(root)}")
            if code == 0:
                mark.touch()
            else:
                failed += 1
                print(output.rstrip() or f"{source}: clang-tidy ended with {code}")
    print(f"{remembered} known, {len(work)} checked, {failed} with findings")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
