# SPDX-License-Identifier: Apache-2.0
# Cross compiling for aarch64 on Debian, with the target's libraries from its own packages (multiarch):
# scripts/deps.sh --aarch64 installs all of it. Tests run under QEMU's user emulation.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
