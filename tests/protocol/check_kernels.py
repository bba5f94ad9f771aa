#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the device kernels that the library carries: what other processors write is acquired and the own
released at system scope, nothing is read through the non-coherent path, no arithmetic is contracted, and
registers, spills and the number of kernels are within their budgets.

Usage: check_kernels.py <folder with the compiled kernels> <nvcc> <architecture>...
"""

import os
import re
import shutil
import subprocess
import sys

FAMILIES = ["float", "half", "fp8", "integer", "order"]
# Each kernel costs a second of every build, five times.
MOST_KERNELS = 60
# Names of the kernels that engines wait for: specialised on the number of ranks.
LATENCY = re.compile(r"_sum_(f32|f16|bf16)_[248]$")
MOST_LATENCY_REGISTERS = 40
MOST_REGISTERS = 64

# What each kernel's PTX holds at least: a member's signal and the abort word are acquired; signal, doorbell and
# the device's own abort are released; siblings are counted twice and the abort word claimed; payload is read
# relaxed; the deadline is time; verdicts are gathered by a barrier.
WANTED = {
    r"ld\.acquire\.sys\.global\.u64": 2,
    r"st\.release\.sys\.global\.u64": 3,
    r"atom\.acq_rel\.gpu\.global\.add\.u64": 2,
    r"atom\.acq_rel\.gpu\.global\.cas\.b64": 1,
    r"ld\.relaxed\.sys\.global\.v[24]\.u32": 1,
    r"%globaltimer": 1,
    r"(bar|barrier)\S*\.red\.\S*or": 3,
}
FORBIDDEN = {
    r"\bld\.global\.nc": "a non-coherent load",
    r"\b(fma|mad)\.(rn|rz|rm|rp)": "a contracted operation",
    r"\.ftz\b": "subnormal numbers flushed to zero",
    r"\.approx\b|\bdiv\.full": "an approximation",
}


def entries(ptx):
    """Name and text of every kernel."""
    pattern = re.compile(r"\.entry (\w+)\((.*?\n)}\n", re.DOTALL)
    return {match.group(1): match.group(2) for match in pattern.finditer(ptx)}


def weak_loads(text):
    """Global loads without a scope that are not the 64-bit words of the lane, which nobody writes."""
    return [line.strip() for line in text.splitlines() if re.search(r"\bld\.global\.(?!u64|b64)", line)
            and not re.search(r"\bld\.global\.nc", line)]


def check_entry(name, text):
    wrong = []
    for pattern, least in WANTED.items():
        count = len(re.findall(pattern, text))
        if count < least:
            wrong.append(f"{name}: {pattern} occurs {count} times, not {least}")
    for pattern, what in FORBIDDEN.items():
        if re.search(pattern, text):
            wrong.append(f"{name}: {what} ({pattern})")
    wrong += [f"{name}: a load without a scope: {line}" for line in weak_loads(text)]
    return wrong


def check_ptx(folder):
    wrong, names = [], []
    for family in FAMILIES:
        with open(os.path.join(folder, family + ".ptx"), encoding="utf-8") as file:
            kernels = entries(file.read())
        names += kernels
        for name, text in kernels.items():
            wrong += check_entry(name, text)
    print(f"{len(names)} kernels, budget {MOST_KERNELS}")
    if not any(LATENCY.search(name) for name in names):
        wrong.append("no latency kernels")
    if len(names) > MOST_KERNELS:
        wrong.append(f"{len(names)} kernels, more than {MOST_KERNELS}")
    return wrong


def check_resources(folder, architecture):
    """What ptxas says of each kernel."""
    wrong, most = [], {True: 0, False: 0}
    pattern = re.compile(r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads"
                         r".*?Used (\d+) registers", re.DOTALL)
    found = 0
    for family in FAMILIES:
        with open(os.path.join(folder, f"{family}.sm_{architecture}.cubin.log"), encoding="utf-8") as file:
            for name, stores, loads, registers in pattern.findall(file.read()):
                found += 1
                latency = bool(LATENCY.search(name))
                most[latency] = max(most[latency], int(registers))
                if int(registers) > (MOST_LATENCY_REGISTERS if latency else MOST_REGISTERS):
                    wrong.append(f"sm_{architecture}: {name} takes {registers} registers")
                if int(stores) or int(loads):
                    wrong.append(f"sm_{architecture}: {name} spills registers")
    print(f"sm_{architecture}: {found} kernels, registers: {most[True]} for latency, {most[False]} others")
    return wrong if found else wrong + [f"sm_{architecture}: ptxas said nothing"]


def print_seconds(folder):
    """How long the kernels took to compile, if Ninja has noted it."""
    log = os.path.join(folder, "../../.ninja_log")
    if not os.path.exists(log):
        return
    took = {}
    with open(log, encoding="utf-8") as file:
        for fields in (line.rstrip("\n").split("\t") for line in file):
            if len(fields) > 3 and re.match(r"reduce_kernels/cuda/\w+(\.\w+)?\.(ptx|cubin|fatbin)$", fields[3]):
                took[fields[3]] = int(fields[1]) - int(fields[0])
    print(f"compiled in {sum(took.values()) / 1000:.0f} s, one after the other")


def find_disassembler(nvcc):
    for name, arguments in (("nvdisasm", ["-c"]), ("cuobjdump", ["-sass"])):
        beside = os.path.join(os.path.dirname(os.path.realpath(nvcc)), name)
        found = beside if os.access(beside, os.X_OK) else shutil.which(name)
        if found:
            return [found] + arguments
    return None


def functions(sass):
    """Name and text of every kernel of a disassembly."""
    parts = re.split(r"^\s*(?:\.text\.(\w+):|Function : (\w+)).*$", sass, flags=re.MULTILINE)
    return {parts[i] or parts[i + 1]: parts[i + 2] for i in range(1, len(parts), 3)}


def check_function(name, text):
    wrong = []
    if len(re.findall(r"\bLDG?\.E\.64\.STRONG\.SYS", text)) < 2:
        wrong.append("no 64-bit loads at system scope")
    if not re.search(r"\bLDG?\.E\.(64|128)\.STRONG\.SYS", text):
        wrong.append("no vector loads at system scope")
    if re.search(r"\bLDG?\.\S*CONSTANT", text):
        wrong.append("a non-coherent load")
    # A correctly rounded division is made of them. (HFMA2 with RZ is how ptxas writes a constant.)
    if "_avg_" not in name and re.search(r"\b(FFMA|DFMA)\b|\bHFMA2(?!.*\bRZ, RZ)", text):
        wrong.append("a contracted operation")
    return [f"{name}: {what}" for what in wrong]


def check_sass(folder, architecture, disassembler):
    wrong, found = [], 0
    for family in FAMILIES:
        cubin = os.path.join(folder, f"{family}.sm_{architecture}.cubin")
        sass = subprocess.run(disassembler + [cubin], check=True, capture_output=True, text=True).stdout
        for name, text in functions(sass).items():
            if not name.startswith("rocenante_"):
                continue
            found += 1
            wrong += [f"sm_{architecture}: {line}" for line in check_function(name, text)]
    print(f"sm_{architecture}: machine code of {found} kernels read")
    return wrong if found else wrong + [f"sm_{architecture}: no kernels in the machine code"]


def main():
    folder, nvcc, *architectures = sys.argv[1:]
    wrong = check_ptx(folder)
    print_seconds(folder)
    disassembler = find_disassembler(nvcc)
    if not disassembler:
        print("no nvdisasm or cuobjdump: the machine code itself is not read")
    for architecture in architectures:
        wrong += check_resources(folder, architecture)
        if disassembler:
            wrong += check_sass(folder, architecture, disassembler)
    for line in wrong:
        print("WRONG:", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
