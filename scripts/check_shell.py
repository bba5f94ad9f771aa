#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks shell scripts: bash -n, strict mode, and shellcheck where it is installed."""
import shutil
import subprocess

import source_files


def is_script(root, path):
    if path.suffix in (".sh", ".bash"):
        return True
    with open(root / path, "rb") as file:
        return file.readline().startswith((b"#!/usr/bin/env bash", b"#!/bin/bash", b"#!/bin/sh"))


def check(root):
    scripts = [str(path) for path in source_files.list_files(root) if is_script(root, path)]
    findings = []
    for script in scripts:
        done = subprocess.run(["bash", "-n", script], cwd=root, capture_output=True, text=True)
        findings += done.stderr.splitlines()
        if "\nset -euo pipefail\n" not in (root / script).read_text():
            findings.append(f"{script}:1: without 'set -euo pipefail' a failed command goes unnoticed")
    if scripts and shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", "-f", "gcc", *scripts], cwd=root, capture_output=True, text=True)
        findings += done.stdout.splitlines()
    else:
        print("note: shellcheck is not installed; bash -n alone has looked at the scripts")
    return findings


if __name__ == "__main__":
    source_files.main(__doc__, check)
