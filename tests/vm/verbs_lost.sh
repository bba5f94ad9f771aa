#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# On each of two guests: host 1 is powered off amid a loop of all-reduces over verbs. The survivor must say who is
# gone. One argument: the rank of the host that is lost.
set -euo pipefail

complain() {
  echo "verbs_lost.sh: $*" >&2
  exit 1
}

# Rank 0 is where the others meet, so it matters which rank is lost.
lost_rank=$1
# shellcheck disable=SC2153 # run.sh sets RANK
rank=$((RANK == 1 ? lost_rank : 1 - lost_rank))
meeting=10.77.0.$((lost_rank == 0 ? 2 : 1))

log=$TMPDIR/perf.log
rocenante perf all_reduce --transport verbs --rank "$rank" --world 2 --rendezvous "$meeting:$((MASTER_PORT + 1))" \
  -b 64K -e 64K -n 100000000 -w 100 > "$log" 2>&1 &
measurement=$!

# Far more packets than setting up takes.
packets() {
  cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts
}
until (($(packets) > 5000)) || ! kill -0 "$measurement" 2> /dev/null; do sleep 0.2; done
if [[ $RANK == 1 ]]; then
  kill -0 "$measurement" || complain "ended early: $(cat "$log")"
  echo "powered off at $EPOCHREALTIME"
  vm-fault off
fi

code=0
wait "$measurement" || code=$?
echo "noticed at $EPOCHREALTIME"
((code != 0)) || complain "calls succeed without rank $lost_rank: $(cat "$log")"
gone="to rank $lost_rank's|rank $lost_rank is gone"
grep -qE "$gone" "$log" || complain "rank $lost_rank is not named: $(cat "$log")"
grep -m 1 -E "$gone" "$log"
