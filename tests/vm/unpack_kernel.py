#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Unpacks an x86 kernel image that is packed with xz, so that an emulated processor need not do it.

Offsets are those of the boot protocol: Documentation/arch/x86/boot.rst of Linux."""
import lzma
import pathlib
import struct
import sys

SETUP_SECTORS = 0x1F1
MAGIC = 0x202
PAYLOAD = 0x248  # offset and length, after the setup sectors


def unpack(image):
    """The ELF file in `image`; ValueError if it is not there or packed otherwise."""
    if image[MAGIC:MAGIC + 4] != b"HdrS":
        raise ValueError("no boot protocol header")
    offset, length = struct.unpack_from("<II", image, PAYLOAD)
    offset += (image[SETUP_SECTORS] + 1) * 512
    try:
        kernel = lzma.LZMADecompressor().decompress(image[offset:offset + length])
    except lzma.LZMAError as error:
        raise ValueError(f"payload is not packed with xz: {error}") from error
    if kernel[:4] != b"\x7fELF":
        raise ValueError("payload is not an ELF file")
    return kernel


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: unpack_kernel.py VMLINUZ VMLINUX")
    try:
        unpacked = unpack(pathlib.Path(sys.argv[1]).read_bytes())
    except ValueError as error:
        sys.exit(f"unpack_kernel.py: {sys.argv[1]}: {error}")
    pathlib.Path(sys.argv[2]).write_bytes(unpacked)
