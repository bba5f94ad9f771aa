#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the protocol text for GPUs and reads the result: the words that other processors write are
acquired, and the own are released, at system scope; nothing is read through the non-coherent path.

Usage: check_device.py <repository> <scratch directory>. Exits with 77 where there is no nvcc.
"""

import os
import re
import shutil
import subprocess
import sys

ARCHITECTURES = ["sm_90", "sm_121"]
SKIPPED = 77

# What the kernel `one_shot` must contain: poll's look at the signal and at the abort word, the doorbell's
# epoch and publish's signal, publish's fence.
WANTED = {"ld.acquire.sys": 2, "st.release.sys": 2, "fence.sc.sys": 1, "atom.acq_rel.gpu": 2}
FORBIDDEN = ["ld.global.nc"]


def find_nvcc():
    found = shutil.which("nvcc")
    if found:
        return found
    beside = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "nvcc")
    return beside if os.access(beside, os.X_OK) else None


def compile_text(nvcc, repository, output, kind, architecture):
    source = os.path.join(repository, "tests/protocol/device_compile.cu")
    command = [nvcc, "-std=c++20", f"-arch={architecture}", f"-I{repository}", "-Werror", "all-warnings"]
    subprocess.run(command + [kind, source, "-o", output], check=True)


def kernel_text(ptx, name):
    match = re.search(r"\.visible \.entry \S*" + name + r"\S*\(.*?\n}\n", ptx, re.DOTALL)
    return match.group(0) if match else ""


def check_ptx(path, architecture):
    with open(path, encoding="utf-8") as file:
        ptx = file.read()
    wrong = [f"{architecture}: {text} in the PTX" for text in FORBIDDEN if text in ptx]
    kernel = kernel_text(ptx, "one_shot")
    for text, least in WANTED.items():
        count = kernel.count(text)
        print(f"{architecture}: {text} x{count}")
        if count < least:
            wrong.append(f"{architecture}: {text} occurs {count} times in one_shot, not {least}")
    return wrong


def check_sass(nvcc, path, architecture):
    cuobjdump = os.path.join(os.path.dirname(nvcc), "cuobjdump")
    if not os.access(cuobjdump, os.X_OK):
        print(f"{architecture}: no cuobjdump, the machine code is not read")
        return []
    sass = subprocess.run([cuobjdump, "-sass", path], check=True, capture_output=True, text=True).stdout
    strong = len(re.findall(r"\bLDG?\.E\.64\.STRONG\.SYS", sass))
    print(f"{architecture}: 64-bit loads at system scope in the machine code: {strong}")
    wrong = [] if strong >= 2 else [f"{architecture}: no strong system-scope loads in the machine code"]
    if re.search(r"\bLDG?\.\S*CONSTANT", sass):
        wrong.append(f"{architecture}: non-coherent loads in the machine code")
    return wrong


def main():
    repository, scratch = sys.argv[1:3]
    nvcc = find_nvcc()
    if not nvcc:
        print("skipped: no nvcc on this machine (looked in PATH and CUDA_HOME)")
        return SKIPPED
    os.makedirs(scratch, exist_ok=True)
    wrong = []
    for architecture in ARCHITECTURES:
        ptx = os.path.join(scratch, f"protocol.{architecture}.ptx")
        cubin = os.path.join(scratch, f"protocol.{architecture}.cubin")
        compile_text(nvcc, repository, ptx, "-ptx", architecture)
        compile_text(nvcc, repository, cubin, "-cubin", architecture)
        wrong += check_ptx(ptx, architecture) + check_sass(nvcc, cubin, architecture)
    for line in wrong:
        print("WRONG:", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
