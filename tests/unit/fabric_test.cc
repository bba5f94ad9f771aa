// SPDX-License-Identifier: Apache-2.0
#include "lib/fabric/fabric.h"

#include <algorithm>
#include <string>
#include <vector>

#include "lib/fabric/hca_list.h"
#include "lib/fabric/sysfs.h"
#include "tests/support/catch.h"
#include "tests/support/sysfs_tree.h"

namespace rocenante::fabric {
namespace {

using test::SysfsTree;

Result<Fabric> look(const SysfsTree& tree, const Wanted& wanted = {}) {
  return discover(tree.root(), tree.addresses(), wanted);
}

// "DEVICE:PORT gid INDEX SUBNET" of each port, or the error.
std::vector<std::string> found(const SysfsTree& tree, const Wanted& wanted = {}) {
  const Result<Fabric> fabric = look(tree, wanted);
  if (!fabric.ok()) return {fabric.status().text()};
  std::vector<std::string> lines;
  for (const Port& port : fabric.value().ports) {
    lines.push_back(port_name(port) + " gid " + std::to_string(port.gid_index) + " " + subnet_text(port));
  }
  return lines;
}

std::string reason(const SysfsTree& tree, const std::string& name, const Wanted& wanted = {}) {
  const Result<Fabric> fabric = look(tree, wanted);
  if (!fabric.ok()) return fabric.status().text();
  for (const Skipped& one : fabric.value().skipped) {
    if (one.name == name) return one.reason;
  }
  return "";
}

std::vector<Port> ports(const std::string& fixture, const Wanted& wanted = {}) {
  const SysfsTree tree(fixture);
  Result<Fabric> fabric = look(tree, wanted);
  INFO(fabric.status().text());
  REQUIRE(fabric.ok());
  return fabric.take().ports;
}

std::vector<std::string> pairs(const std::vector<Port>& a, const std::vector<Port>& b) {
  std::vector<std::string> lines;
  for (const Rail& rail : rails_between(a, b)) {
    lines.push_back(address_text(rail.local.gid) + " - " + address_text(rail.remote.gid));
  }
  return lines;
}

using Lines = std::vector<std::string>;

TEST_CASE("a Spark with one cable has two ports, one for each PCIe function", "[fabric]") {
  const SysfsTree tree("spark-one-cable-1");
  CHECK(found(tree) ==
        Lines{"roceP2p1s0f0:1 gid 3 192.168.101.0/24", "rocep1s0f0:1 gid 3 192.168.100.0/24"});
  CHECK(reason(tree, "rocep1s0f1:1").find("not active (state '1: DOWN')") != std::string::npos);
  const Port port = ports("spark-one-cable-1").at(1);
  CHECK(port == Port{"rocep1s0f0", 1, 3, test::gid_of("192.168.100.1"), 120, "enp1s0f0np0", 4096,
                     "200 Gb/sec (4X HDR)", -1, "0-19"});
}

TEST_CASE("the GID is chosen for each port by its type and address", "[fabric]") {
  CHECK(ports("soft").at(0).software);
  CHECK_FALSE(ports("mixed-gids").at(0).software);
  CHECK(found(SysfsTree("soft")) == Lines{"rxe0:1 gid 1 10.77.0.0/24", "rxe1:1 gid 1 10.77.1.0/24"});
  CHECK(found(SysfsTree("mixed-gids")) == Lines{"mlx5_0:1 gid 8 10.1.0.0/24"});
  CHECK(found(SysfsTree("mixed-gids"), {.ipv6 = true}) == Lines{"mlx5_0:1 gid 5 2001:db8:0:1::/64"});
  CHECK(found(SysfsTree("mixed-gids"), {.gid_index = 3}) == Lines{"mlx5_0:1 gid 3 169.254.0.0/16"});
  CHECK(found(SysfsTree("no-roce-v2")) == Lines{"mlx5_0:1 gid 3 10.1.0.0/24"});
  CHECK(reason(SysfsTree("no-roce-v2"), "mlx5_1:1") ==
        "no RoCE v2 GID with an IPv4 address (ROCENANTE_IB_ADDR_FAMILY) that is not link-local: has its "
        "interface "
        "one? it has: 0 fe80::4ebb:47ff:fe00:2 (IB/RoCE v1), 1 10.2.0.1 (IB/RoCE v1)");
}

TEST_CASE("a self-assigned IPv4 address is taken when there is no other", "[fabric]") {
  SysfsTree tree("mixed-gids");
  tree.set("class/infiniband/mlx5_0/ports/1/gids/8", "0000:0000:0000:0000:0000:0000:0000:0000");
  CHECK(found(tree) == Lines{"mlx5_0:1 gid 3 169.254.0.0/16"});
}

TEST_CASE("a link-local GID is never taken, not even by its number", "[fabric]") {
  const SysfsTree tree("link-local-only");
  CHECK(found(tree).empty());
  CHECK(found(tree, {.ipv6 = true}).empty());
  CHECK(found(tree, {.gid_index = 1}).empty());
  CHECK(reason(tree, "mlx5_0:1", {.gid_index = 1}).find("is fe80::4ebb:47ff:fe00:1, which is link-local") !=
        std::string::npos);
  CHECK(reason(tree, "mlx5_0:1", {.gid_index = 9}).find("GID 9 (NCCL_IB_GID_INDEX") == 0);
  CHECK(reason(tree, "mlx5_0:1", {.ipv6 = true}).find("with an IPv6 address") != std::string::npos);
}

TEST_CASE("what cannot be used is left aside with its reason", "[fabric]") {
  const SysfsTree tree("assorted");
  CHECK(found(tree) == Lines{"mlx4_0:1 gid 3 10.4.0.0/24", "mlx5_10:1 gid 3 10.7.0.0/30"});
  CHECK(reason(tree, "mlx4_0:2").find("not active") != std::string::npos);
  CHECK(reason(tree, "mlx5_0:1").find("link layer is 'InfiniBand'") != std::string::npos);
  CHECK(reason(tree, "mlx5_1:1").find("10.6.0.1 is on no interface that this process sees (eth6)") !=
        std::string::npos);
  CHECK(ports("assorted").at(0).mtu == 1024);
  CHECK(ports("assorted").at(1).mtu == 4096);
}

TEST_CASE("a host without adapters has no ports, and says so when one is wanted", "[fabric]") {
  const Result<Fabric> nothing = discover("/nonexistent", {}, {});
  REQUIRE(nothing.ok());
  CHECK(nothing.value().ports.empty());
  const Result<Fabric> wanted = discover("/nonexistent", {}, {.hca = "mlx5_0"});
  REQUIRE_FALSE(wanted.ok());
  CHECK(wanted.status().code() == Code::kInvalidArgument);
  CHECK(wanted.status().text() ==
        "NCCL_IB_HCA / ROCENANTE_IB_HCA lists 'mlx5_0', which cannot be used: there is no such port; this "
        "host has "
        "none");
}

TEST_CASE("the list of adapters is read as NCCL reads it", "[fabric]") {
  const SysfsTree tree("assorted");
  const Lines first{"mlx4_0:1 gid 3 10.4.0.0/24"}, tenth{"mlx5_10:1 gid 3 10.7.0.0/30"};
  const Lines both{first[0], tenth[0]};
  CHECK(found(tree, {.hca = "mlx"}) == both);
  CHECK(found(tree, {.hca = "mlx4"}) == first);
  CHECK(found(tree, {.hca = "mlx4_0:1"}) == first);
  CHECK(found(tree, {.hca = "mlx5_1"}) == tenth);  // a prefix of mlx5_10, which can be used
  CHECK(found(tree, {.hca = "=mlx5_10,mlx4_0"}) == both);
  CHECK(found(tree, {.hca = ",mlx5_10,,"}) == tenth);
  CHECK(found(tree, {.hca = "^mlx4"}) == tenth);
  CHECK(found(tree, {.hca = "^=mlx5_1"}) == both);
  CHECK(found(tree, {.hca = "^mlx5_1"}) == first);
  CHECK(found(tree, {.hca = "^mlx4_0:2"}) == both);
  CHECK(found(tree, {.hca = "^mlx4_0:1"}) == tenth);
  CHECK(found(tree, {.hca = "^"}).empty());
  CHECK(reason(tree, "mlx4_0:1", {.hca = "^mlx4"}).find("leaves it out") != std::string::npos);
}

TEST_CASE("a listed port that is missing or cannot be used is an error that names it and why", "[fabric]") {
  const SysfsTree tree("assorted");
  const std::string before = "NCCL_IB_HCA / ROCENANTE_IB_HCA lists '";
  CHECK(
      found(tree, {.hca = "mlx4_0,mlx6"}).at(0) ==
      before +
          "mlx6', which cannot be used: there is no such port; this host has mlx4_0:1, mlx4_0:2, mlx5_0:1, "
          "mlx5_1:1, mlx5_10:1");
  CHECK(found(tree, {.hca = "mlx4_0:2"})
            .at(0)
            .find(before + "mlx4_0:2', which cannot be used: mlx4_0:2: the port is "
                           "not active") == 0);
  CHECK(found(tree, {.hca = "=mlx5_1"})
            .at(0)
            .find(before + "mlx5_1', which cannot be used: mlx5_1:1: its address") == 0);
  CHECK(found(tree, {.hca = "=mlx5_100"}).at(0).find("there is no such port") != std::string::npos);
  CHECK(found(tree, {.hca = "mlx4_0:3"}).at(0).find("there is no such port") != std::string::npos);
  CHECK(found(tree, {.hca = "mlx4_0:one"}).at(0).find("'mlx4_0:one' is not DEVICE or DEVICE:PORT") !=
        std::string::npos);
  CHECK(found(tree, {.hca = "mlx4_0:"}).at(0).find("is not DEVICE or DEVICE:PORT") != std::string::npos);
}

TEST_CASE("rails are the ports in one subnet, in the same order from both ends", "[fabric]") {
  const std::vector<Port> a = ports("spark-two-cables-1"), b = ports("spark-two-cables-2");
  CHECK(pairs(a, b) == Lines{"192.168.100.1 - 192.168.100.2", "192.168.101.1 - 192.168.101.2",
                             "192.168.102.1 - 192.168.102.2", "192.168.103.1 - 192.168.103.2"});
  const std::vector<Rail> there = rails_between(a, b), back = rails_between(b, a);
  REQUIRE(there.size() == back.size());
  for (std::size_t i = 0; i < there.size(); ++i) {
    CHECK(there[i].local == back[i].remote);
    CHECK(there[i].remote == back[i].local);
  }
  // With one cable on one side the pairs are those of that cable.
  CHECK(pairs(a, ports("spark-one-cable-2")) ==
        Lines{"192.168.100.1 - 192.168.100.2", "192.168.101.1 - 192.168.101.2"});
}

TEST_CASE("in a triangle each pair has the two rails of its own cable", "[fabric]") {
  const std::vector<Port> hosts[] = {ports("triangle-0"), ports("triangle-1"), ports("triangle-2")};
  CHECK(pairs(hosts[0], hosts[1]) == Lines{"10.0.0.1 - 10.0.0.2", "10.0.1.1 - 10.0.1.2"});
  CHECK(pairs(hosts[1], hosts[2]) == Lines{"10.1.0.2 - 10.1.0.3", "10.1.1.2 - 10.1.1.3"});
  CHECK(pairs(hosts[2], hosts[0]) == Lines{"10.2.0.3 - 10.2.0.1", "10.2.1.3 - 10.2.1.1"});
}

TEST_CASE("hosts without a common subnet have no rails", "[fabric]") {
  CHECK(pairs(ports("soft"), ports("spark-one-cable-1")).empty());
  // The same network address with another length is another subnet.
  std::vector<Port> a = ports("soft"), b = a;
  b[0].prefix_length = 112;
  CHECK(pairs(a, b) == Lines{"10.77.1.1 - 10.77.1.1"});
}

TEST_CASE("in one flat subnet ports are paired by their addresses, at most eight", "[fabric]") {
  std::vector<Port> a, b;
  for (int i = 0; i < 10; ++i) {
    Port port;
    port.device = "mlx5_" + std::to_string(i);
    port.prefix_length = 112;
    port.gid = test::gid_of("10.0.1." + std::to_string(20 - i));
    a.push_back(port);
    port.gid = test::gid_of("10.0.2." + std::to_string(1 + i));
    b.push_back(port);
  }
  const Lines lines = pairs(a, b);
  REQUIRE(lines.size() == kMostRails);
  CHECK(lines[0] == "10.0.1.11 - 10.0.2.1");
  CHECK(lines[7] == "10.0.1.18 - 10.0.2.8");
}

TEST_CASE("a GID is eight groups of four digits", "[fabric]") {
  Gid gid;
  CHECK(parse_gid("0000:0000:0000:0000:0000:ffff:0a4d:0101", &gid));
  CHECK(gid == test::gid_of("10.77.1.1"));
  for (const char* bad :
       {"", "0000", "0000:0000:0000:0000:0000:ffff:0a4d:010", "0000:0000:0000:0000:0000:ffff:0a4d:01g1",
        "0000.0000:0000:0000:0000:ffff:0a4d:0101", "0000:0000:0000:0000:0000:ffff:0a4d:01011"}) {
    CHECK_FALSE(parse_gid(bad, &gid));
  }
}

TEST_CASE("the addresses of this machine's interfaces have prefixes", "[fabric]") {
  const auto addresses = interface_addresses();
  REQUIRE(addresses.ok());
  const auto loopback =
      std::find_if(addresses.value().begin(), addresses.value().end(),
                   [](const auto& one) { return one.address == test::gid_of("127.0.0.1"); });
  REQUIRE(loopback != addresses.value().end());
  CHECK(loopback->netdev == "lo");
  CHECK(loopback->prefix_length == 104);
}

}  // namespace
}  // namespace rocenante::fabric
