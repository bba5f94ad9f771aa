// SPDX-License-Identifier: Apache-2.0
//
// NCCL's types as far as this library reads or writes them. Enumerations and the unique id have the same
// numbers and layout as the C API's, which stand for them here. The tests compare all of it with a real
// nccl.h.
#pragma once

#include <rocenante/rocenante.h>

#include <climits>
#include <cstddef>
#include <cstdint>

namespace rocenante::nccl {

inline constexpr unsigned kConfigMagic = 0xcafebeef;
inline constexpr unsigned kSimInfoMagic = 0x74685283;
inline constexpr int kUndefinedInt = INT_MIN;
inline constexpr int kSplitNoColor = -1;
// What ncclGetVersion says where there is no real library: the level every function of which exists here.
inline constexpr int kAbiLevel = 22809;
// From this version on a client knows ncclTimeout.
inline constexpr int kFirstWithTimeout = 23000;

// ncclConfig_t as far as the oldest version in use (2.14) has it; `size` says how much of it there is.
struct ConfigHead {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};

// ncclSimInfo_t.
struct SimInfo {
  std::size_t size;
  unsigned magic;
  unsigned version;
  float estimated_time;
};

// The head of ncclCollConfig_t, and where its event is from 2.32 on.
struct CollConfigHead {
  std::size_t size;
  unsigned magic;
  unsigned version;
  void* extensions;
};
inline constexpr std::size_t kCollConfigEventOffset = 64;

}  // namespace rocenante::nccl
