// SPDX-License-Identifier: Apache-2.0
#include "lib/device/registry.h"

#include <atomic>

#include "lib/base/config.h"
#include "lib/device/cuda_device.h"

namespace rocenante {
namespace {

// A list that only grows, newest first, and is neither locked nor destroyed: a child of a fork finds it in
// order, and threads may still make communicators while static objects go.
struct Kind {
  std::string_view name;
  OpenDevice open;
  Kind* next;
};
constinit Kind cuda{"cuda", cuda_device, nullptr};
constinit std::atomic<Kind*> newest{&cuda};

}  // namespace

void register_device(const char* name, OpenDevice open) {
  auto* const kind = new Kind{name, open, newest.load(std::memory_order_relaxed)};
  // Release: whoever finds it reads all of it.
  while (!newest.compare_exchange_weak(kind->next, kind, std::memory_order_release,
                                       std::memory_order_relaxed)) {
  }
  if (kind->name != "cuda") admit_choice(Key::kDevice, name);
}

Result<std::shared_ptr<Device>> open_device(std::string_view name, int number) {
  // Lives for ever, so nobody owns it.
  if (name == "auto" || name == "host") return std::shared_ptr<Device>(&host_device(), [](Device*) {});
  for (const Kind* kind = newest.load(std::memory_order_acquire); kind != nullptr; kind = kind->next) {
    if (kind->name == name) return kind->open(number);
  }
  return make_error(Code::kInvalidUsage, "ROCENANTE_DEVICE={}: there is no such device", name);
}

}  // namespace rocenante
