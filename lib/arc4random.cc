// SPDX-License-Identifier: Apache-2.0
//
// libstdc++'s archive calls arc4random wherever it was built against glibc 2.36 or later, and comes with
// std::exception; the library must also load on glibc 2.35. This definition is hidden by the version script
// and satisfies it first.
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

extern "C" std::uint32_t arc4random() noexcept {
  std::uint32_t value = 0;
  while (::getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value)) {
    if (errno != EINTR) std::abort();  // as the C library's own does without a random source
  }
  return value;
}
