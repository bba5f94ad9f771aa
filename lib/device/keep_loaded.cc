// SPDX-License-Identifier: Apache-2.0
#include "lib/device/keep_loaded.h"

#include <dlfcn.h>
#include <link.h>

namespace rocenante {

bool keep_loaded() noexcept {
  Dl_info info{};
  void* map = nullptr;
  if (::dladdr1(reinterpret_cast<const void*>(&keep_loaded), &info, &map, RTLD_DL_LINKMAP) == 0)
    return false;
  const char* const name = static_cast<const link_map*>(map)->l_name;
  if (name[0] == '\0') return true;  // the program itself
  // Not closed: with RTLD_NODELETE that would make no difference.
  return ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) != nullptr;
}

}  // namespace rocenante
