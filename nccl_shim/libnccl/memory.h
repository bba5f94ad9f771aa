// SPDX-License-Identifier: Apache-2.0
//
// ncclMemAlloc and ncclCommRegister without the real library.
#pragma once

#include <cstddef>

#include "lib/base/status.h"

namespace rocenante::nccl {

// Page-aligned host memory, zeros. Nothing for 0 bytes.
Result<void*> allocate_host(std::size_t bytes);
// True if it was ours and is freed; false if it is not ours.
bool free_host(void* pointer);

// A handle for a buffer of a communicator; host memory needs no more than the note.
void* note_registration(void* comm, void* buffer, std::size_t bytes);
// Whether the communicator had it.
bool forget_registration(void* comm, void* handle);
// Of a communicator that ends.
void forget_registrations(void* comm);

}  // namespace rocenante::nccl
