# SPDX-License-Identifier: Apache-2.0
# Third-party code. docs/dependencies.md says what each is for; scripts/deps.sh installs them.

find_package(Threads REQUIRED)

function(rocenante_require_header var header package)
  find_path(${var} ${header})
  if(NOT ${var})
    message(FATAL_ERROR "${header} not found: install ${package} (scripts/deps.sh does)")
  endif()
  mark_as_advanced(${var})
endfunction()

rocenante_require_header(FMT_INCLUDE_DIR fmt/core.h libfmt-dev)
rocenante_require_header(HWY_INCLUDE_DIR hwy/highway.h libhwy-dev)
rocenante_require_header(SODIUM_INCLUDE_DIR sodium.h libsodium-dev)
rocenante_require_header(CLI11_INCLUDE_DIR CLI/CLI.hpp libcli11-dev)
rocenante_require_header(JSON_INCLUDE_DIR nlohmann/json.hpp nlohmann-json3-dev)

# Only the headers of libibverbs: the library is loaded at run time.
set(ROCENANTE_HAVE_VERBS OFF)
if(NOT ROCENANTE_VERBS STREQUAL "OFF")
  find_path(IBVERBS_INCLUDE_DIR infiniband/verbs.h)
  mark_as_advanced(IBVERBS_INCLUDE_DIR)
  if(IBVERBS_INCLUDE_DIR)
    set(ROCENANTE_HAVE_VERBS ON)
  elseif(ROCENANTE_VERBS STREQUAL "ON")
    message(FATAL_ERROR "infiniband/verbs.h not found: install libibverbs-dev (scripts/deps.sh does)")
  else()
    message(STATUS "the RDMA transport is left out: no infiniband/verbs.h (libibverbs-dev)")
  endif()
endif()

# libsodium is linked statically: a shared library that goes into other people's processes may not
# drag one more dependency along.
find_library(SODIUM_STATIC_LIBRARY NAMES libsodium.a)
if(NOT SODIUM_STATIC_LIBRARY)
  message(FATAL_ERROR "libsodium.a not found: install libsodium-dev (scripts/deps.sh does)")
endif()
add_library(rocenante_sodium INTERFACE)
target_include_directories(rocenante_sodium SYSTEM INTERFACE ${SODIUM_INCLUDE_DIR})
target_link_libraries(rocenante_sodium INTERFACE ${SODIUM_STATIC_LIBRARY})
