// SPDX-License-Identifier: Apache-2.0
//
// The device seam: where memory that peers and NICs touch comes from, which user buffers and streams are
// acceptable, and who drives a round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "lib/base/handle.h"
#include "lib/base/status.h"

namespace rocenante {

// A range of memory that others may map or a NIC may access. Page-aligned, zero when new. Shared by whoever
// may still touch it; released with the last reference. Not inherited by forked children (failure rule 9).
class Region {
 public:
  virtual ~Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  unsigned char* address() const { return address_; }
  std::uint64_t bytes() const { return bytes_; }
  // A sealed memfd that another process can map, or -1. Owned by the region.
  int shareable_fd() const { return fd_; }

 protected:
  Region() = default;
  unsigned char* address_ = nullptr;
  std::uint64_t bytes_ = 0;
  int fd_ = -1;
};

// What holders of a region's descriptor may do with it.
enum class PeerAccess : std::uint8_t {
  kReadWrite,  // inbox: peers store signals
  kReadOnly,   // outbox: sealed against new writable mappings
};

// Memory of a device alone that NICs may write, zero when new: a second inbox, for what comes over verbs.
// The host has no address of it, so only launches see what arrives. Released with the last reference, at
// once or deferred as the device's other memory; every registration of a NIC has ended by then.
struct DeviceInbox {
  std::shared_ptr<void> owner;
  unsigned char* device = nullptr;  // its address for launches; page-aligned
  std::uint64_t bytes = 0;          // whole pages
  // Of exactly this memory. Whoever has registered it with all its NICs closes it.
  Fd dma_buf;
};

enum class DriveMode : std::uint8_t {
  kCaller,  // the calling thread steps a round until it is done
  kStream,  // a launch on a stream does; calls return at once
};

class Device {
 public:
  virtual ~Device() = default;

  virtual const char* name() const = 0;
  virtual DriveMode drive_mode() const = 0;

  // Memory of at least `bytes`, rounded up to pages. Any thread.
  virtual Result<std::shared_ptr<Region>> allocate_region(std::uint64_t bytes, PeerAccess access) = 0;

  // Memory of at least `bytes` for the buffers of calls on this device, zero, page-aligned; the pointer is
  // where it is. A NIC can read it too, where the device can use such memory at full speed; host memory
  // unless a device says otherwise. Any thread.
  virtual Result<std::shared_ptr<void>> allocate_for_user(std::uint64_t bytes);

  // Memory of at least `bytes` in which launches may receive what NICs write, in the order in which one of
  // them writes it. The error says what the device lacks for it, which may be that it is no memory of its
  // own. Any thread.
  virtual Result<std::shared_ptr<DeviceInbox>> allocate_receive(std::uint64_t bytes);

  // Whether calls may use this stream; the error names the value and what is allowed.
  virtual Status check_stream(const void* stream) const = 0;
};

// Host memory; the calling thread drives. Lives for ever.
Device& host_device();

}  // namespace rocenante
