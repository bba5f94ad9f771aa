// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/run.h"

#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bench/cli/text.h"

namespace rocenante::bench {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";

std::string own_folder() {
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (length <= 0) throw RunError(text("/proc/self/exe: %s", std::strerror(errno)));
  const std::string whole(path.data(), static_cast<std::size_t>(length));
  return whole.substr(0, whole.rfind('/'));
}

// Where a build or an installation has the library, seen from this program.
std::string library_folder() {
  const std::string bin = own_folder();
  std::vector<std::string> tried;
  for (const char* place :
       // The installed one first: what an installation has in lib/nccl is somebody else's.
       {"/" ROCENANTE_BIN_TO_LIB "/rocenante/nccl", "/../lib/nccl"}) {
    char* const real = ::realpath((bin + place).c_str(), nullptr);
    std::string folder = real == nullptr ? bin + place : real;
    ::free(real);
    if (::access((folder + "/" + kLibrary).c_str(), R_OK) == 0) return folder;
    tried.push_back(folder);
  }
  throw RunError(text("%s is in none of %s", kLibrary, join(tried, ", ").c_str()));
}

void set(const char* name, const std::string& value) {
  if (::setenv(name, value.c_str(), 1) != 0)
    throw RunError(text("setenv %s: %s", name, std::strerror(errno)));
}

// Puts `value` before what the variable holds already.
void prepend(const char* name, const std::string& value, char separator) {
  const char* const old = ::getenv(name);
  set(name, old == nullptr || *old == '\0' ? value : value + separator + old);
}

const char* value_of(const char* name, const char* otherwise) {
  const char* const value = ::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

void explain(const std::string& folder, const std::string& command) {
  std::fprintf(
      stderr,
      "rocenante run: %s will find NCCL in %s/%s\n"
      "rocenante run: by preloading (programs that are linked with it or load libnccl.so.2) and first in\n"
      "rocenante run: LD_LIBRARY_PATH (those that load libnccl.so); not those that load NCCL by a full "
      "path\n"
      "rocenante run: ROCENANTE_FALLBACK=%s, ROCENANTE_DEVICE=%s, real NCCL: %s\n",
      command.c_str(), folder.c_str(), kLibrary, value_of("ROCENANTE_FALLBACK", "auto"),
      value_of("ROCENANTE_DEVICE", "auto"),
      value_of("ROCENANTE_NCCL_PATH", "searched for where one is used"));
}

}  // namespace

void run_command(const RunArguments& arguments) {
  if (arguments.command.empty()) throw UsageError("COMMAND is missing (see rocenante run --help)");
  const std::string folder = library_folder();
  prepend("LD_PRELOAD", folder + "/" + kLibrary, ':');
  prepend("LD_LIBRARY_PATH", folder, ':');
  if (!arguments.device.empty()) set("ROCENANTE_DEVICE", arguments.device);
  if (!arguments.fallback.empty()) set("ROCENANTE_FALLBACK", arguments.fallback);
  if (!arguments.nccl.empty()) set("ROCENANTE_NCCL_PATH", arguments.nccl);
  if (!arguments.quiet) explain(folder, arguments.command.front());
  std::vector<char*> words;
  words.reserve(arguments.command.size() + 1);
  for (const std::string& word : arguments.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words.front(), words.data());
  throw RunError(text("%s: %s", words.front(), std::strerror(errno)));
}

}  // namespace rocenante::bench
