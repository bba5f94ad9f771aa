// SPDX-License-Identifier: Apache-2.0
#include "lib/net/interfaces.h"

#include <arpa/inet.h>

#include "tests/support/catch.h"

namespace rocenante::net {
namespace {

Interface make(std::string name, const std::string& address, bool is_up = true) {
  const bool is_v6 = address.find(':') != std::string::npos;
  const auto parsed = parse_address(is_v6 ? "[" + address + "]:0" : address + ":0");
  REQUIRE(parsed.status().text() == "");
  Interface result{std::move(name), parsed.value().address, is_up, false};
  result.is_loopback = result.address.is_loopback();
  return result;
}

// As getifaddrs lists them: all IPv4, then all IPv6.
std::vector<Interface> typical() {
  return {make("lo", "127.0.0.1"),          make("docker0", "172.17.0.1"),
          make("eth0", "10.0.0.1"),         make("eth1", "10.0.1.1"),
          make("eth10", "10.0.10.1"),       make("enp1s0f0np0", "192.168.0.1"),
          make("wlan0", "10.9.9.9", false), make("lo", "::1"),
          make("eth0", "2001:db8::1"),      make("eth1", "fe80::1"),
          make("eth1", "2001:db8::2")};
}

// "NAME ADDRESS" of the choice, or the error's text.
std::string chosen(const std::vector<Interface>& all, std::string_view pattern,
                   std::string_view family = "any") {
  const auto choice = choose_interface(all, pattern, family);
  if (!choice.ok()) {
    CHECK(choice.status().code() == Code::kInvalidArgument);
    return choice.status().text();
  }
  const std::string text = choice.value().address.text();
  return choice.value().name + " " + text.substr(0, text.rfind(':'));
}

TEST_CASE("without a pattern the first real interface is taken, loopback last", "[interfaces]") {
  CHECK(chosen(typical(), "") == "eth0 10.0.0.1");
  CHECK(chosen({make("lo", "127.0.0.1"), make("docker0", "172.17.0.1")}, "") == "docker0 172.17.0.1");
  CHECK(chosen({make("lo", "127.0.0.1"), make("virbr0", "192.168.122.1"), make("zz0", "10.0.0.1")}, "") ==
        "zz0 10.0.0.1");
  CHECK(chosen({make("lo", "127.0.0.1")}, "") == "lo 127.0.0.1");
  CHECK(chosen({make("eth0", "10.0.0.1", false), make("eth1", "10.0.1.1")}, "") == "eth1 10.0.1.1");
}

TEST_CASE("a pattern is a list of prefixes", "[interfaces]") {
  CHECK(chosen(typical(), "eth") == "eth0 10.0.0.1");
  CHECK(chosen(typical(), "eth1") == "eth1 10.0.1.1");
  CHECK(chosen(typical(), "enp") == "enp1s0f0np0 192.168.0.1");
  // The order of the interfaces decides, not that of the list.
  CHECK(chosen(typical(), "enp,eth1") == "eth1 10.0.1.1");
  CHECK(chosen(typical(), "docker") == "docker0 172.17.0.1");
  CHECK(chosen(typical(), "lo") == "lo 127.0.0.1");
  CHECK(chosen(typical(), ",eth1,") == "eth1 10.0.1.1");
  CHECK(chosen(typical(), "eth1:4242") == "eth1 10.0.1.1");
}

TEST_CASE("an equals sign makes names exact", "[interfaces]") {
  CHECK(chosen(typical(), "=eth10") == "eth10 10.0.10.1");
  CHECK(chosen(typical(), "=eth10,eth1") == "eth1 10.0.1.1");
  CHECK(chosen(typical(), "=eth").starts_with("no interface that is up matches"));
  CHECK(chosen(typical(), "=eth100").starts_with("no interface that is up matches"));
}

TEST_CASE("a caret excludes", "[interfaces]") {
  CHECK(chosen(typical(), "^lo,docker") == "eth0 10.0.0.1");
  CHECK(chosen(typical(), "^lo,docker,eth") == "enp1s0f0np0 192.168.0.1");
  CHECK(chosen(typical(), "^=eth0,lo,docker0,eth1") == "eth10 10.0.10.1");
  // Whatever is not excluded counts, docker and loopback included.
  CHECK(chosen(typical(), "^eth") == "lo 127.0.0.1");
  CHECK(chosen(typical(), "^lo,docker,eth,enp").starts_with("no interface that is up matches"));
}

TEST_CASE("the family is obeyed", "[interfaces]") {
  CHECK(chosen(typical(), "", "AF_INET") == "eth0 10.0.0.1");
  CHECK(chosen(typical(), "", "AF_INET6") == "eth0 [2001:db8::1]");
  CHECK(chosen(typical(), "eth1", "AF_INET6") == "eth1 [2001:db8::2]");
  CHECK(chosen({make("lo", "::1"), make("eth0", "fe80::2")}, "", "AF_INET6") == "eth0 [fe80::2]");
  CHECK(chosen(typical(), "enp", "AF_INET6").starts_with("no interface that is up matches"));
}

TEST_CASE("an error lists what there is", "[interfaces]") {
  CHECK(chosen({make("lo", "127.0.0.1"), make("wlan0", "10.9.9.9", false)}, "ib") ==
        "no interface that is up matches NCCL_SOCKET_IFNAME / ROCENANTE_SOCKET_IFNAME 'ib' and address "
        "family "
        "'any'; there are: lo (127.0.0.1), wlan0 (10.9.9.9, down)");
  CHECK(chosen({}, "").ends_with("there are: none"));
  CHECK(chosen(typical(), "wlan").find("wlan0 (10.9.9.9, down)") != std::string::npos);
}

TEST_CASE("the system's interfaces include loopback", "[interfaces]") {
  const auto all = list_interfaces();
  REQUIRE(all.ok());
  const auto loopback = choose_interface(all.value(), "=lo", "AF_INET");
  REQUIRE(loopback.ok());
  CHECK(loopback.value().is_loopback);
  CHECK(loopback.value().address.is_loopback());
  CHECK(loopback.value().address.port() == 0);
}

}  // namespace
}  // namespace rocenante::net
