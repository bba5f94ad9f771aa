#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the entry points of the recording NCCL, and the list of what they take, out of exports.txt (x86-64)."""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "nccl_shim" / "libnccl"))
import generate  # noqa: E402

ENTRY = """\
.type recorder_entry, %function
recorder_entry:
  pushq %rbp
  movq %rsp, %rbp
  subq $48, %rsp
  movq %rdi, 0(%rsp)
  movq %rsi, 8(%rsp)
  movq %rdx, 16(%rsp)
  movq %rcx, 24(%rsp)
  movq %r8, 32(%rsp)
  movq %r9, 40(%rsp)
  movl %r11d, %edi
  movq %rsp, %rsi
  leaq 16(%rbp), %rdx
  call recorder_record
  leave
  ret
.size recorder_entry, .-recorder_entry
"""


def words_of(argument):
    """What an argument is: P a pointer, Z a size, I an int, T a team by value, U an id by value."""
    argument = argument.strip()
    if argument == "void":
        return ""
    if argument.endswith("*") or argument in ("ncclComm_t", "cudaStream_t", "ncclWindow_t", "ncclParamHandle_t"):
        return "P"
    return {"size_t": "Z", "ncclTeam_t": "T", "ncclTeam": "T", "ncclUniqueId": "U"}.get(argument, "I")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exports", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    rows = generate.read_rows(options.exports)
    code = "/* SPDX-License-Identifier: Apache-2.0 */\n.text\n" + ENTRY
    table = "// SPDX-License-Identifier: Apache-2.0\n// RCN_RECORDED(NAME, RETURNS, ARGUMENTS)\n"
    for index, row in enumerate(rows):
        for name in generate.exported_names(row):
            code += f".globl {name}\n.type {name}, %function\n{name}:\n"
        code += f"  movl ${index}, %r11d\n  jmp recorder_entry\n"
        arguments = "".join(map(words_of, row.arguments.split(",")))
        table += f'RCN_RECORDED({row.name}, "{row.returns}", "{arguments}")\n'
    code += '.section .note.GNU-stack, "", %progbits\n'
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "recorder_entries.S").write_text(code)
    (options.folder / "recorded.inc").write_text(table)


if __name__ == "__main__":
    main()
