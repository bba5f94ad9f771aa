// SPDX-License-Identifier: Apache-2.0
#include "tests/protocol/model/memory.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace rocenante::model {
namespace {

constexpr std::size_t kPage = 4096;

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "model: %s\n", why);
  std::abort();
}

void join(View& into, const View& other) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

}  // namespace

Memory::Memory(std::size_t bytes, bool weak)
    : weak_(weak), storage_(bytes + kPage), index_(bytes / 4, kNowhere), freed_(256) {
  const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
  base_ = storage_.data() + (kPage - address % kPage) % kPage;
}

Location Memory::add(const void* address, Word initial, Use use, std::uint8_t region, std::string name) {
  const auto slot = static_cast<std::size_t>(static_cast<const unsigned char*>(address) - base_) / 4;
  if (slot >= index_.size() || index_[slot] != kNowhere)
    give_up("location outside of memory or added twice");
  const auto location = static_cast<Location>(cells_.size());
  index_[slot] = location;
  cells_.push_back({initial, 0, use, 0, region, 0});
  names_.push_back(std::move(name));
  abort_word_.push_back(false);
  if (weakly(location)) {
    if (messages_.size() == kMaxViewed) give_up("too many locations for the weak mode");
    cells_.back().viewed = static_cast<std::uint8_t>(messages_.size());
    messages_.push_back({Message{initial, {}}});
  }
  hash_ ^= mix(mix(location) ^ initial);
  return location;
}

Location Memory::find(const void* address) const {
  const auto offset = static_cast<std::size_t>(static_cast<const unsigned char*>(address) - base_);
  return offset / 4 < index_.size() && offset % 4 == 0 ? index_[offset / 4] : kNowhere;
}

bool Memory::may_access(std::uint32_t agent, Location location, bool stores) {
  Cell& cell = cells_[location];
  if (cell.use == Use::kConstant) return !stores;
  if (cell.use == Use::kWriteOnly) return stores;
  const std::uint32_t bit = 1u << agent;
  if ((cell.users & bit) == 0) {
    if (cell.use == Use::kPrivate && cell.users != 0) return false;
    cell.users |= bit;
    grown_ = true;
  }
  return true;
}

void Memory::free_region(std::uint8_t region) {
  undo_.push_back({Change::kFreed, region, 0});
  freed_[region] = true;
  hash_ ^= mix(0x10000u + region);
}

void Memory::retire(std::uint32_t agent) {
  if (!weak_) return;
  save_view(agent);
  views_[agent].fill(0xff);
}

unsigned Memory::choices(std::uint32_t agent, Location location) const {
  if (!weakly(location)) return 1;
  const std::uint8_t viewed = cells_[location].viewed;
  return static_cast<unsigned>(messages_[viewed].size() - views_[agent][viewed]);
}

Word Memory::load(std::uint32_t agent, Location location, unsigned choice, bool acquire,
                  std::uint32_t& version) {
  const Cell& cell = cells_[location];
  version = cell.version;
  if (!weakly(location)) return cell.value;
  const std::size_t at = messages_[cell.viewed].size() - 1 - choice;
  version = static_cast<std::uint32_t>(at);
  const Message& message = messages_[cell.viewed][at];
  save_view(agent);
  views_[agent][cell.viewed] = static_cast<std::uint8_t>(at);
  if (acquire) join(views_[agent], message.view);
  return message.value;
}

void Memory::store(std::uint32_t agent, Location location, Word value, bool release) {
  if (weakly(location)) {
    const std::uint8_t viewed = cells_[location].viewed;
    save_view(agent);
    const auto at = static_cast<std::uint8_t>(messages_[viewed].size());
    if (at == 0xff) give_up("too many stores to one location for the weak mode");
    views_[agent][viewed] = at;
    View view{};
    if (release) view = views_[agent];
    view[viewed] = at;
    push_message(location, value, view);
  }
  set(location, value);
}

Word Memory::add(std::uint32_t agent, Location location, Word value) {
  std::uint32_t version;
  const Word before = load(agent, location, 0, true, version);
  store(agent, location, before + value, true);
  return before;
}

void Memory::fence(std::uint32_t agent) {
  if (!weak_) return;
  save_view(agent);
  join(views_[agent], global_view_);
  undo_.push_back({Change::kGlobalView, 0, 0});
  saved_views_.push_back(global_view_);
  global_view_ = views_[agent];
}

void Memory::set(Location location, Word value) {
  Cell& cell = cells_[location];
  undo_.push_back({Change::kValue, location, cell.value});
  hash_ ^= mix(mix(location) ^ cell.value) ^ mix(mix(location) ^ value);
  cell.value = value;
  ++cell.version;
}

void Memory::save_view(std::uint32_t agent) {
  undo_.push_back({Change::kView, static_cast<Location>(agent), 0});
  saved_views_.push_back(views_[agent]);
}

void Memory::push_message(Location location, Word value, const View& view) {
  undo_.push_back({Change::kMessage, location, 0});
  messages_[cells_[location].viewed].push_back({value, view});
}

void Memory::roll_back(std::size_t mark) {
  while (undo_.size() > mark) {
    const Undo undo = undo_.back();
    undo_.pop_back();
    switch (undo.change) {
      case Change::kValue: {
        Cell& cell = cells_[undo.location];
        hash_ ^= mix(mix(undo.location) ^ cell.value) ^ mix(mix(undo.location) ^ undo.value);
        cell.value = undo.value;
        --cell.version;
        break;
      }
      case Change::kMessage:
        messages_[cells_[undo.location].viewed].pop_back();
        break;
      case Change::kView:
        views_[undo.location] = saved_views_.back();
        saved_views_.pop_back();
        break;
      case Change::kGlobalView:
        global_view_ = saved_views_.back();
        saved_views_.pop_back();
        break;
      case Change::kFreed:
        freed_[undo.location] = false;
        hash_ ^= mix(0x10000u + undo.location);
        break;
    }
  }
}

// What every agent that uses a location has already seen past can be read by nobody: messages below that
// floor are left out and view entries are raised to it, so that states that differ only in such history are
// one. (An entry below the floor changes no user's view when it is joined.)
std::uint64_t Memory::weak_hash() const {
  const std::size_t count = messages_.size();
  View floor;
  floor.fill(0xff);
  for (const Cell& cell : cells_) {
    if (cell.use != Use::kShared) continue;
    for (std::uint32_t agent = 0; agent < agents_; ++agent) {
      if ((cell.users >> agent & 1) != 0) {
        floor[cell.viewed] = std::min(floor[cell.viewed], views_[agent][cell.viewed]);
      }
    }
  }
  std::uint64_t hash = hash_;
  const auto take_view = [&](const View& view) {
    for (std::size_t i = 0; i < count; ++i) {
      if (view[i] > floor[i]) hash = mix(hash ^ (i << 8 | view[i]));
    }
    hash = mix(hash);
  };
  for (std::uint32_t agent = 0; agent < agents_; ++agent) take_view(views_[agent]);
  take_view(global_view_);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t at = floor[i]; at < messages_[i].size(); ++at) {
      hash = mix(hash ^ messages_[i][at].value);
      take_view(messages_[i][at].view);
    }
  }
  return hash;
}

}  // namespace rocenante::model
