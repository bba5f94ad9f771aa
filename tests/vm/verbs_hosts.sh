#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# On each of two guests with two rails: transports left to choose, then loss, then a rail that fails in the middle.
set -euo pipefail

complain() {
  echo "verbs_hosts.sh: $*" >&2
  exit 1
}

port=$MASTER_PORT
# perf ARGUMENT...: one rank here, its partner on the other host.
perf() {
  port=$((port + 1))
  rocenante perf all_reduce --rank "$RANK" --world "$WORLD_SIZE" --rendezvous "$MASTER_ADDR:$port" "$@"
}

export ROCENANTE_DEBUG=INFO
text=$(perf -b 1 -e 64K -f 16 -n 2 -w 1 2>&1) || complain "the first measurement fails: $text"
grep -q "rail to rank $((1 - RANK)): rxe1:1 (10.77.1.$((RANK + 1)), GID 1) - rxe1:1" <<< "$text" ||
  complain "no rail over rxe1: $text"
export ROCENANTE_DEBUG=WARN

vm-fault loss 0 1
vm-fault loss 1 1
text=$(perf -b 1 -e 64K -f 16 -n 5 -w 1 2>&1) || complain "with 1 % loss: $text"
vm-fault loss 0 0
vm-fault loss 1 0

# Rank 0 reports when the loop is under way; then the second rail goes down on its host.
log=$TMPDIR/perf.log
perf -b 64K -e 64K -n 100000000 -w 100 > "$log" 2>&1 &
measurement=$!
until grep -q '^# ranks' "$log" || ! kill -0 "$measurement" 2> /dev/null; do sleep 0.2; done
if [[ $RANK == 0 ]]; then vm-fault down 1; fi
if wait "$measurement"; then complain "calls succeed over a rail that is down: $(cat "$log")"; fi
grep -q 'rxe1:1 (10.77.1.[12]) to rank [01]' "$log" || complain "the failed rail is not named: $(cat "$log")"
grep -m 1 'verbs:' "$log"
