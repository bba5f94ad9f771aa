// SPDX-License-Identifier: Apache-2.0
#include "lib/device/registry.h"

#include <map>
#include <mutex>
#include <string>

#include "lib/base/config.h"
#include "lib/device/cuda_device.h"

namespace rocenante {
namespace {

struct Kinds {
  std::mutex mutex;
  std::map<std::string, OpenDevice, std::less<>> by_name{{"cuda", cuda_device}};
};

Kinds& kinds() {
  static Kinds instance;
  return instance;
}

}  // namespace

void register_device(const char* name, OpenDevice open) {
  const std::lock_guard lock(kinds().mutex);
  kinds().by_name[name] = open;
  if (std::string_view(name) != "cuda") admit_choice(Key::kDevice, name);
}

Result<std::shared_ptr<Device>> open_device(std::string_view name, int number) {
  // Lives for ever, so nobody owns it.
  if (name == "auto" || name == "host") return std::shared_ptr<Device>(&host_device(), [](Device*) {});
  OpenDevice open = nullptr;
  {
    const std::lock_guard lock(kinds().mutex);
    const auto at = kinds().by_name.find(name);
    if (at != kinds().by_name.end()) open = at->second;
  }
  if (open != nullptr) return open(number);
  return make_error(Code::kInvalidUsage, "ROCENANTE_DEVICE={}: there is no such device", name);
}

}  // namespace rocenante
