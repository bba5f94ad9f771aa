// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/unique_id.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "lib/comm/rendezvous.h"
#include "tests/support/catch.h"

namespace rocenante {
namespace {

Config config_of(const std::string& options) {
  Result<Config> config = Config::load("ROCENANTE_SOCKET_IFNAME=lo;" + options);
  REQUIRE(config.status().text() == "");
  return config.take();
}

UniqueIdContents sample(const std::string& address) {
  UniqueIdContents contents;
  const auto parsed = net::parse_address(address);
  REQUIRE(parsed.ok());
  contents.rendezvous = parsed.value().address;
  contents.secret = net::random_key();
  contents.number = 0x0123456789abcdef;
  contents.is_listening = true;
  return contents;
}

// A file with a secret, removed afterwards.
class SecretFile {
 public:
  explicit SecretFile(std::string_view text) {
    const int fd = ::mkstemp(path_);
    REQUIRE(fd >= 0);
    REQUIRE(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    ::close(fd);
  }
  ~SecretFile() { ::unlink(path_); }
  std::string option() const { return std::string("ROCENANTE_SECRET_FILE=") + path_; }

 private:
  char path_[32] = "/tmp/rcn-secret-XXXXXX";
};

TEST_CASE("an id keeps its contents", "[unique_id]") {
  const std::string address = GENERATE("10.1.2.3:4242", "[2001:db8::7]:1", "127.0.0.1:65535");
  const UniqueIdContents before = sample(address);
  const auto after = decode_unique_id(encode_unique_id(before));
  REQUIRE(after.ok());
  CHECK(after.value().rendezvous == before.rendezvous);
  CHECK(after.value().rendezvous.text() == address);
  CHECK(after.value().secret.bytes == before.secret.bytes);
  CHECK(after.value().number == before.number);
  CHECK(after.value().is_listening);
  CHECK_FALSE(after.value().is_local_only);
}

TEST_CASE("an offer admits who shares the parent's key, and holds no secret", "[unique_id]") {
  const net::SecretKey parent = net::random_key();
  const Result<UniqueId> id = create_child_id(config_of(""), parent);
  REQUIRE(id.ok());
  const UniqueIdContents contents = decode_unique_id(id.value()).take();
  const Result<ChildOffer> offer = offer_of(id.value());
  REQUIRE(offer.ok());
  CHECK(accept_offer(offer.value(), parent).bytes == id.value().bytes);
  CHECK(accept_offer(offer.value(), net::random_key()).bytes != id.value().bytes);
  const auto& secret = contents.secret.bytes;
  CHECK(std::search(offer.value().begin(), offer.value().end(), secret.begin(), secret.begin() + 8) ==
        offer.value().end());
  CHECK_FALSE(offer_of(UniqueId{}).ok());
  stop_all_rendezvous();
}

TEST_CASE("the scope of an address is kept", "[unique_id]") {
  UniqueIdContents before = sample("[fe80::1]:7");
  before.rendezvous = net::SocketAddress::ipv6(before.rendezvous.host_v6(), 7, 3);
  const auto after = decode_unique_id(encode_unique_id(before));
  REQUIRE(after.ok());
  CHECK(after.value().rendezvous.scope() == 3);
}

TEST_CASE("the first 40 bytes hold nothing but the magic", "[unique_id]") {
  const UniqueId id = encode_unique_id(sample("10.1.2.3:4242"));
  for (std::size_t i = 8; i < kUniqueIdPayloadOffset; ++i) CHECK(id.bytes[i] == std::byte{0});
  const UniqueId other = encode_unique_id(sample("10.9.9.9:1"));
  CHECK(std::equal(id.bytes.begin(), id.bytes.begin() + kUniqueIdPayloadOffset, other.bytes.begin()));
}

TEST_CASE("every flipped bit is noticed", "[unique_id]") {
  const UniqueId id = encode_unique_id(sample("10.1.2.3:4242"));
  for (std::size_t bit = 0; bit < 8 * kUniqueIdBytes; ++bit) {
    UniqueId damaged = id;
    damaged.bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto decoded = decode_unique_id(damaged);
    INFO("bit " << bit);
    REQUIRE(decoded.status().code() == Code::kInvalidArgument);
    REQUIRE(decoded.status().text().starts_with(
        "id is damaged or was not made by rcnGetUniqueId or rcnGetUniqueIdAt"));
  }
  CHECK_FALSE(decode_unique_id(UniqueId{}).ok());
}

TEST_CASE("the tail can be taken and put elsewhere", "[unique_id]") {
  const UniqueIdContents before = sample("10.1.2.3:4242");
  std::array<std::byte, kUniqueIdPayloadBytes> tail;
  encode_unique_id_payload(before, tail);
  const auto after = decode_unique_id_payload(tail);
  REQUIRE(after.ok());
  CHECK(after.value().secret.bytes == before.secret.bytes);
}

TEST_CASE("created ids are all different", "[unique_id]") {
  std::set<std::array<std::byte, net::kKeyBytes>> secrets;
  std::set<std::uint64_t> numbers;
  for (int i = 0; i < 8; ++i) {
    const auto id = create_unique_id(config_of(""));
    REQUIRE(id.status().text() == "");
    const auto contents = decode_unique_id(id.value());
    REQUIRE(contents.ok());
    CHECK(contents.value().rendezvous.is_loopback());
    CHECK(contents.value().rendezvous.port() != 0);
    CHECK(contents.value().is_listening);
    secrets.insert(contents.value().secret.bytes);
    numbers.insert(contents.value().number);
  }
  CHECK(secrets.size() == 8);
  CHECK(numbers.size() == 8);
  stop_all_rendezvous();
}

TEST_CASE("an id needs an interface", "[unique_id]") {
  const auto id = create_unique_id(config_of("ROCENANTE_SOCKET_IFNAME=nosuch"));
  CHECK(id.status().code() == Code::kInvalidArgument);
  CHECK(id.status().text().find("lo (127.0.0.1)") != std::string::npos);
}

TEST_CASE("ids of one address and secret are equal", "[unique_id]") {
  const auto id = [](const std::string& address, const std::string& secret) {
    const auto result = unique_id_at(address, false, config_of("ROCENANTE_SECRET=" + secret));
    REQUIRE(result.status().text() == "");
    return result.value().bytes;
  };
  CHECK(id("10.0.0.1:4242", "a") == id("10.0.0.1:4242", "a"));
  CHECK(id("10.0.0.1:4242", "a") != id("10.0.0.1:4242", "b"));
  CHECK(id("10.0.0.1:4242", "a") != id("10.0.0.1:4243", "a"));
  // Length prefixes keep secret and address apart.
  CHECK(id("1.0.0.1:4242", "a1") != id("11.0.0.1:4242", "a"));
  const auto contents =
      decode_unique_id(unique_id_at("10.0.0.1:4242", false, config_of("ROCENANTE_SECRET=a")).value());
  REQUIRE(contents.ok());
  CHECK(contents.value().rendezvous.text() == "10.0.0.1:4242");
  CHECK_FALSE(contents.value().is_listening);
  CHECK_FALSE(contents.value().is_local_only);
}

TEST_CASE("a secret may come from a file", "[unique_id]") {
  const SecretFile file("a secret\n");
  const auto from_file = unique_id_at("10.0.0.1:1", false, config_of(file.option()));
  const auto from_text = unique_id_at("10.0.0.1:1", false, config_of("ROCENANTE_SECRET=a secret"));
  REQUIRE(from_file.status().text() == "");
  CHECK(from_file.value().bytes == from_text.value().bytes);

  const auto both = unique_id_at("10.0.0.1:1", false, config_of("ROCENANTE_SECRET=x;" + file.option()));
  CHECK(both.status().code() == Code::kInvalidUsage);
  CHECK(both.status().text() == "ROCENANTE_SECRET and ROCENANTE_SECRET_FILE are both set; set one of them");

  const auto unreadable =
      unique_id_at("10.0.0.1:1", false, config_of("ROCENANTE_SECRET_FILE=/nonexistent/secret"));
  CHECK(unreadable.status().code() == Code::kInvalidUsage);
  CHECK(unreadable.status().text().find("'/nonexistent/secret' cannot be read") != std::string::npos);

  const SecretFile empty("\n");
  CHECK(unique_id_at("10.0.0.1:1", false, config_of(empty.option())).status().code() ==
        Code::kInvalidUsage);
  const SecretFile endless(std::string(100000, 'x'));
  CHECK(unique_id_at("10.0.0.1:1", false, config_of(endless.option())).status().code() ==
        Code::kInvalidUsage);
  const auto directory = unique_id_at("10.0.0.1:1", false, config_of("ROCENANTE_SECRET_FILE=/tmp"));
  CHECK(directory.status().code() == Code::kInvalidUsage);
}

TEST_CASE("without a secret only loopback is accepted", "[unique_id]") {
  const auto local = unique_id_at("127.0.0.1:4242", false, config_of(""));
  REQUIRE(local.ok());
  CHECK(decode_unique_id(local.value()).value().is_local_only);
  CHECK(unique_id_at("[::1]:4242", false, config_of("")).ok());
  for (const char* address : {"10.0.0.1:4242", "0.0.0.0:4242", "[2001:db8::1]:4242", "[::]:4242"}) {
    const auto remote = unique_id_at(address, false, config_of(""));
    CHECK(remote.status().code() == Code::kInvalidUsage);
    CHECK(remote.status().text().find("set ROCENANTE_SECRET or ROCENANTE_SECRET_FILE") !=
          std::string::npos);
  }
}

TEST_CASE("bad addresses are named", "[unique_id]") {
  for (const char* address : {"", "host", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:0", ":1",
                              "127.0.0.1:x", "::1:4242", "[::1]", "[::1:4242", "[zz]:1", "127.0.0.1:-1"}) {
    const auto id = unique_id_at(address, false, config_of(""));
    INFO(address);
    CHECK(id.status().code() == Code::kInvalidArgument);
    CHECK(id.status().text().find(fmt::format("'{}'", address)) != std::string::npos);
  }
}

TEST_CASE("an address is served once", "[unique_id]") {
  // A port that is free now, chosen by the system.
  auto listener = net::listen_at(net::parse_address("127.0.0.1:0").value().address);
  REQUIRE(listener.ok());
  const std::string address = net::local_address(listener.value().get()).value().text();
  const auto taken = unique_id_at(address, true, config_of(""));
  CHECK(taken.status().code() == Code::kSystemError);
  CHECK(taken.status().text().find(address) != std::string::npos);
  listener.value().reset();
  const auto served = unique_id_at(address, true, config_of(""));
  CHECK(served.status().text() == "");
  CHECK_FALSE(unique_id_at(address, true, config_of("")).ok());
  stop_all_rendezvous();
  CHECK(unique_id_at(address, true, config_of("")).ok());
  stop_all_rendezvous();
}

}  // namespace
}  // namespace rocenante
