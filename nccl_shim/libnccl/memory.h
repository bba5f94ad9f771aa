// SPDX-License-Identifier: Apache-2.0
//
// ncclCommRegister without the real library.
#pragma once

#include <cstddef>

namespace rocenante::nccl {

// A handle for a buffer of a communicator; host memory needs no more than the note.
void* note_registration(void* comm, void* buffer, std::size_t bytes);
// Whether the communicator had it.
bool forget_registration(void* comm, void* handle);
// Of a communicator that ends.
void forget_registrations(void* comm);

}  // namespace rocenante::nccl
