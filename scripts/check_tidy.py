#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy (.clang-tidy) over the library's sources, as the compile commands of a build have them.

clang-tidy takes seconds per file, nearly all of them for the headers. So files with the same command are looked
at together, as one text, and what passes so has passed. Where something is found, or the text does not compile
because two files use a name for two things, they are looked at apart: what is reported of a file always comes from
looking at it alone.

A file is looked at again only when something it depends on has changed: itself, what it includes of this
repository, its command, the settings or the tool. What passed is remembered in <build>/tidy; what failed is not, so
a fault is reported until it is repaired."""
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
import tempfile
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
# What of a command does not change what clang-tidy sees.
IRRELEVANT = re.compile(r"-c$|-O.$|-f(PIC|PIE)$|-D\w+_EXPORTS$")
TOGETHER = 12  # files at a time: their headers are then a small part, and there is still work for several processors
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}\s*$", re.DOTALL | re.MULTILINE)
DECLARED = re.compile(r"(?:struct|class|union|enum|enum class|enum struct) (\w+)\b|using (\w+) ="
                      r"|\w[^=({;]*?[ *&](\w+)(?:\[\w*\])*\s*(?:[=({;]|$)")
ALIAS = re.compile(r"\busing\s+[\w:]+::(\w+)\s*;|\bnamespace\s+(\w+)\s*=")


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


class Source:
    """One source with one command, and where it is remembered that it has passed."""

    def __init__(self, root, path, entry, known, base):
        self.path = path
        self.directory = entry["directory"]
        arguments = entry.get("arguments") or shlex.split(entry["command"])
        # Without the launcher (ccache) in front of the compiler, whose name tells the mode.
        if os.path.basename(arguments[0]) == "ccache":
            arguments = arguments[1:]
        self.arguments = [argument for argument in arguments if not DROPPED.match(argument)]
        self.mark = known / digest(root, path, json.dumps(self.settings()), base)

    def settings(self):
        """Equal for sources that can be looked at together."""
        kept = []
        previous = ""
        for argument in self.arguments:
            if previous != "-o" and argument != "-o" and not IRRELEVANT.match(argument) and \
                    not argument.endswith(self.path.name):
                kept.append(argument)
            previous = argument
        return (self.directory, *kept)

    def own_names(self):
        """What the unnamed namespaces here declare; by the text, which is formatted, so only nearly all of it."""
        names = set()
        for body in UNNAMED.findall(COMMENT.sub("", self.path.read_text(encoding="utf-8"))):
            for line in body.splitlines():
                match = DECLARED.match(line)
                names.update(match.groups() if match else ())
        return names - {None}

    def has_lone_alias(self):
        """Whether a name is brought in that nothing else here mentions: among others' text it could seem used."""
        text = COMMENT.sub("", self.path.read_text(encoding="utf-8"))
        return any(len(re.findall(rf"\b{one or other}\b", text)) < 2 for one, other in ALIAS.findall(text))


class Tidy:
    def __init__(self, tool, root, folder):
        self.tool = tool
        self.root = root
        self.folder = folder

    def run(self, path, source):
        """Output and exit code of clang-tidy for `path`, compiled as `source` is."""
        done = subprocess.run([self.tool, "--quiet", f"--config-file={self.root}/.clang-tidy", str(path), "--",
                               *source.arguments[1:]], cwd=source.directory, capture_output=True, text=True)
        # Its count of suppressed warnings goes to stderr; real faults of the command too.
        return done.stdout + (done.stderr if done.returncode and not done.stdout else ""), done.returncode

    def examine(self, sources):
        """(source, output, exit code) of each."""
        if len(sources) == 1:
            return [(sources[0], *self.run(sources[0].path, sources[0]))]
        owners = []  # of each line of the common text
        lines = []
        for source in sources:
            own = source.path.read_text(encoding="utf-8").splitlines()
            lines += own
            owners += [source] * len(own)
        with tempfile.NamedTemporaryFile("w", suffix=".cc", dir=self.folder, encoding="utf-8") as text:
            text.write("\n".join(lines) + "\n")
            text.flush()
            output, code = self.run(text.name, sources[0])
            places = re.findall(rf"{re.escape(text.name)}:(\d+):", output)
        if code == 0:
            return [(source, "", 0) for source in sources]
        blamed = {owners[int(place) - 1] for place in places if 0 < int(place) <= len(owners)}
        parts = [[source for source in sources if source not in blamed], [s for s in sources if s in blamed]]
        if not all(parts):
            parts = [sources[:len(sources) // 2], sources[len(sources) // 2:]]
        return self.examine(parts[0]) + self.examine(parts[1])


def groups_of(sources):
    """The sources in groups that are looked at together: of the same command, and no name of their own twice."""
    groups = {}
    for source in sources:
        key = (source.path,) if source.has_lone_alias() else source.settings()
        names = source.own_names()
        of_command = groups.setdefault(key, [])
        for members, taken in of_command:
            if len(members) < TOGETHER and not names & taken:
                members.append(source)
                taken |= names
                break
        else:
            of_command.append(([source], names))
    # The long ones first.
    return sorted((members for of_command in groups.values() for members, _ in of_command), key=len, reverse=True)


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

    work = {}
    remembered = set()
    for entry in json.loads((options.build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        name = str(path.relative_to(root)) if path.is_relative_to(root) else ""
        if not name.startswith(FOLDERS) or name in SKIPPED or path.suffix == ".S":
            continue
        source = Source(root, path, entry, known, base)
        # Some are part of several libraries.
        if source.mark.exists():
            remembered.add((path, source.settings()))
        else:
            work.setdefault((path, source.settings()), source)

    def one(group):
        start = time.monotonic()
        return tidy.examine(group), time.monotonic() - start

    tidy = Tidy(tool, root, known)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for results, seconds in pool.map(one, groups_of(work.values())):
            if options.times:
                print(f"{seconds:6.1f} s {' '.join(str(source.path.relative_to(root)) for source, *_ in results)}")
            for source, output, code in results:
                if code == 0:
                    source.mark.touch()
                else:
                    failed += 1
                    print(output.rstrip() or f"{source.path}: clang-tidy ended with {code}")
    print(f"{len(remembered)} known, {len(work)} checked, {failed} with findings")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
