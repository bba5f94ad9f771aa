// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.h"

namespace rocenante::fabric {

// A value of NCCL_IB_HCA: a comma-separated list of device-name prefixes, each with an optional ":PORT". A
// leading
// '=' makes them whole names, a leading '^' means all but these, '^=' both. An empty list admits
// everything, except that a lone '^' or '^=' admits nothing: that is how NCCL reads it.
class HcaList {
 public:
  struct Entry {
    std::string name;
    std::uint32_t port = 0;  // 0: any
    std::string text;        // as it was written
  };

  // InvalidArgument for a port that is no number.
  static Result<HcaList> parse(std::string_view text);

  bool admits(std::string_view device, std::uint32_t port) const;
  bool matches(const Entry& entry, std::string_view device, std::uint32_t port) const;
  // Those that somebody wants to be used; empty for a list that excludes.
  const std::vector<Entry>& required() const { return excludes_ ? none_ : entries_; }

 private:
  bool excludes_ = false;
  bool exact_ = false;
  std::vector<Entry> entries_;
  std::vector<Entry> none_;
};

}  // namespace rocenante::fabric
