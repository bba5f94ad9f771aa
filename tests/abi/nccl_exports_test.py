#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what libnccl.so.2 exports with its list, with NCCL's releases, and with the NCCL of this machine."""
import argparse
import glob
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "nccl_shim" / "libnccl"))
import generate  # noqa: E402

# Names that single releases let slip out, and no header declares.
NOT_API = {"__bss_start", "_edata", "_end", "ncclParamDumpAllFlag", "ncclParamDumpAllFlagKey", "ncclParamEnvPluginGet",
           "ncclParamIsCacheDisabled", "ncclParamNoCacheStr", "ncclParamNoCacheStrKey", "ncclParamRegistryInstance"}
DECLARED = re.compile(r"(?<!static )\b(?:ncclResult_t|const char\s?\*|void|int|ncclTeam_t)\s+\*?(p?nccl[A-Z]\w+)\s*\(([^)]*)\)\s*;")
# Declared in the headers for device code or inline, or only for another system; no library exports them.
HEADER_ONLY = re.compile(r"INLINE|__device__|NCCL_OS_WINDOWS")


def version(text):
    return tuple(int(part) for part in text.split("."))


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", str(library)], check=True, capture_output=True, text=True,
                         env={**os.environ, "LC_ALL": "C"}).stdout
    return {fields[2].partition("@")[0]: fields[1] for fields in map(str.split, out.splitlines()) if len(fields) == 3}


def installed_libraries():
    patterns = ["/usr/local/cuda*/lib*/libnccl.so.2", "/usr/lib/*-linux-gnu/libnccl.so.2",
                f"{sys.prefix}/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2",
                *[f"{folder}/libnccl.so.2" for folder in os.environ.get("NCCL_TEST_FOLDERS", "").split(":") if folder]]
    return sorted({os.path.realpath(path) for pattern in patterns for path in glob.glob(pattern)})


def installed_headers():
    patterns = ["/usr/local/cuda*/include", "/usr/include", f"{sys.prefix}/lib/python3*/site-packages/nvidia/nccl/include"]
    folders = {os.path.realpath(path) for pattern in patterns for path in glob.glob(pattern)}
    return sorted(pathlib.Path(folder) for folder in folders if (pathlib.Path(folder) / "nccl.h").exists())


def check_own(found, rows):
    expected = {name for row in rows for name in generate.exported_names(row)}
    yield from (f"exports {name}, which exports.txt does not list" for name in sorted(set(found) - expected))
    yield from (f"does not export {name}" for name in sorted(expected - set(found)))
    for row in rows:
        names = generate.exported_names(row)
        if len(names) == 2 and found.get(names[0]) != "W":
            yield f"{names[0]} is not weak"


def check_releases(rows):
    """The lists of names were read from the wheels of these versions."""
    for path in sorted((ROOT / "tests" / "abi" / "nccl_names").glob("*.txt")):
        theirs = set(path.read_text().split())
        ours = {f"nccl{row.name}" for row in rows if version(row.since) <= version(path.stem)}
        yield from (f"{path.stem}: {name} is missing, or since a later version" for name in sorted(theirs - ours))
        yield from (f"{path.stem}: {name} is not in it" for name in sorted(ours - theirs))


def check_library(path, found):
    theirs = {name for name in exported(path) if name not in NOT_API and not name.lstrip("p").startswith("_")}
    theirs = {name for name in theirs if name.removeprefix("p") not in NOT_API}
    print(f"note: compared with {path}: {len(theirs)} names")
    yield from (f"does not export {name} of {path}" for name in sorted(theirs - set(found)))


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def check_headers(folder, found):
    names = set()
    for header in [folder / "nccl.h", *sorted((folder / "nccl_device").glob("*.h"))]:
        text = without_comments(header.read_text(errors="replace"))
        for line in re.split(r"(?<=[;{}])", text):
            if HEADER_ONLY.search(line):
                continue
            flat = " ".join(line.split())
            match = DECLARED.search(flat.replace("__host__ ", ""))
            if match:
                names.add(match[1])
    names -= {"ncclCftBarrierCreateRequirement"}  # declared in 2.32 and exported by no library yet
    print(f"note: compared with the headers in {folder}: {len(names)} functions")
    if not names:
        yield f"no function is declared in {folder}: the pattern no longer fits"
    yield from (f"does not export {name}, declared in {folder}" for name in sorted(names - set(found)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", type=pathlib.Path)
    options = parser.parse_args()
    rows = generate.read_rows(ROOT / "nccl_shim" / "libnccl" / "exports.txt")
    found = exported(options.library)
    findings = [*check_own(found, rows), *check_releases(rows)]
    own = os.path.realpath(options.library)
    libraries = [path for path in installed_libraries() if path != own]
    for path in libraries:
        findings += check_library(path, found)
    headers = installed_headers()
    for folder in headers:
        findings += check_headers(folder, found)
    if not libraries:
        print("note: no NCCL is installed here: compared with the lists of its releases only")
    if not headers:
        print("note: no nccl.h is installed here")
    for finding in findings:
        print(f"{options.library.name}: {finding}")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
