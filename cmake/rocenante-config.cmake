# SPDX-License-Identifier: Apache-2.0
# find_package(rocenante) defines the target rocenante::rocenante. It brings nothing else along: what the
# library is made of is inside it.
include(${CMAKE_CURRENT_LIST_DIR}/rocenante-targets.cmake)
