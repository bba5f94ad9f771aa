# SPDX-License-Identifier: Apache-2.0
# libnccl.so.2 as its clients see it. Traffic stays on loopback.
set(nccl_here "ROCENANTE_SOCKET_IFNAME==lo")
set(nccl_folder $<TARGET_FILE_DIR:rocenante_nccl>)

# A Catch2 program that is linked with the library. ThreadSanitizer runs those that are CONCURRENT; it cannot
# follow a fork of a process with threads.
function(rocenante_nccl_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "CONCURRENT" "" "ARGS;ENVIRONMENT;SOURCES")
  if(ROCENANTE_SANITIZE MATCHES "thread" AND NOT arg_CONCURRENT)
    return()
  endif()
  rocenante_test(${name} ${name}.cc ${arg_SOURCES} LIBRARIES rocenante_nccl ${CMAKE_DL_LIBS} ARGS ${arg_ARGS}
                 ENVIRONMENT ${nccl_here} ${arg_ENVIRONMENT})
endfunction()

rocenante_nccl_test(nccl_own_test ENVIRONMENT ROCENANTE_FALLBACK=off)
rocenante_nccl_test(nccl_misuse_test ENVIRONMENT ROCENANTE_FALLBACK=off)
rocenante_nccl_test(nccl_children_test CONCURRENT ENVIRONMENT ROCENANTE_FALLBACK=off)
rocenante_nccl_test(nccl_families_test CONCURRENT ENVIRONMENT ROCENANTE_FALLBACK=off)
rocenante_nccl_test(nccl_nonblocking_test CONCURRENT ENVIRONMENT ROCENANTE_FALLBACK=off)

# The objects of the library in one program with the simulated device, which can be added to the devices there.
rocenante_test(nccl_streams_test nccl_streams_test.cc $<TARGET_OBJECTS:rocenante_nccl_entries> LIBRARIES
               rocenante_nccl_parts stream_support ENVIRONMENT ${nccl_here} ROCENANTE_FALLBACK=off ROCENANTE_DEVICE=sim
               PROCESSORS 2 TIMEOUT 300)

# What follows runs other programs of this machine with the library.
if(CMAKE_CROSSCOMPILING)
  return()
endif()

if(NOT ROCENANTE_SANITIZE)
  # Sanitizers' own locks are not always free in such a child.
  rocenante_test(nccl_fork_test nccl_fork_test.cc $<TARGET_OBJECTS:rocenante_nccl_entries> LIBRARIES
                 rocenante_nccl_parts ENVIRONMENT ${nccl_here} ROCENANTE_FALLBACK=off)
  target_include_directories(abi_nccl_fork_test PRIVATE ${CMAKE_BINARY_DIR}/nccl_shim/libnccl/generated)
endif()

# The recording library has the ABI's SONAME, as a real one, under a name that no loader looks for.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(recorder_folder ${CMAKE_CURRENT_BINARY_DIR}/recorder)
  set(exports ${CMAKE_SOURCE_DIR}/nccl_shim/libnccl/exports.txt)
  add_custom_command(
    OUTPUT ${recorder_folder}/recorder_entries.S ${recorder_folder}/recorded.inc
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/recorder/make_recorder.py ${exports} ${recorder_folder}
    DEPENDS recorder/make_recorder.py ${exports} ${CMAKE_SOURCE_DIR}/nccl_shim/libnccl/generate.py
    VERBATIM)
  add_custom_target(abi_recorder_generated DEPENDS ${recorder_folder}/recorder_entries.S)
  add_library(abi_recorder SHARED recorder/recorder.cc recorder/world.cc ${recorder_folder}/recorder_entries.S)
  add_dependencies(abi_recorder abi_recorder_generated)
  target_link_libraries(abi_recorder PRIVATE rocenante_settings)
  target_include_directories(abi_recorder PRIVATE ${recorder_folder})
  set_target_properties(abi_recorder PROPERTIES OUTPUT_NAME recording_nccl NO_SONAME TRUE LIBRARY_OUTPUT_DIRECTORY
                                                                             ${CMAKE_BINARY_DIR}/tests/abi)
  target_link_options(abi_recorder PRIVATE -Wl,-soname,libnccl.so.2)

  set(beside ENVIRONMENT ROCENANTE_FALLBACK=require ROCENANTE_DEVICE=host ROCENANTE_NCCL_PATH=$<TARGET_FILE:abi_recorder>)
  rocenante_nccl_test(nccl_beside_test ${beside})
  rocenante_nccl_test(nccl_follow_test CONCURRENT ${beside} ROCENANTE_ALL_REDUCE_MAX_BYTES=16K)
  rocenante_nccl_test(nccl_mixed_test CONCURRENT ${beside})
  rocenante_nccl_test(nccl_sides_test ${beside})
  foreach(name nccl_beside_test nccl_follow_test nccl_mixed_test nccl_sides_test)
    if(TARGET abi_${name})
      add_dependencies(abi_${name} abi_recorder)
      target_include_directories(abi_${name} PRIVATE ${recorder_folder})
    endif()
  endforeach()
  if(NOT ROCENANTE_SANITIZE)
    # A library that calls NCCL, also while it is being loaded.
    add_library(abi_needs_nccl SHARED needs_nccl.c)
    target_link_libraries(abi_needs_nccl PRIVATE rocenante_nccl)
    set_target_properties(abi_needs_nccl PROPERTIES OUTPUT_NAME needs_nccl LIBRARY_OUTPUT_DIRECTORY
                                                                           ${CMAKE_BINARY_DIR}/tests/abi)
    rocenante_add_test(nccl_find COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/nccl_find_test.py
                                         $<TARGET_FILE:rocenante_nccl> $<TARGET_FILE:abi_recorder>
                                         $<TARGET_FILE:abi_needs_nccl>)
  endif()
