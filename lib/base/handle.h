// SPDX-License-Identifier: Apache-2.0
//
// One owning template for every handle: file descriptors, mappings, verbs and CUDA objects. Held as
// members, so that an object that fails half-way through its creation still releases what it had.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

namespace rocenante {

// Traits: `using Value`, `static Value empty()`, `static void release(Value)`.
template <class Traits>
class Owned {
 public:
  using Value = typename Traits::Value;

  Owned() = default;
  explicit Owned(Value value) : value_(value) {}
  Owned(Owned&& other) noexcept : value_(other.take()) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      value_ = other.take();
    }
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { reset(); }

  const Value& get() const { return value_; }
  explicit operator bool() const { return !(value_ == Traits::empty()); }
  Value take() { return std::exchange(value_, Traits::empty()); }
  void reset() {
    if (*this) Traits::release(take());
  }

 private:
  Value value_ = Traits::empty();
};

struct FdTraits {
  using Value = int;
  static Value empty() { return -1; }
  static void release(Value fd) { ::close(fd); }
};
using Fd = Owned<FdTraits>;

struct Mapping {
  void* address = nullptr;
  std::size_t bytes = 0;
  bool operator==(const Mapping& other) const { return address == other.address; }
};
struct MappingTraits {
  using Value = Mapping;
  static Value empty() { return {}; }
  static void release(Value mapping) { ::munmap(mapping.address, mapping.bytes); }
};
using OwnedMapping = Owned<MappingTraits>;

}  // namespace rocenante
