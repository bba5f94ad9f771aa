#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# In a guest with two rails: 2, 3, 4 and 8 ranks over real libibverbs, on one rail and on two, from one byte to 1 MiB,
# every element checked against an exact result. Too long for every change:
#
#   tests/vm/run.sh --rails 2 --timeout 3600 -- tests/vm/verbs_matrix.sh
set -euo pipefail

cells=0
wrong=0
for rails in 1 2; do
  export NCCL_IB_HCA='=rxe0'
  [[ $rails == 1 ]] || export NCCL_IB_HCA=rxe
  for ranks in 2 3 4 8; do
    if ! text=$(rocenante perf all_reduce --transport verbs --ranks "$ranks" -b 1 -e 1M -f 4 -d float,bfloat16,int8 \
      -n 1 -w 0 2>&1); then
      echo "verbs_matrix.sh: $ranks ranks on $rails rails fail: $text" >&2
      wrong=$((wrong + 1))
    elif ! grep -q 'Out of bounds values : 0 OK' <<< "$text"; then
      echo "verbs_matrix.sh: $ranks ranks on $rails rails are wrong: $text" >&2
      wrong=$((wrong + 1))
    fi
    rows=$(grep -cE '^ +[0-9]+ ' <<< "$text" || :)
    cells=$((cells + rows))
    echo "$rails rails, $ranks ranks: $rows sizes and types in place and out of place"
  done
done
echo "$cells cells, $wrong of 8 settings wrong"
exit "$((wrong != 0))"
