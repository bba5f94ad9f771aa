// SPDX-License-Identifier: Apache-2.0
//
// Where the real NCCL may be.
#pragma once

#include <string>
#include <vector>

namespace rocenante::nccl {

// A file to try, and where the idea comes from.
struct Candidate {
  std::string path;
  const char* source;
};

// Files that exist, best first, without duplicates: what this process has loaded already, the Python wheels
// beside the running interpreter, the loader's own search, the usual CUDA folders.
std::vector<Candidate> find_candidates();

// Whether the file is this library or another copy of it.
bool is_this_library(const std::string& path);

}  // namespace rocenante::nccl
