// SPDX-License-Identifier: Apache-2.0
#include "lib/device/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace rocenante {
namespace {

int seals_for(PeerAccess access) {
  const int common = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;
  return access == PeerAccess::kReadOnly ? common | F_SEAL_FUTURE_WRITE : common;
}

Result<OwnedMapping> map_fd(int fd, std::uint64_t bytes, int protection) {
  // Populated now: a first call must not pay for page faults.
  void* const address = ::mmap(nullptr, bytes, protection, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (address == MAP_FAILED) return errno_error("mmap of {} bytes of shared memory", bytes);
  OwnedMapping mapping(Mapping{address, bytes});
  // Failure rule 9: children do not inherit regions.
  if (::madvise(address, bytes, MADV_DONTFORK) != 0) return errno_error("madvise(MADV_DONTFORK)");
  return mapping;
}

}  // namespace

std::uint64_t whole_pages(std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

Result<MemfdMapping> create_memfd(std::uint64_t bytes, PeerAccess access) {
  MemfdMapping result;
  result.fd = Fd(above_standard(::memfd_create("rocenante", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!result.fd) return errno_error("memfd_create");
  // Beyond the limit the kernel would not only refuse but end the process by SIGXFSZ.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    return make_error(
        Code::kSystemError,
        "shared memory of {} bytes is above the limit of file sizes, {} bytes: raise it (ulimit -f)", bytes,
        limit.rlim_cur);
  }
  if (::ftruncate(result.fd.get(), static_cast<off_t>(bytes)) != 0) {
    return errno_error("ftruncate of a memfd to {} bytes", bytes);
  }
  RCN_ASSIGN(result.mapping, map_fd(result.fd.get(), bytes, PROT_READ | PROT_WRITE));
  if (::fcntl(result.fd.get(), F_ADD_SEALS, seals_for(access)) != 0)
    return errno_error("fcntl(F_ADD_SEALS)");
  return result;
}

Result<OwnedMapping> map_peer_memfd(int fd, std::uint64_t bytes, PeerAccess access) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  const int wanted = seals_for(access);
  if (seals < 0 || (seals & wanted) != wanted) {
    return make_error(Code::kRemoteError,
                      "shared memory of a peer has seals {:#x}, expected at least {:#x}", seals, wanted);
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0) return errno_error("fstat of a peer's shared memory");
  if (info.st_size < 0 || static_cast<std::uint64_t>(info.st_size) != bytes) {
    return make_error(Code::kRemoteError, "shared memory of a peer has {} bytes, expected {}", info.st_size,
                      bytes);
  }
  return map_fd(fd, bytes, access == PeerAccess::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE);
}

}  // namespace rocenante