endif()

# With this machine's real NCCL, found by searching; also under other allocators, which a library that is
# opened the wrong way would not survive.
find_library(NCCL_REAL_LIBRARY NAMES nccl PATHS /usr/local/cuda/lib64 /usr/local/cuda/lib)
if(NCCL_REAL_LIBRARY)
  set(nccl_real ${nccl_here} ROCENANTE_FALLBACK=require ROCENANTE_DEVICE=cuda NCCL_SOCKET_IFNAME==lo
                NCCL_UNDER_TEST=${NCCL_REAL_LIBRARY}
                # NCCL 2.28.9 leaks in ncclGroupEnd.
                LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/real_nccl.supp)
  rocenante_nccl_test(nccl_real_test ENVIRONMENT ${nccl_real})
  foreach(allocator jemalloc tcmalloc_minimal)
    file(GLOB allocator_files /usr/lib/*/lib${allocator}.so.[0-9] /usr/lib/*/lib${allocator}.so)
    if(allocator_files AND NOT ROCENANTE_SANITIZE)
      list(GET allocator_files 0 allocator_file)
      rocenante_add_test(nccl_real_${allocator} COMMAND $<TARGET_FILE:abi_nccl_real_test>
                         ENVIRONMENT ${nccl_real} LD_PRELOAD=${allocator_file})
    else()
      message(STATUS "lib${allocator} is not installed: libnccl.so.2 is not tested under it")
    endif()
  endforeach()
endif()

if(NOT ROCENANTE_SANITIZE)
  set(python ${Python3_EXECUTABLE})
  rocenante_add_test(nccl_exports COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/nccl_exports_test.py
                                          $<TARGET_FILE:rocenante_nccl>)
  rocenante_add_test(nccl_load COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/nccl_load_test.py
                                       $<TARGET_FILE:rocenante_nccl> ENVIRONMENT ${nccl_here})
  rocenante_add_test(nccl_binary COMMAND ${check_binary} $<TARGET_FILE:rocenante_nccl>)

  # By path, by preloading and by name, as inference engines do.
  set(client ${python} ${CMAKE_CURRENT_SOURCE_DIR}/nccl_client.py)
  rocenante_add_test(nccl_ctypes_path COMMAND ${client} $<TARGET_FILE:rocenante_nccl> 4 ENVIRONMENT ${nccl_here})
  rocenante_add_test(nccl_ctypes_preload COMMAND ${client} libnccl.so.2 2
                     ENVIRONMENT ${nccl_here} LD_PRELOAD=$<TARGET_FILE:rocenante_nccl>)
  rocenante_add_test(nccl_ctypes_library_path COMMAND ${client} libnccl.so.2 2
                     ENVIRONMENT ${nccl_here} LD_LIBRARY_PATH=${nccl_folder})
  # All of them at once, and with nowhere to print to: no socket may become what others print into.
  set(library $<TARGET_FILE:rocenante_nccl>)
  rocenante_add_test(nccl_ctypes_all_ways COMMAND ${client} libnccl.so 2
                     ENVIRONMENT ${nccl_here} LD_PRELOAD=${library}:${library} LD_LIBRARY_PATH=${nccl_folder})
  rocenante_add_test(nccl_closed_files COMMAND sh -c "exec \"$@\" <&- >&- 2>&-" sh ${client} ${library} 3
                     ENVIRONMENT ${nccl_here} ROCENANTE_DEBUG=INFO ROCENANTE_STATS=1)
