# SPDX-License-Identifier: Apache-2.0
# Build settings shared by every target.

option(ROCENANTE_WERROR "Treat warnings as errors" ON)
set(ROCENANTE_SANITIZE "" CACHE STRING "Sanitizers: empty, 'address,undefined' or 'thread'")
option(ROCENANTE_PCH "Precompile the headers that most files include" OFF)
set(ROCENANTE_LANE "release" CACHE STRING "Prefix of this build's test names")
option(ROCENANTE_PACKAGE "Lay files out as Debian packages want them, for cpack" OFF)
set(ROCENANTE_VERBS AUTO CACHE STRING "RDMA transport: AUTO (where libibverbs' headers are), ON or OFF")
set(ROCENANTE_CUDA AUTO CACHE STRING "CUDA parts: AUTO, ON or OFF")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  if(ROCENANTE_PCH)
    # Else it caches nothing that includes them.
    list(PREPEND CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros)
  endif()
endif()

# rocenante_settings: what every target of ours is compiled with.
add_library(rocenante_settings INTERFACE)
target_include_directories(rocenante_settings INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
target_compile_options(rocenante_settings INTERFACE -Wall -Wextra -Wconversion)
if(ROCENANTE_WERROR)
  target_compile_options(rocenante_settings INTERFACE -Werror)
endif()
# The order and rounding of the arithmetic is part of the interface (docs/numerics.md).
target_compile_options(rocenante_settings INTERFACE -ffp-contract=off -fno-fast-math)
target_compile_definitions(rocenante_settings INTERFACE _GNU_SOURCE)

if(ROCENANTE_SANITIZE)
  target_compile_options(rocenante_settings INTERFACE -fsanitize=${ROCENANTE_SANITIZE}
                                                      -fno-omit-frame-pointer -g1)
  target_link_options(rocenante_settings INTERFACE -fsanitize=${ROCENANTE_SANITIZE})
  if(ROCENANTE_SANITIZE MATCHES "undefined")
    target_compile_options(rocenante_settings INTERFACE -fno-sanitize-recover=all)
  endif()
  if(ROCENANTE_SANITIZE MATCHES "thread")
    # GCC inlines memcpy without instrumenting it and would miss a payload race.
    target_compile_options(rocenante_settings INTERFACE -fno-builtin-memcpy)
    target_compile_definitions(rocenante_settings INTERFACE ROCENANTE_TSAN=1)
  endif()
endif()
