#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks who includes whom: dependencies between folders only point one way (docs/architecture.md)."""
import pathlib
import re

import source_files

# A folder may include itself and what is listed for it. The order is that of docs/architecture.md; nothing
# lists a folder below itself.
ALLOWED = {
    "include/rocenante": set(),
    "lib/base": set(),
    "lib/net": {"lib/base"},
    "lib/protocol": set(),
    "reduce_kernels": {"lib/base", "lib/protocol"},
    "lib/device": {"lib/base", "lib/protocol", "reduce_kernels"},
    "lib/fabric": {"lib/base", "lib/net"},
    "transports": {"lib/base", "lib/net", "lib/protocol", "lib/device", "lib/fabric"},
    "lib/comm": {"include/rocenante", "lib/base", "lib/net", "lib/protocol", "reduce_kernels", "lib/device",
                 "transports", "lib/fabric"},
    "lib/c_api.cc": {"include/rocenante", "lib/base", "lib/comm"},
    "nccl_shim/libnccl": {"include/rocenante", "lib/base", "lib/net", "reduce_kernels", "lib/device", "lib/comm"},
    "nccl_shim/net": {"lib/base", "transports"},
    "nccl_shim/tuner": {"lib/base"},
    "bench": {"include/rocenante"},
    "examples": {"include/rocenante"},
}
# Single files that may do more than their folder, and why.
EXTRA = {
    "bench/reduce_bench.cc": {"reduce_kernels"},  # measures the kernels without the library around them
    # measure a progress thread's puts over an adapter that sends nothing
    "bench/progress/null_nic.h": {"transports"},
    "bench/progress/progress_bench.cc": {"lib/base", "lib/comm", "lib/device", "transports"},
}
# Who names a concrete transport.
NAMES_TRANSPORTS = {"transports/factory.cc", "bench/progress/null_nic.h", "bench/progress/progress_bench.cc"}
# Third-party headers, by prefix, and who may see them.
THIRD_PARTY = {
    "fmt/": {"lib/base", "lib/comm", "nccl_shim/libnccl"},
    "sodium": {"lib/net"},
    "hwy/": {"reduce_kernels"},
    "CLI/": {"bench"},
    "nlohmann/": {"bench"},
    "benchmark/": {"bench", "nccl_shim/libnccl/nccl_bench.cc"},
    "catch2/": set(),
    "infiniband/": {"transports/verbs", "nccl_shim/net", "bench/verbs_exchange.cc"},
    "rdma/": {"transports/verbs", "nccl_shim/net"},
}
CUDA = re.compile(r"(cuda\w*|cooperative_groups|nvml|cuda/.*|cub/.*)(\.h|\.hpp|\.cuh)?$")
# lib/protocol is compiled for the GPU as well.
PROTOCOL_STANDARD_HEADERS = {"cstdint"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def folder_of(path):
    """The key of ALLOWED that a path belongs to, or None."""
    for length in range(len(path.parts), 0, -1):
        name = "/".join(path.parts[:length])
        if name in ALLOWED:
            return name
    return None


def transport_of(path):
    """X for transports/X/..., else None."""
    return path.parts[1] if path.parts[0] == "transports" and len(path.parts) > 2 else None


def within(path, folders):
    return any(str(path) == folder or str(path).startswith(folder + "/") for folder in folders)


def check_own(path, target, folder):
    """What is wrong with `path` including the file `target` of this repository; None if nothing."""
    if target.parts[0] in ("nccl_shim", "bench", "tests") and target.parts[0] != path.parts[0]:
        return f"nothing includes {target.parts[0]}/"
    if folder is None:
        return f"{path.parts[0]}/ is not in the list of folders (scripts/check_includes.py)"
    other = folder_of(target)
    if other is None:
        return "the included file is in no folder of the list (scripts/check_includes.py)"
    if other != folder and other not in ALLOWED[folder] | EXTRA.get(str(path), set()):
        return f"{folder} may not include {other}"
    theirs = transport_of(target)
    if theirs and theirs != transport_of(path) and str(path) not in NAMES_TRANSPORTS:
        return "only transports/factory.cc names a concrete transport"
    return None


def check_system(path, name, folder):
    """The same for a header that is not of this repository."""
    if folder == "lib/protocol" and name not in PROTOCOL_STANDARD_HEADERS:
        return "lib/protocol may include <cstdint> only"
    if CUDA.match(name):
        if path.suffix not in (".cu", ".cuh") and not str(path).startswith(("lib/device/cuda_", "reduce_kernels/cuda/")):
            return "CUDA headers only in .cu files, reduce_kernels/cuda and lib/device/cuda_*"
        return None
    for prefix, folders in THIRD_PARTY.items():
        if name.startswith(prefix) and not within(path, folders):
            return f"only {', '.join(sorted(folders)) or 'tests'} may include {prefix}"
    return None


def check(root):
    findings = []
    for path in filter(source_files.is_cxx, source_files.list_files(root)):
        in_tests = path.parts[0] == "tests"
        folder = folder_of(path)
        text = source_files.read(root, path) or ""
        for match in INCLUDE.finditer(text):
            name = match[2]
            target = pathlib.PurePath("include", name) if name.startswith("rocenante/") else pathlib.PurePath(name)
            if (root / target).is_file():
                fault = None if in_tests else check_own(path, target, folder)
            elif match[1] == '"' and (root / path.parent / name).is_file():
                fault = "own headers are included by their path from the root"
            elif in_tests:
                # Tests see everything, but need no hardware library either.
                fault = check_system(path, name, folder) if name.startswith("infiniband/") else None
            else:
                fault = check_system(path, name, folder)
            if fault:
                line = text.count("\n", 0, match.start()) + 1
                findings.append(f"{path}:{line}: {name}: {fault}")
    return findings


if __name__ == "__main__":
    source_files.main(__doc__, check)
