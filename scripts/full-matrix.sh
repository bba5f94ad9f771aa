#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every type, operator, size and number of ranks once, bit-exact: too long for every change, so run before a release.
#
#   scripts/full-matrix.sh [--transport NAME] [--quick]
#
# Prints one line per world and exits non-zero if a single element was wrong anywhere.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=build/release/bin/rocenante
transport=auto
worlds="1 2 3 4 5 7 8"
large_worlds="2 4 16"
largest=64M
while [ $# -gt 0 ]; do
  case "$1" in
    --transport) transport=$2; shift 2 ;;
    --quick) worlds="2 3"; large_worlds="2"; largest=4M; shift ;;
    *) echo "full-matrix.sh: unknown argument $1" >&2; exit 2 ;;
  esac
done
[ -x "$binary" ] || { echo "full-matrix.sh: $binary is missing: run scripts/quickstart.sh" >&2; exit 2; }

rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
failed=0
total=0

# run NAME ARGUMENT...: one world; counts its rows and wrong elements.
run() {
  local name=$1 started ended status=0
  shift
  started=$(date +%s)
  "$binary" perf all_reduce --transport "$transport" -n 1 -w 0 -c 1 --json "$rows" "$@" >/dev/null || status=$?
  ended=$(date +%s)
  local lines wrong
  lines=$(wc -l <"$rows")
  wrong=$(python3 -c 'import json,sys; print(sum(json.loads(line)["wrong"] for line in open(sys.argv[1])))' "$rows")
  printf '%-44s %6d rows  %d wrong  %4d s  exit %d\n' "$name" "$lines" "$wrong" $((ended - started)) "$status"
  total=$((total + lines))
  if [ "$status" -ne 0 ] || [ "$wrong" -ne 0 ] || [ "$lines" -eq 0 ]; then failed=1; fi
}

echo "transport $transport, $(nproc) processors, $(date -u +%Y-%m-%d)"
for ranks in $worlds; do
  run "$ranks ranks, all types and operators, 1 to 1M" --ranks "$ranks" -b 1 -e 1M -f 4 -d all -o all
done
for ranks in $large_worlds; do
  run "$ranks ranks, float bfloat16 int8 sum, 1 to $largest" --ranks "$ranks" -b 1 -e "$largest" -f 4 \
    -d float,bfloat16,int8 -o sum
done
if [ "$failed" -ne 0 ]; then
  echo "full matrix: FAILED ($total rows)"
  exit 1
fi
echo "full matrix: $total rows, 0 wrong"
