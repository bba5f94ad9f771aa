// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace rocenante::model {

// A set of 64-bit fingerprints: open addressing, no deletion.
class StateSet {
 public:
  StateSet() : slots_(std::size_t{1} << 16) {}

  // False where it was there already.
  bool insert(std::uint64_t fingerprint) {
    if (fingerprint == 0) fingerprint = 1;
    if (size_ * 2 >= slots_.size()) grow();
    if (!place(slots_, fingerprint)) return false;
    ++size_;
    return true;
  }

  std::uint64_t size() const { return size_; }
  void clear() {
    slots_.assign(std::size_t{1} << 16, 0);
    size_ = 0;
  }

 private:
  static bool place(std::vector<std::uint64_t>& slots, std::uint64_t fingerprint) {
    std::size_t at = fingerprint & (slots.size() - 1);
    while (slots[at] != 0) {
      if (slots[at] == fingerprint) return false;
      at = (at + 1) & (slots.size() - 1);
    }
    slots[at] = fingerprint;
    return true;
  }

  void grow() {
    std::vector<std::uint64_t> larger(slots_.size() * 2);
    for (const std::uint64_t fingerprint : slots_) {
      if (fingerprint != 0) place(larger, fingerprint);
    }
    slots_.swap(larger);
  }

  std::vector<std::uint64_t> slots_;
  std::uint64_t size_ = 0;
};

}  // namespace rocenante::model
