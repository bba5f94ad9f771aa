// SPDX-License-Identifier: Apache-2.0
//
// The only place that names concrete transports.
#include <sched.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <mutex>
#include <span>

#include "lib/net/crypto.h"
#include "lib/net/fork.h"
#include "transports/loopback/loopback.h"
#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"
#include "transports/transport.h"
#include "transports/verbs/verbs.h"

namespace rocenante {
namespace {

constexpr std::array<const char*, 4> kNames = {"loopback", "shm", "verbs", "tcp"};

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Only where RDMA may be used, which asks for neither of the others.
void find_ports(const Config& config, HostIdentity* identity) {
  const std::string& setting = config.text(Key::kTransport);
  if (setting != "auto" && setting != "verbs") return;
  Result<std::vector<fabric::InterfaceAddress>> addresses = fabric::interface_addresses();
  Result<fabric::Fabric> found =
      addresses.ok() ? fabric::discover("/sys", addresses.value(), fabric::Wanted::from(config))
                     : addresses.status();
  if (!found.ok()) {
    identity->ports_error = found.status().text();
    return;
  }
  for (const fabric::Skipped& one : found.value().skipped)
    identity->no_ports +=
        fmt::format("{}{}: {}", identity->no_ports.empty() ? "" : "; ", one.name, one.reason);
  if (found.value().ports.empty()) {
    if (identity->no_ports.empty()) identity->no_ports = "it has no RDMA device";
    return;
  }
  // Loaded only where it is of use. Who has named ports counts on them.
  if (const Status usable = verbs_usable(); usable.ok()) {
    identity->ports = std::move(found.value().ports);
  } else if (config.text(Key::kIbHca).empty()) {
    identity->no_ports = usable.text();
  } else {
    identity->ports_error = usable.text();
  }
}

constinit std::mutex nonce_mutex;
[[maybe_unused]] const bool kHooked = net::lock_across_fork<nonce_mutex>();

std::uint64_t process_nonce() {
  // Drawn anew in a forked child, which must not pass for its parent.
  static std::uint64_t nonce = 0;
  static std::uint64_t generation = ~std::uint64_t{0};
  const std::lock_guard lock(nonce_mutex);
  if (generation != net::fork_generation()) {
    net::random_bytes(std::as_writable_bytes(std::span(&nonce, 1)));
    generation = net::fork_generation();
  }
  return nonce;
}

class BuiltinTransports final : public TransportCatalog {
 public:
  std::span<const char* const> names() const override { return kNames; }

  void look_around(const Config& config, HostIdentity* identity) const override {
    find_ports(config, identity);
  }

  bool reachable(std::string_view name, const HostIdentity& a, const HostIdentity& b) const override {
    if (name == "loopback") return a.process_nonce == b.process_nonce;
    if (name == "shm") return !a.boot_id.empty() && a.boot_id == b.boot_id;
    if (name == "verbs") return fabric::have_rail(a.ports, b.ports);
    return name == "tcp";
  }

  Result<std::unique_ptr<Transport>> make(std::string_view name) const override {
    if (name == "loopback") return make_loopback_transport();
    if (name == "shm") return make_shm_transport();
    if (name == "verbs") return make_verbs_transport();
    if (name == "tcp") return make_tcp_transport();
    return make_error(Code::kInvalidArgument,
                      "transport '{}' is unknown: expected loopback, shm, verbs or tcp", name);
  }
};

}  // namespace

const TransportCatalog& builtin_transports() {
  // Never destroyed: threads may make communicators while static objects go.
  static const auto* const catalog = new BuiltinTransports;
  return *catalog;
}

HostIdentity local_identity() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string processors;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    processors.assign(reinterpret_cast<const char*>(&set), sizeof set);
    processors.erase(processors.find_last_not_of('\0') + 1);
  }
  return {host.data(),
          first_line("/proc/sys/kernel/random/boot_id"),
          process_nonce(),
          ::getpid(),
          processors,
          {},
          {},
          {}};
}

}  // namespace rocenante
