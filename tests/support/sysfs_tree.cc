// SPDX-License-Identifier: Apache-2.0
#include "tests/support/sysfs_tree.h"

#include <arpa/inet.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace rocenante::test {

fabric::Gid gid_of(const std::string& address) {
  fabric::Gid gid{};
  const bool is_v6 = address.find(':') != std::string::npos;
  if (!is_v6) gid[10] = gid[11] = 0xff;
  if (::inet_pton(is_v6 ? AF_INET6 : AF_INET, address.c_str(), gid.data() + (is_v6 ? 0 : 12)) != 1) {
    throw std::runtime_error("not an address: " + address);
  }
  return gid;
}

SysfsTree::SysfsTree(const std::string& name) {
  std::ifstream fixture(std::string(ROCENANTE_FABRIC_FIXTURES) + "/" + name + ".tree");
  if (!fixture) throw std::runtime_error("no fixture " + name);
  std::string folder = (std::filesystem::temp_directory_path() / "rocenante-sysfs-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder for " + folder);
  root_ = folder;
  for (std::string line; std::getline(fixture, line);) {
    if (line.empty() || line.front() == '#') continue;
    if (line.front() == '@') {
      const std::size_t name_at = line.find(' ') + 1, address_at = line.find(' ', name_at) + 1;
      const std::size_t slash = line.find('/', address_at);
      const std::string address = line.substr(address_at, slash - address_at);
      const auto length = static_cast<std::uint32_t>(std::stoul(line.substr(slash + 1)));
      addresses_.push_back({line.substr(name_at, address_at - 1 - name_at), gid_of(address),
                            address.find(':') == std::string::npos ? 96 + length : length});
      continue;
    }
    const std::size_t equals = line.find(" =");
    set(line.substr(0, equals), line.size() > equals + 3 ? line.substr(equals + 3) : "");
  }
}

SysfsTree::~SysfsTree() {
  std::error_code ignored;
  std::filesystem::remove_all(root_, ignored);
}

void SysfsTree::set(const std::string& path, const std::string& line) {
  const std::filesystem::path file = std::filesystem::path(root_) / path;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << line << '\n';
}

void SysfsTree::remove_address(const std::string& netdev) {
  std::erase_if(addresses_, [&](const auto& one) { return one.netdev == netdev; });
}

}  // namespace rocenante::test
