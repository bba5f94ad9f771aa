#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what no compiler does: licence line, length of files, white space, words that do not belong here,
links between documents."""
import re

import source_files

LENGTH_WARNING = 400
LENGTH_LIMIT = 500
# C++ files that may be longer, and why; empty so far.
LENGTH_EXEMPT = {}

NEEDS_LICENCE = {".h", ".cc", ".c", ".cu", ".cuh", ".py", ".sh", ".cmake"}
NEEDS_LICENCE_NAMES = {"CMakeLists.txt", "run"}
LICENCE = "SPDX-License-Identifier: Apache-2.0"
# A text is Markdown, a licence or a source; all of them end lines the same way.
NOT_OURS = {"LICENSE", "THIRD_PARTY_NOTICES"}

WORDS = [
    (re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"), "say what is missing in docs/status.md, or do it"),
    (re.compile(r"(?<![\w.])/(work|home|root|Users)/"), "an absolute path of one machine"),
    (re.compile(r"<<<<<<< |>>>>>>> "), "an unresolved merge"),
    (re.compile(r"\b(printf|puts)\s*\(.*\bDEBUG\b", re.IGNORECASE), "a forgotten debugging print"),
    (re.compile(r"using namespace std\s*;"), "names of std are written out"),
]
# The only place that must spell the words out.
WORDS_EXEMPT = {"scripts/check_sources.py", "tests/lint/checks_test.py"}


LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def check_links(root, path, text):
    """Links to files, which must exist. Code blocks are not links."""
    prose = re.sub(r"^```.*?^```", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    for match in LINK.finditer(prose):
        if "://" not in match[1] and not (root / path.parent / match[1]).exists():
            yield f"{path}:{prose.count(chr(10), 0, match.start()) + 1}: '{match[1]}' does not exist"


def check_text(path, text):
    findings = []
    lines = text.split("\n")
    needs_licence = path.suffix in NEEDS_LICENCE or path.name in NEEDS_LICENCE_NAMES
    if needs_licence and not any(LICENCE in line for line in lines[:2]):
        findings.append(f"{path}:1: the first or second line must hold '{LICENCE}'")
    if text and not text.endswith("\n"):
        findings.append(f"{path}:{len(lines)}: no newline at the end of the file")
    if text.endswith("\n\n"):
        findings.append(f"{path}:{len(lines) - 1}: blank lines at the end of the file")
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            findings.append(f"{path}:{number}: white space at the end of the line")
        if "\t" in line:
            findings.append(f"{path}:{number}: a tab")
        if str(path) not in WORDS_EXEMPT:
            for pattern, why in WORDS:
                match = pattern.search(line)
                if match:
                    findings.append(f"{path}:{number}: '{match[0]}': {why}")
    length = len(lines) - 1
    if source_files.is_cxx(path) and str(path) not in LENGTH_EXEMPT and length > LENGTH_WARNING:
        if length > LENGTH_LIMIT:
            findings.append(f"{path}: {length} lines, the limit is {LENGTH_LIMIT}: split the file")
        else:
            print(f"note: {path}: {length} lines, above {LENGTH_WARNING}; more than {LENGTH_LIMIT} is refused")
    return findings


def check(root):
    findings = []
    for path in source_files.list_files(root):
        text = source_files.read(root, path)
        if text is not None and path.name not in NOT_OURS and path.suffix != ".svg":
            findings += check_text(path, text)
            if path.suffix == ".md":
                findings += check_links(root, path, text)
    return findings


if __name__ == "__main__":
    source_files.main(__doc__, check)
