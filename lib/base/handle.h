// SPDX-License-Identifier: Apache-2.0
//
// One owning template for every handle: file descriptors, mappings, verbs and CUDA objects. Held as
// members, so that an object that fails half-way through its creation still releases what it had.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
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

// The same descriptor (or -1, with errno kept) under a number above 2, closed on exec: where an application
// closed its standard input, output or error, what it prints must not land in ours.
inline int above_standard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(fd);
  errno = error;
  return moved;
}

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
