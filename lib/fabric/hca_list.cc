// SPDX-License-Identifier: Apache-2.0
#include "lib/fabric/hca_list.h"

#include <algorithm>
#include <charconv>

namespace rocenante::fabric {
namespace {

Result<HcaList::Entry> parse_entry(std::string_view item) {
  HcaList::Entry entry;
  const std::size_t colon = item.find(':');
  entry.text = item;
  entry.name = item.substr(0, colon);
  if (colon == std::string_view::npos) return entry;
  const char* const end = item.data() + item.size();
  const auto [next, error] = std::from_chars(item.data() + colon + 1, end, entry.port);
  if (error != std::errc() || next != end || entry.port == 0 || entry.port > 255) {
    return make_error(
        Code::kInvalidArgument,
        "NCCL_IB_HCA / ROCENANTE_IB_HCA: '{}' is not DEVICE or DEVICE:PORT with a port from 1 to 255",
        item);
  }
  return entry;
}

}  // namespace

Result<HcaList> HcaList::parse(std::string_view text) {
  HcaList list;
  if (text.starts_with('^')) {
    list.excludes_ = true;
    text.remove_prefix(1);
  }
  if (text.starts_with('=')) {
    list.exact_ = true;
    text.remove_prefix(1);
  }
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    if (item.empty() || item.front() == ':') continue;
    RCN_ASSIGN(Entry entry, parse_entry(item));
    list.entries_.push_back(std::move(entry));
  }
  return list;
}

bool HcaList::matches(const Entry& entry, std::string_view device, std::uint32_t port) const {
  const bool named = exact_ ? device == entry.name : device.starts_with(entry.name);
  return named && (entry.port == 0 || entry.port == port);
}

bool HcaList::admits(std::string_view device, std::uint32_t port) const {
  const bool listed =
      entries_.empty() || std::any_of(entries_.begin(), entries_.end(),
                                      [&](const Entry& entry) { return matches(entry, device, port); });
  return listed != excludes_;
}

}  // namespace rocenante::fabric
