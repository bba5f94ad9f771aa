#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what a shipped binary asks of the machine it goes to, and what it shows to others.

With --header the binary is the library: it exports exactly the functions declared there, has the SONAME
given, and needs nothing but libc, libm and the loader."""
import argparse
import os
import pathlib
import re
import subprocess
import sys

LIBRARY_MAY_NEED = re.compile(r"(libc\.so\.6|libm\.so\.6|ld-linux[\w-]*\.so\.\d+)$")
# What the oldest supported system (glibc 2.35, GCC 12's libstdc++) has.
OLDEST_SYSTEM = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13)}
# On a newer system the headers redirect old functions to new names; what is shipped is built on Debian 12.
SHIPPED_FROM_GLIBC = (2, 36)


def readelf(binary, *options):
    # C locale: the text is parsed.
    return subprocess.run(["readelf", "-W", *options, str(binary)], check=True, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout


def version_tuple(text):
    return tuple(int(part) for part in text.split("."))


def dynamic_symbols(binary):
    """(name, version or "", defined) of every entry of the dynamic symbol table that is not optional."""
    for line in readelf(binary, "--dyn-syms").splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit() or fields[4] == "LOCAL":
            continue  # linkers for aarch64 list sections there
        if fields[4] == "WEAK" and fields[6] == "UND":
            continue  # may stay unresolved
        name, _, version = fields[7].partition("@")
        yield name, version.lstrip("@"), fields[6] != "UND"


def declared_functions(header):
    """The names of the functions a header declares."""
    text = re.sub(r"/\*.*?\*/|^[ \t]*#.*?$", "", header.read_text(), flags=re.DOTALL | re.MULTILINE)
    return set(re.findall(r"RCN_EXPORT\s[^;(]*?(\w+)\(", text))


def check_versions(symbols, oldest, host):
    findings, highest = [], {}
    for name, version, defined in symbols:
        match = re.fullmatch(r"([A-Z]+)_([\d.]+)", version)
        if defined or not match or match[1] not in oldest:
            continue
        needed = version_tuple(match[2])
        highest[match[1]] = max(needed, highest.get(match[1], (0,)))
        if needed <= oldest[match[1]]:
            continue
        if host > SHIPPED_FROM_GLIBC:
            print(f"note: needs {name}@{version}: a binary built here does not run on the oldest supported system")
        else:
            limit = ".".join(map(str, oldest[match[1]]))
            findings.append(f"needs {name}@{version}, and must run with {match[1]} {limit}")
    print("needs at most", ", ".join(f"{key} {'.'.join(map(str, value))}" for key, value in sorted(highest.items())))
    return findings


def check_library(symbols, dynamic, header, soname):
    findings = []
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    findings += [f"needs {name}" for name in needed if not LIBRARY_MAY_NEED.match(name)]
    own_name = re.findall(r"\(SONAME\).*\[(.*)\]", dynamic)
    if own_name != [soname]:
        findings.append(f"SONAME is {own_name}, expected {soname}")
    declared = declared_functions(header)
    if not declared:
        findings.append(f"no function is declared in {header}")
    exported = {name for name, _, defined in symbols if defined}
    findings += [f"exports {name}, which {header.name} does not declare" for name in sorted(exported - declared)]
    findings += [f"does not export {name}, which {header.name} declares" for name in sorted(declared - exported)]
    for name, version, defined in symbols:
        if not defined and (version.startswith(("GLIBCXX", "CXXABI", "GCC_")) or name.startswith("_Z")):
            findings.append(f"needs {name} of the C++ run-time library")
    return findings


def check(binary, header, soname, oldest, host):
    symbols = list(dynamic_symbols(binary))
    dynamic = readelf(binary, "-d")
    findings = check_versions(symbols, oldest, host)
    if not symbols:
        findings.append("has no dynamic symbols")
    stack = re.search(r"GNU_STACK\s+\S+\s+\S+\s+\S+\s+\S+\s+\S+\s+(\S+)", readelf(binary, "-l"))
    if not stack or "E" in stack[1]:
        findings.append("has an executable stack")
    if "(TEXTREL)" in dynamic:
        findings.append("has relocations in its code")
    if header:
        if re.search(r"\((RPATH|RUNPATH)\)", dynamic):
            findings.append("has a library search path of the build machine")
        findings += check_library(symbols, dynamic, header, soname)
    return findings


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--header", type=pathlib.Path)
    parser.add_argument("--soname", default="librocenante.so.1")
    parser.add_argument("--host-glibc", type=version_tuple,
                        default=version_tuple(os.confstr("CS_GNU_LIBC_VERSION").split()[1]))
    parser.add_argument("--glibc", type=version_tuple, default=OLDEST_SYSTEM["GLIBC"])
    parser.add_argument("--expect", action="append", default=[], metavar="TEXT",
                        help="succeed if, and only if, every finding holds one of these and each is found")
    options = parser.parse_args()
    oldest = {**OLDEST_SYSTEM, "GLIBC": options.glibc}
    findings = check(options.binary, options.header, options.soname, oldest, options.host_glibc)
    for finding in findings:
        print(f"{options.binary.name} {finding}")
    if options.expect:
        missed = [text for text in options.expect if not any(text in finding for finding in findings)]
        print(*[f"was not found: {text}" for text in missed], sep="\n")
        sys.exit(1 if missed else 0)
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
