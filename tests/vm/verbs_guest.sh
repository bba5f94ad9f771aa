#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# In a guest with two rails: all-reduces over real libibverbs between processes of the guest. What goes wrong is
# printed; the exit code is 1 then.
set -euo pipefail

wrong=0
complain() {
  echo "verbs_guest.sh: $*" >&2
  wrong=1
}

# right WHAT ARGUMENT...: a measurement that succeeds and finds nothing wrong.
right() {
  local what=$1
  shift
  local text
  if ! text=$(rocenante perf all_reduce --transport verbs -n 2 -w 1 "$@" 2>&1); then
    complain "$what fails: $text"
  elif ! grep -q 'Out of bounds values : 0 OK' <<< "$text"; then
    complain "$what is wrong: $text"
  fi
}

# refused WHAT TEXT: it fails and says why.
refused() {
  local what=$1 expected=$2
  local text
  if text=$(rocenante perf all_reduce --transport verbs -b 8 -e 8 -n 1 -w 0 2>&1); then complain "$what succeeds"; fi
  grep -qF -- "$expected" <<< "$text" || complain "$what does not say '$expected': $text"
}

for rail in 0 1; do
  rocenante info | grep -q "RDMA port:     rxe$rail:1, GID 1 10.77.$rail.1 on v$rail" ||
    complain "rocenante info does not list rxe$rail: $(rocenante info)"
  rocenante info | grep -q "RDMA port:     rxe$rail:1.*, software" || complain "rxe$rail is not said to be software"
done

for ranks in 2 3 4; do
  ROCENANTE_SIGNAL='write' right "$ranks ranks" --ranks "$ranks" -b 1 -e 64K -f 16 -d float,bfloat16,int8
done
right 'several rounds' --ranks 2 -b 3M -e 3M
# The signal of adapters in software, imm; the second on more ranks than processors, which sleep.
right 'the signal imm' --ranks 2 -b 1 -e 64K -f 16
right 'the signal imm' --ranks 4 -b 1 -e 64K -f 16
NCCL_IB_HCA='=rxe1' right 'one rail' --ranks 2 -b 1 -e 64K -f 16

NCCL_IB_HCA=rxe0,rxe7 refused 'a device that is not there' "lists 'rxe7', which cannot be used: there is no such port"
NCCL_IB_GID_INDEX=9 refused 'an empty GID' 'rxe0:1: GID 9 (NCCL_IB_GID_INDEX / ROCENANTE_IB_GID_INDEX) is empty'

# A rank that is killed in the middle.
log=$TMPDIR/killed.log
rocenante perf all_reduce --transport verbs --ranks 3 -b 64K -e 64K -n 100000000 -w 100 > "$log" 2>&1 &
measurement=$!
until grep -q '^# ranks' "$log" || ! kill -0 "$measurement" 2> /dev/null; do sleep 0.2; done
kill -KILL "$(pgrep -P "$measurement" | tail -1)"
if wait "$measurement"; then complain "calls succeed without a rank: $(cat "$log")"; fi
grep -q 'rank 2 is gone\|to rank 2' "$log" || complain "the killed rank is not named: $(cat "$log")"

exit "$wrong"
