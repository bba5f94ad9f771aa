// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/policy.h"

#include <dlfcn.h>
#include <unistd.h>

#include <string>

#include "lib/base/log.h"
#include "lib/comm/boundary.h"
#include "lib/device/cuda_device.h"

namespace rocenante::nccl {
namespace {

// Asks the driver only where a device file says that there may be one: without it nothing is loaded.
bool look_for_gpu() {
  bool any = false;
  for (const char* device :
       {"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-gpu", "/dev/nvgpu/igpu0", "/dev/dxg"}) {
    any = any || ::access(device, F_OK) == 0;
  }
  if (!any) return false;
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return false;
  auto* const init = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  auto* const count = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  return init != nullptr && count != nullptr && init(0) == 0 && count(&devices) == 0 && devices > 0;
}

}  // namespace

bool has_gpu() {
  static const bool found = look_for_gpu();
  return found;
}

World chosen_world(const Config& config) {
  const std::string& fallback = config.text(Key::kFallback);
  if (fallback == "require") return World::kReal;
  if (fallback == "off") return World::kOwn;
  return has_gpu() ? World::kReal : World::kOwn;
}

const char* memory_device(const Config& config) {
  const std::string& device = config.text(Key::kDevice);
  return device == "auto" ? has_gpu() ? "cuda" : "host" : device.c_str();
}

bool own_side_possible(const Config& config) {
  const std::string& device = config.text(Key::kDevice);
  if (device == "host") return true;
  if (device == "auto")
    return !has_gpu();  // a GPU's calls stay the real one's until somebody asks for ours
  const Status usable = cuda_available();
  if (!usable.ok()) log_warn(-1, "ROCENANTE_DEVICE={}: every call is NCCL's: {}", device, usable.text());
  return usable.ok();
}

Result<const RealLibrary*> wanted_real() {
  if (const RealLibrary* const library = loaded_real(); library != nullptr) return library;
  RCN_ASSIGN(const Config config, load_settings({}));
  if (chosen_world(config) == World::kOwn) return static_cast<const RealLibrary*>(nullptr);
  return load_real(config.text(Key::kNcclPath));
}

std::string why_no_real() {
  Result<const RealLibrary*> wanted = wanted_real();
  if (!wanted.ok()) return wanted.status().text();
  const Result<Config> config = load_settings({});
  if (!config.ok()) return config.status().text();
  const std::string& fallback = config.value().text(Key::kFallback);
  return fmt::format("ROCENANTE_FALLBACK={}{}", fallback, fallback == "auto" ? " and there is no GPU" : "");
}

}  // namespace rocenante::nccl
