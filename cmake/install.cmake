# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where, and what other projects find: a CMake package and a pkg-config file, in
# the prefix and in the build folder alike (docs/guide/install.md). Components: library, development, command.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(ROCENANTE_PRIVATE_LIBDIR ${CMAKE_INSTALL_LIBDIR}/rocenante)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/rocenante)
set(build_package_dir ${CMAKE_BINARY_DIR}/lib/cmake/rocenante)

# rocenante_install_library(TARGET [DESTINATION dir] [LINK]): a shared library that others load. Those that may
# not be found by accident go to folders under ${ROCENANTE_PRIVATE_LIBDIR}. LINK: with the name that has no
# version, which programs load too.
function(rocenante_install_library target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LINK" "DESTINATION" "")
  if(NOT arg_DESTINATION)
    set(arg_DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
  set(link NAMELINK_SKIP)
  if(arg_LINK)
    set(link NAMELINK_COMPONENT library)
  endif()
  install(TARGETS ${target} LIBRARY DESTINATION ${arg_DESTINATION} COMPONENT library ${link})
endfunction()

install(TARGETS rocenante EXPORT rocenante-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/rocenante DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h")

# In NCCL's place: in a folder of its own, so that only who asks for it finds it.
rocenante_install_library(rocenante_nccl DESTINATION ${ROCENANTE_PRIVATE_LIBDIR}/nccl LINK)

# The command finds the library beside it, wherever the prefix is moved to; the loader's own folders need no
# search path, and packages may not have one.
file(RELATIVE_PATH bin_to_lib /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR})
target_compile_definitions(rocenante_cli_parts PRIVATE ROCENANTE_BIN_TO_LIB="${bin_to_lib}")
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set_target_properties(rocenante_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
endif()
install(TARGETS rocenante_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
if(ROCENANTE_PACKAGE)
  include(cmake/package.cmake)
else()
  install(FILES docs/man/rocenante.1 docs/man/rocenante-perf.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
          COMPONENT command)
  install(FILES LICENSE THIRD_PARTY_NOTICES DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)
endif()

# find_package(rocenante). While the major version is 0 a minor version may change the interface.
write_basic_package_version_file(${build_package_dir}/rocenante-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
configure_file(cmake/rocenante-config.cmake ${build_package_dir}/rocenante-config.cmake COPYONLY)
install(FILES ${build_package_dir}/rocenante-config.cmake ${build_package_dir}/rocenante-config-version.cmake
        DESTINATION ${package_dir} COMPONENT development)
install(EXPORT rocenante-targets NAMESPACE rocenante:: DESTINATION ${package_dir} COMPONENT development)
export(EXPORT rocenante-targets NAMESPACE rocenante:: FILE ${build_package_dir}/rocenante-targets.cmake)

# pkg-config; the installed file names no absolute path, so the prefix can be moved.
file(RELATIVE_PATH pc_to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
set(PC_PREFIX "\${pcfiledir}/${pc_to_prefix}")
set(PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
set(PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
configure_file(cmake/rocenante.pc.in ${CMAKE_BINARY_DIR}/installed/rocenante.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/installed/rocenante.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT development)
set(PC_PREFIX ${CMAKE_BINARY_DIR})
set(PC_LIBDIR ${CMAKE_BINARY_DIR}/lib)
set(PC_INCLUDEDIR ${CMAKE_SOURCE_DIR}/include)
configure_file(cmake/rocenante.pc.in ${CMAKE_BINARY_DIR}/lib/pkgconfig/rocenante.pc @ONLY)
