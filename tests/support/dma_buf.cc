// SPDX-License-Identifier: Apache-2.0
#include "tests/support/dma_buf.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "lib/device/memfd.h"

namespace rocenante::test {
namespace {

struct Known {
  std::mutex mutex;
  std::map<ino_t, DmaBuf> by_file;
};
Known& known() {
  static auto* const instance = new Known;
  return *instance;
}

}  // namespace

std::shared_ptr<DeviceInbox> make_device_inbox(std::uint64_t bytes) {
  auto inbox = std::make_shared<DeviceInbox>();
  inbox->bytes = whole_pages(bytes);
  inbox->device = static_cast<unsigned char*>(std::aligned_alloc(whole_pages(1), inbox->bytes));
  std::memset(inbox->device, 0, inbox->bytes);
  inbox->dma_buf = Fd(above_standard(::memfd_create("dma-buf", MFD_CLOEXEC)));
  struct stat file {};
  (void)::fstat(inbox->dma_buf.get(), &file);
  const std::lock_guard lock(known().mutex);
  known().by_file[file.st_ino] = {inbox->device, inbox->bytes};
  inbox->owner = std::shared_ptr<void>(inbox->device, [number = file.st_ino](void* memory) {
    {
      const std::lock_guard inner(known().mutex);
      if (const auto at = known().by_file.find(number);
          at != known().by_file.end() && at->second.memory == memory)
        known().by_file.erase(at);
    }
    std::free(memory);
  });
  return inbox;
}

std::optional<DmaBuf> find_dma_buf(int fd) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) return std::nullopt;
  const std::lock_guard lock(known().mutex);
  const auto at = known().by_file.find(file.st_ino);
  if (at == known().by_file.end()) return std::nullopt;
  return at->second;
}

}  // namespace rocenante::test
