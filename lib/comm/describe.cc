// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/describe.h"

#include <rocenante/rocenante.h>

#include <span>

#include "lib/base/config.h"
#include "lib/comm/topology.h"
#include "reduce_kernels/reduce.h"

namespace rocenante {
namespace {

std::string describe_targets(const Config& config) {
  std::string text;
  for (const char* const* target = reduce::built_targets(); *target != nullptr; ++target) {
    text +=
        fmt::format(" {}{}", *target, reduce::target_supported(*target) ? "" : " (not on this processor)");
  }
  const reduce::Kernels* const kernels = reduce::find_kernels(config.text(Key::kSimd).c_str());
  return fmt::format("targets built:{}\nreduction:     {} (ROCENANTE_SIMD={})\n", text,
                     kernels == nullptr ? "none: this processor lacks it" : kernels->target,
                     config.text(Key::kSimd));
}

Result<std::string> describe_info() {
  RCN_ASSIGN(const Config config, Config::load());
  const HostIdentity self = local_identity();
  std::string transports;
  for (const char* const name : builtin_transports().names()) transports += fmt::format(" {}", name);
  return fmt::format(
      "rocenante {}.{}.{} ({}, {})\n"
      "host:          {}, {} usable processors, boot {}\n"
      "{}"
      "device:        {}\n"
      "transports:   {} (ROCENANTE_TRANSPORT={}: loopback between ranks of one process, shm between "
      "processes of one "
      "host, tcp between hosts)\n"
      "not built yet: verbs, cuda (docs/status.md)\n",
      RCN_MAJOR, RCN_MINOR, RCN_PATCH, ROCENANTE_BUILD_TYPE, ROCENANTE_COMPILER, self.host_name,
      processors_on_host(0, std::span(&self, 1)),
      self.boot_id.empty() ? "unknown: shm cannot be used" : self.boot_id, describe_targets(config),
      host_device().name(), transports, config.text(Key::kTransport));
}

}  // namespace

Result<std::string> describe(std::string_view topic) {
  if (topic == "info") return describe_info();
  if (topic == "config.md") return config_reference();
  if (topic == "config") {
    RCN_ASSIGN(const Config config, Config::load());
    return config.describe();
  }
  return make_error(Code::kInvalidArgument, "topic is '{}': expected info, config or config.md", topic);
}

}  // namespace rocenante
