// SPDX-License-Identifier: Apache-2.0
//
// A recording NCCL: it has every function of the ABI, writes down how each is called, and performs
// all-reduces of float32 sums on host memory between the threads of a process.
#pragma once

#include <cstdint>

namespace rocenante::test {

struct RecordedCall {
  std::uint32_t index;      // row of exports.txt
  std::uint64_t words[6];   // the registers that hold arguments
  std::uint64_t stack[24];  // what follows on the stack
};

// The functions of the recorder beside the ABI.
struct Recorder {
  // Forgets all calls.
  void (*clear)();
  // How many calls there were of a row.
  std::uint32_t (*count)(std::uint32_t index);
  // The last call of a row; false if there was none.
  bool (*last)(std::uint32_t index, RecordedCall* call);
  // What the function of a row returns in its two registers, unless the recorder performs it.
  void (*answer)(std::uint32_t index, std::uint64_t* first, std::uint64_t* second);
  // Whether ids have something in their tail.
  void (*fill_ids)(bool fill);
};

}  // namespace rocenante::test

extern "C" const rocenante::test::Recorder* recorder_api();
