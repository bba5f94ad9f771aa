// SPDX-License-Identifier: Apache-2.0
#include "lib/net/thread.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

namespace rocenante::net {

Result<std::thread> start_quiet_thread(const char* name, std::function<void()> body) {
  // A new thread inherits the mask, so there is no moment in which it could take a signal.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  int error = 0;
  try {
    thread = std::thread([name, body = std::move(body)] {
      ::pthread_setname_np(::pthread_self(), name);
      body();
    });
  } catch (const std::system_error& reason) {
    error = reason.code().value();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return system_error(error, "start of a thread");
  return thread;
}

}  // namespace rocenante::net
