#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the command blocks of README.md and docs/ that are marked, as a reader would: in the root of the sources,
with the build folder as build/ and build/release and its command on the path.

A block is indented by four spaces or fenced as sh. The line before the block, not shown to readers, says

  <!-- run -->                        run it; exit code 0 is expected
  <!-- run: program.c=examples/x.c --> the same, with a file of that name copied from the sources
  <!-- not run: REASON -->            what cannot be run in a test, and why

Blocks of one document share a folder and run in order. Measurements are made short, the port and the prefix are
replaced by the test's own."""
import argparse
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

MARK = re.compile(r"^<!-- (run|not run)(?:: (.*?))? -->$")
TIMEOUT_S = 240
# Stands before the real command: defaults are for people with time.
SHORT_COMMAND = """#!/usr/bin/env bash
set -euo pipefail
arguments=("$@")
if [[ ${1-} == perf && $* != *--help* ]]; then
  [[ " $* " =~ \\ (-e|--maxbytes)\\  ]] || arguments+=(-e 64K)
  [[ " $* " =~ \\ (-n|--iters)\\  ]] || arguments+=(-n 2)
fi
exec "%s" "${arguments[@]}"
"""
# What a line leaves in the background counts too.
BEGIN = "background=()\n"
REMEMBER = re.compile(r"(?<!&)&$", re.MULTILINE)
FINISH = '\nfor job in "${background[@]}"; do wait "$job"; done\n'


def indented(lines, start):
    """The block that begins at `start`, and the line after it."""
    end = start
    if lines[start].startswith("```"):
        end = next((i for i in range(start + 1, len(lines)) if lines[i] == "```"), len(lines))
        return lines[start + 1:end], end + 1
    while end < len(lines) and (lines[end].startswith("    ") or (not lines[end] and end > start)):
        end += 1
    return [line[4:] for line in lines[start:end]], end


def blocks_of(text):
    """(line number, kind, argument, script) of each marked block; raises ValueError for a mark without a block."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        mark = MARK.match(line)
        if not mark:
            if line.startswith("<!--") and re.match(r"<!--\s*(not )?run\b", line):
                raise ValueError(f"line {number + 1}: '{line}' is not a mark")
            continue
        start = number + 1
        while start < len(lines) and not lines[start]:
            start += 1
        if start == len(lines) or not re.match(r"    \S|```(sh|bash)$", lines[start]):
            raise ValueError(f"line {number + 1}: no block of commands follows the mark")
        if mark[1] == "not run" and not mark[2]:
            raise ValueError(f"line {number + 1}: no reason is given")
        script, _ = indented(lines, start)
        yield start + 1, mark[1], mark[2] or "", "\n".join(script).rstrip() + "\n"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def prepare(folder, source, build):
    """The sources as links, the build folder under both of its names, the short command."""
    for entry in source.iterdir():
        if not entry.name.startswith((".", "build")):
            (folder / entry.name).symlink_to(entry)
    (folder / "build").mkdir()
    for entry in build.iterdir():
        (folder / "build" / entry.name).symlink_to(entry)
    (folder / "build/release").symlink_to(build)
    command = folder / ".bin/rocenante"
    command.parent.mkdir()
    command.write_text(SHORT_COMMAND % (build / "bin/rocenante"))
    command.chmod(0o755)


def run(script, argument, folder, source):
    for wanted in argument.split():
        name, _, origin = wanted.partition("=")
        shutil.copy(source / origin, folder / name)
    script = script.replace("/opt/rocenante", str(folder / ".prefix")).replace("127.0.0.1:7000",
                                                                               f"127.0.0.1:{free_port()}")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("ROCENANTE_", "NCCL_"))}
    environment["PATH"] = f"{folder / '.bin'}:{environment['PATH']}"
    return subprocess.run(["bash", "-euo", "pipefail", "-c",
                           BEGIN + REMEMBER.sub("& background+=($!)", script) + FINISH], cwd=folder, env=environment,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=TIMEOUT_S)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--source", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    options = parser.parse_args()
    source, build = options.source.resolve(), options.build.resolve()
    ran = failed = 0
    for document in [source / "README.md", *sorted((source / "docs").rglob("*.md"))]:
        name = document.relative_to(source)
        with tempfile.TemporaryDirectory(prefix="rocenante-docs-") as temporary:
            folder = pathlib.Path(temporary)
            prepare(folder, source, build)
            try:
                blocks = list(blocks_of(document.read_text()))
            except ValueError as error:
                print(f"{name}: {error}")
                failed += 1
                continue
            for line, kind, argument, script in blocks:
                if kind == "not run":
                    print(f"{name}:{line}: not run: {argument}")
                    continue
                ran += 1
                done = run(script, argument, folder, source)
                print(f"{name}:{line}: exit code {done.returncode}")
                if done.returncode != 0:
                    failed += 1
                    print(script, done.stdout, sep="\n")
    print(f"{ran} blocks run, {failed} failed")
    sys.exit(1 if failed or not ran else 0)


if __name__ == "__main__":
    main()
