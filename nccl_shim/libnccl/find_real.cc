// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/find_real.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "lib/base/handle.h"

namespace rocenante::nccl {
namespace {

constexpr const char* kFile = "libnccl.so.2";
constexpr const char* kInWheel = "/nvidia/nccl/lib/libnccl.so.2";

bool is_file(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode);
}

class Candidates {
 public:
  void add(const std::string& path, const char* source) {
    if (path.empty() || path.front() != '/' || !is_file(path)) return;
    const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), ::free);
    const std::string name = real == nullptr ? path : std::string(real.get());
    const bool known = std::any_of(found_.begin(), found_.end(),
                                   [&](const Candidate& candidate) { return candidate.path == name; });
    if (!known) found_.push_back({name, source});
  }
  void add_all(const std::string& pattern, const char* source) {
    glob_t matches{};
    if (::glob(pattern.c_str(), 0, nullptr, &matches) == 0) {
      // Newest last by name: tried first.
      for (std::size_t i = matches.gl_pathc; i > 0; --i) add(matches.gl_pathv[i - 1], source);
    }
    ::globfree(&matches);
  }
  std::vector<Candidate> take() { return std::move(found_); }

 private:
  std::vector<Candidate> found_;
};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end != 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return parts;
}

// The objects of this process: a real NCCL that somebody has loaded by its path, and extension modules,
// which show where the interpreter's packages are.
int look_at_object(dl_phdr_info* info, std::size_t, void* data) {
  auto& names = *static_cast<std::vector<std::string>*>(data);
  if (info->dlpi_name != nullptr && *info->dlpi_name == '/') names.emplace_back(info->dlpi_name);
  return 0;
}

void add_loaded(const std::vector<std::string>& objects, Candidates* candidates) {
  for (const std::string& name : objects) {
    const std::string_view base = std::string_view(name).substr(name.rfind('/') + 1);
    if (base.starts_with("libnccl.so")) candidates->add(name, "already loaded");
  }
}

std::string first_argument() {
  const Fd fd(::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> text{};
  if (!fd || ::read(fd.get(), text.data(), text.size() - 1) <= 0) return {};
  return text.data();
}

// The interpreter as it was called, which in a virtual environment is a link, and as it is.
std::vector<std::string> interpreters() {
  std::vector<std::string> result;
  const std::string called = first_argument();
  if (called.find('/') != std::string::npos) {
    const std::unique_ptr<char, void (*)(void*)> here(::getcwd(nullptr, 0), ::free);
    result.push_back(called.front() == '/' || here == nullptr ? called
                                                              : std::string(here.get()) + "/" + called);
  } else if (const char* path = std::getenv("PATH"); path != nullptr) {
    for (const std::string& folder : split(path, ':')) {
      std::string candidate = folder;
      candidate.append("/").append(called);
      if (::access(candidate.c_str(), X_OK) != 0) continue;
      result.push_back(std::move(candidate));
      break;
    }
  }
  std::array<char, 4096> real{};
  if (::readlink("/proc/self/exe", real.data(), real.size() - 1) > 0) result.emplace_back(real.data());
  return result;
}

void add_wheels(const std::vector<std::string>& objects, Candidates* candidates) {
  constexpr const char* kSource = "Python packages";
  for (const std::string& name : objects) {
    for (const char* folder : {"/site-packages/", "/dist-packages/"}) {
      const std::size_t at = name.find(folder);
      if (at != std::string::npos)
        candidates->add(name.substr(0, at + std::strlen(folder) - 1) + kInWheel, kSource);
    }
  }
  std::vector<std::string> prefixes;
  if (const char* environment = std::getenv("VIRTUAL_ENV"); environment != nullptr)
    prefixes.emplace_back(environment);
  for (const std::string& interpreter : interpreters()) {
    const std::size_t bin = interpreter.rfind("/bin/");
    if (interpreter.find("python", interpreter.rfind('/')) != std::string::npos &&
        bin != std::string::npos) {
      prefixes.push_back(interpreter.substr(0, bin));
    }
  }
  for (const std::string& prefix : prefixes) {
    for (const char* folder : {"site-packages", "dist-packages"}) {
      candidates->add_all(prefix + "/lib/python3*/" + folder + kInWheel, kSource);
    }
  }
}

// The folders the loader looks into for the program: LD_LIBRARY_PATH, the program's own path, the defaults.
void add_search_path(Candidates* candidates) {
  constexpr const char* kSource = "loader's search path";
  if (const char* path = std::getenv("LD_LIBRARY_PATH"); path != nullptr) {
    for (const std::string& folder : split(path, ':')) candidates->add(folder + "/" + kFile, kSource);
  }
  void* const program = ::dlopen(nullptr, RTLD_LAZY | RTLD_LOCAL);
  if (program == nullptr) return;
  Dl_serinfo size{};
  if (::dlinfo(program, RTLD_DI_SERINFOSIZE, &size) == 0) {
    const std::unique_ptr<void, void (*)(void*)> memory(std::calloc(1, size.dls_size), ::free);
    auto* const list = static_cast<Dl_serinfo*>(memory.get());
    if (list != nullptr && ::dlinfo(program, RTLD_DI_SERINFOSIZE, list) == 0 &&
        ::dlinfo(program, RTLD_DI_SERINFO, list) == 0) {
      for (unsigned i = 0; i < list->dls_cnt; ++i) {
        candidates->add(std::string(list->dls_serpath[i].dls_name) + "/" + kFile, kSource);
      }
    }
  }
  ::dlclose(program);
}

std::string read_file(const char* path, std::size_t limit) {
  std::string bytes;
  const Fd fd(::open(path, O_RDONLY | O_CLOEXEC));
  std::array<char, 65536> piece;
  while (fd && bytes.size() < limit) {
    const ssize_t count = ::read(fd.get(), piece.data(), piece.size());
    if (count <= 0) break;
    bytes.append(piece.data(), static_cast<std::size_t>(count));
  }
  return bytes;
}

// The loader's cache: a header, entries of 24 bytes whose third word is the offset of a path, the strings.
void add_loader_cache(Candidates* candidates) {
  constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
  constexpr std::size_t kHeaderBytes = 48;
  constexpr std::size_t kEntryBytes = 24;
  constexpr std::size_t kValueOffset = 8;
  constexpr std::size_t kLongest = std::size_t{64} << 20;
  const std::string cache = read_file("/etc/ld.so.cache", kLongest);
  const std::size_t begin = cache.find(kMagic);
  if (begin == std::string::npos || cache.size() < begin + kHeaderBytes) return;
  std::uint32_t count = 0;
  std::memcpy(&count, cache.data() + begin + kMagic.size(), sizeof count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t entry = begin + kHeaderBytes + i * kEntryBytes;
    if (entry + kEntryBytes > cache.size()) return;
    std::uint32_t offset = 0;
    std::memcpy(&offset, cache.data() + entry + kValueOffset, sizeof offset);
    if (begin + offset >= cache.size()) return;
    const char* const path = cache.c_str() + begin + offset;
    if (std::string_view(path).ends_with(std::string("/") + kFile)) candidates->add(path, "loader's cache");
  }
}

void add_cuda_folders(Candidates* candidates) {
  constexpr const char* kSource = "CUDA folders";
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* const home = std::getenv(variable);
    if (home == nullptr) continue;
    for (const char* folder : {"/lib64/", "/lib/"})
      candidates->add(std::string(home) + folder + kFile, kSource);
  }
  for (const char* pattern : {"/usr/local/cuda/lib64/", "/usr/local/cuda/lib/", "/usr/local/cuda-*/lib64/",
                              "/usr/local/cuda-*/lib/", "/usr/local/cuda-*/targets/*/lib/",
                              "/usr/lib/*-linux-gnu/", "/usr/local/lib/", "/opt/cuda/lib64/"}) {
    candidates->add_all(std::string(pattern) + kFile, kSource);
  }
}

