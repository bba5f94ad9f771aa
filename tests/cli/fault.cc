// SPDX-License-Identifier: Apache-2.0
//
// Preloaded by cli_test.py to make one rank misbehave: CLI_FAULT is a comma-separated list of
// WHAT:RANK:CALL. From that rank's CALL-th float all-reduce on, WHAT is "flip" (one bit of the result),
// "kill" or "stop" (the process, by signal). It shows that the command line notices, which a correct
// library never lets it.
#include <dlfcn.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "rocenante/rocenante.h"

extern "C" RCN_EXPORT rcnResult_t rcnAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                               rcnDataType_t datatype, rcnRedOp_t op, rcnComm_t comm,
                                               void* stream) {
  using Function = rcnResult_t (*)(const void*, void*, size_t, rcnDataType_t, rcnRedOp_t, rcnComm_t, void*);
  static const auto kReal = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "rcnAllReduce"));
  const char* fault = std::getenv("CLI_FAULT");
  if (fault == nullptr || datatype != rcnFloat32) {
    return kReal(sendbuff, recvbuff, count, datatype, op, comm, stream);
  }
  static int calls = 0;
  ++calls;
  int own = -1;
  rcnCommUserRank(comm, &own);
  bool flip = false;
  for (; fault != nullptr; fault = std::strchr(fault, ',')) {
    if (*fault == ',') ++fault;
    char what[8] = "";
    int rank = 0;
    int call = 0;
    if (std::sscanf(fault, "%7[a-z]:%d:%d", what, &rank, &call) != 3) std::abort();
    if (rank != own || calls < call) continue;
    if (std::strcmp(what, "kill") == 0) kill(getpid(), SIGKILL);
    if (std::strcmp(what, "stop") == 0) kill(getpid(), SIGSTOP);
    if (std::strcmp(what, "flip") == 0) flip = true;
  }
  const rcnResult_t result = kReal(sendbuff, recvbuff, count, datatype, op, comm, stream);
  if (flip && count != 0) static_cast<unsigned char*>(recvbuff)[count / 2 * sizeof(float)] ^= 1;
  return result;
}