endif()

# A program compiled against the real header and linked with -lnccl: with the real library where this machine
# has it, so that the ways in are what makes it find ours.
find_path(NCCL_INCLUDE_DIR nccl.h PATHS /usr/local/cuda/include /usr/include)
find_path(CUDA_RUNTIME_INCLUDE_DIR cuda_runtime.h PATHS /usr/local/cuda/include)
mark_as_advanced(NCCL_INCLUDE_DIR CUDA_RUNTIME_INCLUDE_DIR NCCL_REAL_LIBRARY)
if(NOT NCCL_INCLUDE_DIR OR NOT CUDA_RUNTIME_INCLUDE_DIR OR ROCENANTE_SANITIZE)
  if(NOT ROCENANTE_SANITIZE)
    message(STATUS "no nccl.h or no cuda_runtime.h: programs compiled against them are not tested")
  endif()
  return()
endif()

add_executable(abi_nccl_layout_test nccl_layout_test.cc)
target_link_libraries(abi_nccl_layout_test PRIVATE rocenante_settings)
target_include_directories(abi_nccl_layout_test SYSTEM PRIVATE ${NCCL_INCLUDE_DIR} ${CUDA_RUNTIME_INCLUDE_DIR})
set_target_properties(abi_nccl_layout_test PROPERTIES OUTPUT_NAME nccl_layout_test RUNTIME_OUTPUT_DIRECTORY
                                                                               ${CMAKE_BINARY_DIR}/tests/abi)
rocenante_add_test(nccl_layout COMMAND $<TARGET_FILE:abi_nccl_layout_test>)

function(nccl_program name)
  rocenante_abi_program_from(${name} nccl_client.c)
  target_include_directories(abi_${name} SYSTEM PRIVATE ${NCCL_INCLUDE_DIR} ${CUDA_RUNTIME_INCLUDE_DIR})
  target_link_libraries(abi_${name} PRIVATE ${CMAKE_DL_LIBS} ${ARGN})
endfunction()
nccl_program(nccl_linked rocenante_nccl)
nccl_program(nccl_opening)
target_compile_definitions(abi_nccl_opening PRIVATE CLIENT_OPENS)
add_dependencies(abi_nccl_opening rocenante_nccl)

rocenante_add_test(nccl_linked COMMAND $<TARGET_FILE:abi_nccl_linked> processes 4 ENVIRONMENT ${nccl_here})
rocenante_add_test(nccl_linked_all COMMAND $<TARGET_FILE:abi_nccl_linked> all 5 ENVIRONMENT ${nccl_here})
rocenante_add_test(nccl_opening COMMAND $<TARGET_FILE:abi_nccl_opening> open 2
                   ENVIRONMENT ${nccl_here} LD_LIBRARY_PATH=${nccl_folder})
if(NCCL_REAL_LIBRARY)
  nccl_program(nccl_foreign ${NCCL_REAL_LIBRARY})
  # Found by the loader's own means, were it not for ours.
  set_target_properties(abi_nccl_foreign PROPERTIES SKIP_BUILD_RPATH TRUE)
  rocenante_add_test(nccl_preload COMMAND $<TARGET_FILE:abi_nccl_foreign> processes 3
                     ENVIRONMENT ${nccl_here} LD_PRELOAD=$<TARGET_FILE:rocenante_nccl>)
  rocenante_add_test(nccl_library_path COMMAND $<TARGET_FILE:abi_nccl_foreign> processes 2
                     ENVIRONMENT ${nccl_here} LD_LIBRARY_PATH=${nccl_folder})
  # The command line does the same, and tells.
  rocenante_add_test(nccl_run COMMAND $<TARGET_FILE:rocenante_cli> run --fallback off -- $<TARGET_FILE:abi_nccl_foreign>
                                      processes 2 ENVIRONMENT ${nccl_here})
  set_tests_properties(${ROCENANTE_LANE}.abi.nccl_run PROPERTIES PASS_REGULAR_EXPRESSION "will find NCCL in .*lib/nccl/libnccl"
                                                                 FAIL_REGULAR_EXPRESSION "ended with")
endif()
