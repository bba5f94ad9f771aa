#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# From a fresh checkout to a checked measurement: installs what is missing, builds the command line, runs
# an all-reduce between four processes of this machine and draws it. Exits non-zero if one element of a
# result is wrong.
set -euo pipefail

if (($# != 0)); then
  echo "Usage: scripts/quickstart.sh" >&2
  exit 2
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/deps.sh
plot=build/latency.svg
log=build/quickstart.log
mkdir -p build

echo "quickstart.sh: building build/release/bin/rocenante"
# Quiet when all is well: the table is what this script is for.
if ! { cmake --preset release && cmake --build --preset release --target rocenante_cli; } > "$log" 2>&1; then
  cat "$log" >&2
  echo "quickstart.sh: the build failed (this is $log)" >&2
  exit 1
fi

command=(build/release/bin/rocenante perf all_reduce --ranks 4 -b 8 -e 4M -f 4 --plot "$plot")
echo "quickstart.sh: ${command[*]}"
echo
"${command[@]}"
echo "quickstart.sh: no wrong element; the picture of this table is $plot"