bool notes_name_us(std::string_view notes) {
  static constexpr char kName[] = "RoCEnante";
  constexpr std::string_view kWithEnd(kName, sizeof kName);
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header{};
    std::memcpy(&header, notes.data(), sizeof header);
    notes.remove_prefix(sizeof header);
    const std::size_t name = (std::size_t{header.n_namesz} + 3) / 4 * 4;
    const std::size_t rest = (std::size_t{header.n_descsz} + 3) / 4 * 4;
    if (notes.size() < name || notes.size() - name < rest) return false;
    if (notes.substr(0, header.n_namesz) == kWithEnd) return true;
    notes.remove_prefix(name + rest);
  }
  return false;
}

}  // namespace

std::vector<Candidate> find_candidates() {
  std::vector<std::string> objects;
  ::dl_iterate_phdr(look_at_object, &objects);
  Candidates candidates;
  add_loaded(objects, &candidates);
  add_wheels(objects, &candidates);
  add_search_path(&candidates);
  add_loader_cache(&candidates);
  add_cuda_folders(&candidates);
  return candidates.take();
}

// By the note in resolve.S, which every copy of this library has.
bool is_this_library(const std::string& path) {
  constexpr std::size_t kLongestNotes = 65536;
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ElfW(Ehdr) file{};
  if (!fd || ::pread(fd.get(), &file, sizeof file, 0) != sizeof file) return false;
  for (unsigned i = 0; i < file.e_phnum; ++i) {
    ElfW(Phdr) part{};
    const auto at = static_cast<off_t>(file.e_phoff + std::uint64_t{i} * file.e_phentsize);
    if (::pread(fd.get(), &part, sizeof part, at) != sizeof part) return false;
    if (part.p_type != PT_NOTE || part.p_filesz > kLongestNotes) continue;
    std::string notes(part.p_filesz, '\0');
    const ssize_t count = ::pread(fd.get(), notes.data(), notes.size(), static_cast<off_t>(part.p_offset));
    if (count == static_cast<ssize_t>(notes.size()) && notes_name_us(notes)) return true;
  }
  return false;
}

}  // namespace rocenante::nccl
