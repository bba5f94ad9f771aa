#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that clang-format, version 14, would change no C++ file. Exits 77 where it is not installed and
scripts/deps.sh could not have installed it."""
import shutil
import subprocess
import sys

import source_files

# Versions format differently, so there is one.
VERSION = "14"
SKIPPED = 77


def find_tool(name):
    """The pinned tool. Its absence is a fault where scripts/deps.sh installs it, else a reason to skip."""
    for candidate in (f"{name}-{VERSION}", name):
        tool = shutil.which(candidate)
        if tool and f"version {VERSION}." in subprocess.run([tool, "--version"], capture_output=True, text=True).stdout:
            return tool
    if shutil.which("dpkg-query"):
        print(f"{name}-{VERSION} is not installed: run scripts/deps.sh")
        sys.exit(1)
    print(f"skipped: {name} version {VERSION} is not installed")
    sys.exit(SKIPPED)


def check(root):
    tool = find_tool("clang-format")
    files = [str(path) for path in source_files.list_files(root) if source_files.is_cxx(path)]
    if not files:
        return []
    done = subprocess.run([tool, "--dry-run", "-Werror", "--style=file", "--fallback-style=none", *files], cwd=root,
                          capture_output=True, text=True)
    findings = [line for line in done.stderr.splitlines() if ": error:" in line]
    if done.returncode != 0 and not findings:
        findings = [done.stderr]
    if findings:
        findings.append(f"repair with: {tool} -i FILE...")
    return findings


if __name__ == "__main__":
    source_files.main(__doc__, check)
