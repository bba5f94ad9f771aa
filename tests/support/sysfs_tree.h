// SPDX-License-Identifier: Apache-2.0
//
// A recorded sysfs tree (tests/fixtures/fabric) as files in a temporary folder.
#pragma once

#include <string>
#include <vector>

#include "lib/fabric/fabric.h"

namespace rocenante::test {

class SysfsTree {
 public:
  // Throws std::runtime_error when the fixture cannot be read or written out.
  explicit SysfsTree(const std::string& name);
  ~SysfsTree();
  SysfsTree(const SysfsTree&) = delete;
  SysfsTree& operator=(const SysfsTree&) = delete;

  const std::string& root() const { return root_; }
  const std::vector<fabric::InterfaceAddress>& addresses() const { return addresses_; }
  // Changes one file, as when a cable is pulled.
  void set(const std::string& path, const std::string& line);
  void remove_address(const std::string& netdev);

 private:
  std::string root_;
  std::vector<fabric::InterfaceAddress> addresses_;
};

// An address as text, as a GID.
fabric::Gid gid_of(const std::string& address);

}  // namespace rocenante::test
