#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the table of docs/ci.md, where the minutes go, from what scripts/test.sh printed.

Usage: scripts/ci_minutes.py LOG [--page docs/ci.md]

A test's minutes are counted once for each processor that ctest set aside for it, so the sum over lanes, divided by
the processors, is about what ctest took."""
import argparse
import pathlib
import re
import sys

BEGIN = "<!-- minutes -->"
END = "<!-- end of minutes -->"
SLOWEST = 8


def parse(log):
    """Seconds to build each lane; (lane, test, seconds) of each test; seconds that ctest took."""
    built = {lane: int(seconds) for lane, seconds in re.findall(r"^test\.sh: (\w+) built in (\d+) s$", log, re.MULTILINE)}
    tests = [(name.split(".")[0], name, float(seconds)) for name, seconds in
             re.findall(r"^ *\d+/\d+ Test +#\d+: (\S+) \.* *(?:Passed|\*\*\*\S+(?: \S+)?) +([\d.]+) sec", log, re.MULTILINE)]
    total = re.search(r"^Total Test time \(real\) = +([\d.]+) sec", log, re.MULTILINE)
    if not built or not tests or not total:
        raise ValueError("no builds, no tests or no total: this is not what scripts/test.sh prints to its end")
    weights = {lane: float(seconds) for lane, seconds in
               re.findall(r"^(\w+) += +([\d.]+) sec\*proc", log, re.MULTILINE)}
    return built, tests, weights, float(total[1])


def minutes(seconds):
    return f"{seconds / 60:.1f}"


def table(log):
    built, tests, weights, total = parse(log)
    lines = ["| lane | build, minutes | tests | tests, minutes x processors |", "|---|---|---|---|"]
    for lane, seconds in built.items():
        number = sum(1 for one in tests if one[0] == lane)
        lines.append(f"| {lane} | {minutes(seconds)} | {number} | {minutes(weights.get(lane, 0))} |")
    whole = sum(built.values()) + total
    lines.append(f"| all | {minutes(sum(built.values()))} | {len(tests)} | {minutes(total)} passed |")
    lines += ["", f"In all {minutes(whole)} minutes. The longest tests, in seconds: " +
              ", ".join(f"`{name}` {seconds:.0f}" for _, name, seconds in
                        sorted(tests, key=lambda one: -one[2])[:SLOWEST]) + "."]
    return "\n".join(lines)


def fill(page, log):
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{table(log)}\n\n{END}{after}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", type=pathlib.Path)
    parser.add_argument("--page", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent / "docs/ci.md")
    options = parser.parse_args()
    try:
        options.page.write_text(fill(options.page.read_text(), options.log.read_text()))
    except ValueError as error:
        sys.exit(f"ci_minutes.py: {options.log}: {error}")


if __name__ == "__main__":
    main()
