# SPDX-License-Identifier: Apache-2.0
# Debian packages by cpack, from a build of their own (presets package and package-aarch64): they live under
# /usr, have no search path and follow Debian's rules for documentation. docs/guide/install.md says how.
set(ROCENANTE_MAINTAINER "RoCEnante maintainers <rocenante@example.org>" CACHE STRING "Maintainer of the packages")
find_program(GZIP_PROGRAM gzip REQUIRED)

# Without name and time, so that equal texts make equal packages.
function(rocenante_gzip from to)
  execute_process(COMMAND ${GZIP_PROGRAM} -9nc ${from} OUTPUT_FILE ${to} COMMAND_ERROR_IS_FATAL ANY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${from})
endfunction()

set(staging ${CMAKE_BINARY_DIR}/packaging)
file(MAKE_DIRECTORY ${staging}/man)
foreach(page rocenante rocenante-perf)
  rocenante_gzip(${CMAKE_SOURCE_DIR}/docs/man/${page}.1 ${staging}/man/${page}.1.gz)
endforeach()
install(DIRECTORY ${staging}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT command)

configure_file(packaging/changelog.in ${staging}/changelog @ONLY)
rocenante_gzip(${staging}/changelog ${staging}/changelog.gz)
file(READ ${CMAKE_SOURCE_DIR}/packaging/copyright copyright)
file(READ ${CMAKE_SOURCE_DIR}/THIRD_PARTY_NOTICES notices)
file(WRITE ${staging}/copyright "${copyright}\n${notices}")

foreach(package librocenante1:library librocenante-dev:development rocenante:command)
  string(REGEX MATCH "(.*):(.*)" ignored ${package})
  set(name ${CMAKE_MATCH_1})
  set(component ${CMAKE_MATCH_2})
  install(FILES ${staging}/changelog.gz ${staging}/copyright DESTINATION share/doc/${name} COMPONENT ${component})
  if(EXISTS ${CMAKE_SOURCE_DIR}/packaging/${name}.lintian-overrides)
    install(FILES packaging/${name}.lintian-overrides DESTINATION share/lintian/overrides RENAME ${name}
            COMPONENT ${component})
  endif()
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_FILE_NAME DEB-DEFAULT)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME rocenante)
set(CPACK_PACKAGE_CONTACT "${ROCENANTE_MAINTAINER}")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/deb)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL library development command)
set(CPACK_DEB_COMPONENT_INSTALL ON)
# Folders of a package are the same whoever builds it.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                                WORLD_READ WORLD_EXECUTE)

set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
# For another processor dpkg's own answer would be this machine's.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
endif()
# The C library's version comes from the symbols that are used.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/lib)

set(same_version "(= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
# Written by hand: cpack would also offer what lies in private folders.
configure_file(packaging/shlibs.in ${staging}/shlibs @ONLY)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${staging}/shlibs ${CMAKE_SOURCE_DIR}/packaging/triggers)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "librocenante1 ${same_version}")
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMMAND_PACKAGE_DEPENDS "librocenante1 ${same_version}")

set(about "RoCEnante performs collective operations between the ranks of a parallel
program. It is made for small messages: every rank publishes its buffer to
every peer, and then reduces by itself.")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "collective communication with one exchange per call\n${about}")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "collective communication - files to build against\n${about}

This package has the header, the CMake package and the pkg-config file.")
set(CPACK_COMPONENT_COMMAND_DESCRIPTION "collective communication - command line\n${about}

This package has the command that measures, checks and describes the library.")

include(CPack)
