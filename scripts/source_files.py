# SPDX-License-Identifier: Apache-2.0
"""What the checks have in common: which files there are, and how findings are reported."""
import argparse
import os
import pathlib
import subprocess
import sys

CXX = {".h", ".cc", ".c", ".cu", ".cuh"}


# Inputs of fuzzers are any bytes.
NOT_SOURCES = ("tests/fuzz/corpus/",)


def list_files(root):
    """Paths relative to root: git's where there is a git (tracked, and new ones that are not ignored)."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                check=True, capture_output=True).stdout
        names = sorted(set(os.fsdecode(listed).split("\0")) - {""})
        return [pathlib.PurePath(name) for name in names
                if (root / name).is_file() and not name.startswith(NOT_SOURCES)]
    return sorted(path.relative_to(root) for path in root.rglob("*")
                  if path.is_file() and not path.relative_to(root).parts[0].startswith(("build", ".git")))


def is_cxx(path):
    return path.suffix in CXX


def read(root, path):
    """The text of a file, or None if it is not text."""
    try:
        return (root / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def main(description, check):
    """Runs check(root), which returns a list of findings, and exits 1 if there are any."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root.resolve()
    findings = check(root)
    for finding in findings:
        print(finding)
    if findings:
        print(f"{len(findings)} finding(s)", file=sys.stderr)
        sys.exit(1)
