// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/describe.h"

#include <rocenante/rocenante.h>

#include <span>

#include "lib/base/config.h"
#include "lib/comm/topology.h"
#include "lib/device/cuda_device.h"
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

// The RDMA ports, and what follows for ranks on other hosts.
std::string describe_fabric(const Config& config, const HostIdentity& self) {
  const std::string& setting = config.text(Key::kTransport);
  if (setting != "auto" && setting != "verbs") {
    return fmt::format("RDMA:          not looked at (ROCENANTE_TRANSPORT={})\n", setting);
  }
  if (!self.ports_error.empty()) return fmt::format("RDMA:          refused: {}\n", self.ports_error);
  std::string text, subnets;
  for (const fabric::Port& port : self.ports) {
    text += fmt::format(
        "RDMA port:     {}, GID {} {} on {}, MTU {}, {}{}{}{}\n", fabric::port_name(port), port.gid_index,
        fabric::address_text(port.gid), port.netdev, port.mtu, port.rate, port.software ? ", software" : "",
        port.numa_node < 0 ? "" : fmt::format(", NUMA node {}", port.numa_node),
        port.processors.empty() ? "" : fmt::format(", near processors {}", port.processors));
    subnets += fmt::format("{}{}", subnets.empty() ? "" : ", ", fabric::subnet_text(port));
  }
  if (!self.no_ports.empty()) text += fmt::format("RDMA, unused:  {}\n", self.no_ports);
  if (self.ports.empty())
    return text + "rails:         none: ranks on other hosts are not reached by verbs\n";
  return text +
         fmt::format(
             "rails:         {} (ROCENANTE_STRIPE_BYTES={}): to ranks on other hosts with a port in the "
             "same subnet, by verbs{}\n",
             subnets, config.text(Key::kStripeBytes),
             setting == "verbs" ? "; within this host too, since that is forced" : "");
}

Result<std::string> describe_info() {
  RCN_ASSIGN(const Config config, Config::load());
  HostIdentity self = local_identity();
  builtin_transports().look_around(config, &self);
  std::string transports;
  for (const char* const name : builtin_transports().names()) transports += fmt::format(" {}", name);
  return fmt::format(
      "rocenante {}.{}.{} ({}, {})\n"
      "host:          {}, {} usable processors, boot {}\n"
      "{}"
      "device:        {}\n"
      "transports:   {} (ROCENANTE_TRANSPORT={}: loopback between ranks of one process, shm between "
      "processes of one host, verbs and tcp between hosts)\n"
      "{}"
      "cuda:          {}\n",
      RCN_MAJOR, RCN_MINOR, RCN_PATCH, ROCENANTE_BUILD_TYPE, ROCENANTE_COMPILER, self.host_name,
      processors_on_host(0, std::span(&self, 1)),
      self.boot_id.empty() ? "unknown: shm cannot be used" : self.boot_id, describe_targets(config),
      host_device().name(), transports, config.text(Key::kTransport), describe_fabric(config, self),
      describe_cuda());
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
