/* SPDX-License-Identifier: Apache-2.0
 *
 * A library goes into other people's processes: loading it starts no thread, opens no file and prints
 * nothing, and unloading leaves none of these behind, also when it has been used in between. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rocenante/rocenante.h>

enum { ROUNDS = 10 };

static const char* library_path;

static void fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

/* Entries of a folder of /proc/self, without the one that reading it adds. */
static int entries(const char* folder) {
  DIR* const directory = opendir(folder);
  if (directory == NULL) fail(folder, strerror(errno));
  int count = 0;
  for (const struct dirent* entry; (entry = readdir(directory)) != NULL;) count += entry->d_name[0] != '.';
  closedir(directory);
  return count;
}

static int mapped(void) {
  FILE* const maps = fopen("/proc/self/maps", "r");
  if (maps == NULL) fail("/proc/self/maps", strerror(errno));
  char line[4096];
  int found = 0;
  while (fgets(line, sizeof line, maps) != NULL) found |= strstr(line, "librocenante.so") != NULL;
  fclose(maps);
  return found;
}

struct counts {
  int threads;
  int files;
};

static struct counts count(void) {
  const struct counts result = {entries("/proc/self/task"), entries("/proc/self/fd")};
  return result;
}

/* A thread that was joined stays in /proc for a moment. */
static void expect_counts(struct counts expected, const char* when) {
  struct counts found = count();
  for (int wait = 0; wait < 200 && found.threads != expected.threads; ++wait) {
    usleep(10000);
    found = count();
  }
  if (found.threads != expected.threads || found.files != expected.files) {
    fprintf(stderr, "%s: %d threads and %d files, expected %d and %d\n", when, found.threads, found.files,
            expected.threads, expected.files);
    exit(1);
  }
}

static void* open_library(void) {
  void* const library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fail("dlopen", dlerror());
  return library;
}

static void close_library(void* library) {
  if (dlclose(library) != 0) fail("dlclose", dlerror());
}

/* The address of a function as a function pointer: dlsym returns an object pointer. */
#define FIND(library, name)                       \
  __extension__({                                 \
    __typeof__(&name) found_;                     \
    void* const address_ = dlsym(library, #name); \
    if (address_ == NULL) fail(#name, dlerror()); \
    memcpy(&found_, &address_, sizeof found_);    \
    found_;                                       \
  })

static void check(rcnResult_t result, const char* call) {
  if (result != rcnSuccess) {
    fprintf(stderr, "%s: result %d\n", call, (int)result);
    exit(1);
  }
}

/* Everything that could leave something behind: an id, communicators, an error, a group. */
static void use(void* library) {
  int version = 0;
  check(FIND(library, rcnGetVersion)(&version), "rcnGetVersion");
  if (version != RCN_VERSION_CODE) fail("rcnGetVersion", "another version");
  if (FIND(library, rcnGetVersion)(NULL) != rcnInvalidArgument) fail("rcnGetVersion", "took NULL");
  if (strstr(FIND(library, rcnGetLastError)(NULL), "version") == NULL)
    fail("rcnGetLastError", "does not name it");

  rcnUniqueId id;
  check(FIND(library, rcnGetUniqueId)(&id), "rcnGetUniqueId");
  rcnComm_t comm[2];
  check(FIND(library, rcnGroupStart)(), "rcnGroupStart");
  check(FIND(library, rcnCommInitRank)(&comm[0], 2, id, 0), "rcnCommInitRank");
  check(FIND(library, rcnCommInitRank)(&comm[1], 2, id, 1), "rcnCommInitRank");
  check(FIND(library, rcnGroupEnd)(), "rcnGroupEnd");
  float values[2] = {1, 2};
  check(FIND(library, rcnGroupStart)(), "rcnGroupStart");
  for (int rank = 0; rank < 2; ++rank) {
    check(
        FIND(library, rcnAllReduce)(&values[rank], &values[rank], 1, rcnFloat32, rcnSum, comm[rank], NULL),
        "rcnAllReduce");
  }
  check(FIND(library, rcnGroupEnd)(), "rcnGroupEnd");
  if (values[0] != 3 || values[1] != 3) fail("rcnAllReduce", "a wrong sum");
  check(FIND(library, rcnCommDestroy)(comm[0]), "rcnCommDestroy");
  check(FIND(library, rcnCommDestroy)(comm[1]), "rcnCommDestroy");
}

static void* open_use_close(void* unused) {
  (void)unused;
  void* const library = open_library();
  use(library);
  close_library(library);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  library_path = argv[1];
  /* What the process prints while the library comes and goes lands in a file that must stay empty. */
  FILE* const out = tmpfile();
  const int saved_out = dup(STDOUT_FILENO);
  const int saved_error = dup(STDERR_FILENO);
  if (out == NULL || saved_out < 0 || saved_error < 0) fail("tmpfile or dup", strerror(errno));
  const struct counts before = count();

  dup2(fileno(out), STDOUT_FILENO);
  dup2(fileno(out), STDERR_FILENO);
  void* library = open_library();
  dup2(saved_out, STDOUT_FILENO);
  dup2(saved_error, STDERR_FILENO);
  if (lseek(fileno(out), 0, SEEK_END) != 0) fail("loading", "prints");
  expect_counts(before, "loaded");

  int version = 0;
  check(FIND(library, rcnGetVersion)(&version), "rcnGetVersion");
  expect_counts(before, "asked for the version");
  close_library(library);
  expect_counts(before, "unloaded unused");
  if (mapped()) fail("unloaded unused", "still mapped");

  for (int round = 0; round < ROUNDS; ++round) {
    library = open_library();
    use(library);
    close_library(library);
    expect_counts(before, "unloaded after use");
    if (mapped()) fail("unloaded after use", "still mapped");
  }

  /* Loaded, used and unloaded by a thread that then ends. */
  for (int round = 0; round < ROUNDS; ++round) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, open_use_close, NULL) != 0) fail("pthread_create", strerror(errno));
    pthread_join(thread, NULL);
    expect_counts(before, "unloaded by a thread");
    if (mapped()) fail("unloaded by a thread", "still mapped");
  }
  return 0;
}
