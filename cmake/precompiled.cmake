# SPDX-License-Identifier: Apache-2.0
# Headers of others that nearly every file includes, compiled once for all (ROCENANTE_PCH). Off where sources are
# compiled as they ship: there a file that forgets an include is found.
set(rocenante_common_headers
    algorithm array atomic cerrno chrono cstddef cstdint cstring functional map memory mutex optional span string
    string_view thread utility vector fmt/core.h)

# rocenante_precompiled(NAME KIND header...): a target whose precompiled headers others reuse, of the options of this
# folder. KIND is LIBRARY or PROGRAM, whose code is made in different ways.
function(rocenante_precompiled name kind)
  if(NOT ROCENANTE_PCH)
    return()
  endif()
  if(kind STREQUAL "LIBRARY")
    add_library(${name} OBJECT ${CMAKE_SOURCE_DIR}/cmake/precompiled.cc)
  else()
    add_executable(${name} ${CMAKE_SOURCE_DIR}/cmake/precompiled.cc)
  endif()
  target_link_libraries(${name} PRIVATE rocenante_settings)
  target_include_directories(${name} SYSTEM PRIVATE ${FMT_INCLUDE_DIR})
  list(TRANSFORM ARGN REPLACE "^(.+)$" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()

# rocenante_reuse(NAME target...): these are compiled with what NAME has precompiled. Sources with options of their
# own need SKIP_PRECOMPILE_HEADERS.
function(rocenante_reuse name)
  if(NOT ROCENANTE_PCH)
    return()
  endif()
  foreach(target ${ARGN})
    target_precompile_headers(${target} REUSE_FROM ${name})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # One that the compiler refuses, e.g. of the version before an update, costs time alone, and the log says so. And
      # GCC does not know any more whose a precompiled header is: it gives false warnings inside the standard library.
      # Those of the optimiser come from the release lane.
      target_compile_options(
        ${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-error=invalid-pch -Wno-array-bounds -Wno-restrict
                          -Wno-stringop-overflow -Wno-stringop-overread -Wno-maybe-uninitialized>)
    endif()
  endforeach()
endfunction()
