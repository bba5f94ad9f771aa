// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/stats.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lib/base/handle.h"
#include "lib/base/log.h"
#include "lib/comm/call_text.h"

namespace rocenante {

std::string stats_line(const Counters& counters, std::uint32_t rank, std::uint32_t ranks) {
  std::string rows;
  counters.for_each([&](std::uint32_t collective, std::uint32_t size_class, std::uint32_t path,
                        std::uint64_t calls, std::uint64_t bytes) {
    // Class 64 has no power of two that fits; no call is that large.
    const std::uint64_t largest = size_class < 64 ? std::uint64_t{1} << size_class : ~std::uint64_t{0};
    rows += fmt::format(R"({}{{"collective":"{}","up_to_bytes":{},"path":"{}","calls":{},"bytes":{}}})",
                        rows.empty() ? "" : ",", collective_name(static_cast<Collective>(collective)),
                        largest, path_name(static_cast<Path>(path)), calls, bytes);
  });
  return fmt::format(R"({{"rocenante_stats":1,"pid":{},"rank":{},"ranks":{},"calls":[{}]}})", ::getpid(),
                     rank, ranks, rows);
}

void write_stats_line(std::string line, const std::string& file, std::uint32_t rank) {
  line += '\n';
  Fd opened;
  int fd = STDERR_FILENO;
  if (!file.empty()) {
    opened = Fd(above_standard(::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)));
    fd = opened.get();
  }
  if (fd >= 0 && ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size())) return;
  log_warn(static_cast<int>(rank), "the statistics could not be written to {}: {}",
           file.empty() ? "stderr" : file, std::strerror(errno));
}

}  // namespace rocenante
