/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints what rcnDescribe says about a topic: info, config or config.md. */
#include <stdio.h>
#include <stdlib.h>

#include <rocenante/rocenante.h>

static int fail(const char* call) {
  fprintf(stderr, "%s: %s\n", call, rcnGetLastError(NULL));
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "Usage: describe TOPIC\n");
    return 2;
  }
  size_t length = 0;
  if (rcnDescribe(argv[1], NULL, 0, &length) != rcnSuccess) return fail("rcnDescribe");
  char* const text = malloc(length + 1);
  if (text == NULL) return 1;
  if (rcnDescribe(argv[1], text, length + 1, &length) != rcnSuccess) return fail("rcnDescribe");
  const int written = fwrite(text, 1, length, stdout) == length && fflush(stdout) == 0;
  free(text);
  return written ? 0 : 1;
}
