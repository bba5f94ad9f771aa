// SPDX-License-Identifier: Apache-2.0
#include "nccl_shim/libnccl/real.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "lib/base/log.h"
#include "lib/net/fork.h"
#include "lib/net/keep_forever.h"
#include "nccl_shim/libnccl/find_real.h"

namespace rocenante::nccl {
namespace {

std::atomic<const RealLibrary*> loaded{nullptr};

const link_map* map_of(const void* address) {
  Dl_info info{};
  void* map = nullptr;
  return ::dladdr1(address, &info, &map, RTLD_DL_LINKMAP) == 0 ? nullptr
                                                               : static_cast<const link_map*>(map);
}

const link_map* own_map() {
  static const char here = 0;
  return map_of(&here);
}

// Why the file is not to be loaded; empty if it may.
std::string objection(const std::string& path) {
  struct stat file {};
  struct stat own {};
  if (::stat(path.c_str(), &file) != 0) return "no such file";
  const link_map* const self = own_map();
  if (self != nullptr && ::stat(self->l_name, &own) == 0 && own.st_dev == file.st_dev &&
      own.st_ino == file.st_ino) {
    return "this library itself";
  }
  if (!S_ISREG(file.st_mode)) return "not a file";
  if (is_this_library(path)) return "a copy of this library";
  return {};
}

// By absolute path, so that the loader does not answer with this library, which has the same SONAME; into a
// scope of its own; without RTLD_DEEPBIND, which breaks programs with their own malloc.
Result<std::unique_ptr<RealLibrary>> open_library(const std::string& path) {
  if (std::string why = objection(path); !why.empty()) return Status(Code::kSystemError, why);
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Status(Code::kSystemError, ::dlerror());
  auto library = std::make_unique<RealLibrary>();
  library->path = path;
  void* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || map == own_map()) {
    ::dlclose(handle);
    return Status(Code::kSystemError, "the loader answered with this library itself");
  }
  for (std::size_t i = 0; i < kNumExports; ++i) {
    library->functions[i] = ::dlsym(handle, (std::string("nccl") + export_row(i).name).c_str());
  }
  auto* const get_version = reinterpret_cast<rcnResult_t (*)(int*)>(
      library->functions[static_cast<std::size_t>(Export::kGetVersion)]);
  if (get_version != nullptr && map_of(reinterpret_cast<void*>(get_version)) == own_map()) {
    ::dlclose(handle);
    return Status(Code::kSystemError,
                  "it has no functions of NCCL but those of this library, which it needs");
  }
  if (get_version == nullptr || get_version(&library->version) != rcnSuccess) {
    ::dlclose(handle);
    return Status(Code::kSystemError, "it has no ncclGetVersion that answers");
  }
  return library;
}

Result<std::unique_ptr<RealLibrary>> search(const std::string& configured) {
  if (!configured.empty()) {
    struct stat found {};
    const bool is_folder = ::stat(configured.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
    const std::string named = is_folder ? configured + "/libnccl.so.2" : configured;
    const std::unique_ptr<char, void (*)(void*)> absolute(::realpath(named.c_str(), nullptr), ::free);
    auto opened = open_library(absolute == nullptr ? named : std::string(absolute.get()));
    if (opened.ok()) return opened;
    return make_error(Code::kSystemError, "ROCENANTE_NCCL_PATH={}: {}", configured, opened.status().text());
  }
  std::string tried;
  for (const Candidate& candidate : find_candidates()) {
    auto opened = open_library(candidate.path);
    if (opened.ok()) return opened;
    tried += fmt::format("; {} ({}): {}", candidate.path, candidate.source, opened.status().text());
  }
  return make_error(
      Code::kSystemError,
      "no real NCCL found: looked at what is loaded, Python packages, the loader's search path and "
      "cache, CUDA folders{}; ROCENANTE_NCCL_PATH names one, ROCENANTE_FALLBACK=off "
      "does without",
      tried);
}

constinit thread_local bool loading = false;
struct Loading {
  Loading() { loading = true; }
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;
  ~Loading() { loading = false; }
};

// The state outlives static destructors: others may call us while they run. It is there before the hooks
// are, which are below.
struct Once {
  std::mutex mutex;
  bool done = false;
  Status status;
};
std::atomic<Once*> once{new Once};

// The lock is held for as long as the loader is at work, which may itself wait for locks that a fork takes:
// the lock is not taken over a fork. A child of another thread's search finds neither that thread nor,
// maybe, the loader in order, and does without.
const net::ForkHooks kForkHooks = {
    [] {},
    [] {},
    [] {
      if (loading) return;  // this thread's own, which goes on here
      Once* const inherited = once.load(std::memory_order_relaxed);
      if (inherited->mutex.try_lock()) return inherited->mutex.unlock();
      auto* const fresh = new Once;
      fresh->done = true;
      fresh->status = make_error(Code::kSystemError,
                                 "this process was forked while its parent was looking for the real NCCL");
      once.store(fresh, std::memory_order_relaxed);
      net::keep_forever(std::unique_ptr<Once>(inherited));
    },
};

[[maybe_unused]] const bool kHooked = net::hook_at_load(&kForkHooks);

Once& the_once() {
  return *once.load(std::memory_order_acquire);
}

}  // namespace

const RealLibrary* loaded_real() {
  return loaded.load(std::memory_order_acquire);
}

Result<const RealLibrary*> load_real(const std::string& path) {
  if (const RealLibrary* const library = loaded_real(); library != nullptr) return library;
  if (loading) {
    // What is being loaded calls NCCL's functions, and finds them here.
    return make_error(Code::kInvalidUsage, "called from within the search for the real NCCL");
  }
  Once& state = the_once();
  const std::lock_guard lock(state.mutex);
  const Loading mark;
  if (!state.done) {
    state.done = true;
    auto found = search(path);
    if (found.ok()) {
      const RealLibrary* const library = found.take().release();
      log_info(-1, "real NCCL {}.{}.{}: {}", library->version / 10000, library->version / 100 % 100,
               library->version % 100, library->path);
      loaded.store(library, std::memory_order_release);
    } else {
      state.status = found.status();
    }
  }
  if (const RealLibrary* const library = loaded_real(); library != nullptr) return library;
  return state.status;
}

}  // namespace rocenante::nccl
