#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# In a guest, as vm-fault: breaks the network or the guest itself.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: vm-fault down RAIL           the rail's link goes down
       vm-fault up RAIL             and up again
       vm-fault loss RAIL PERCENT   that share of the packets this host sends is lost, at random; 0 ends it.
                                    Between hosts only: a guest alone sends nothing over a wire
       vm-fault off                 power off: at once, as if unplugged
TEXT
}

case "${1-} $#" in
  'down 2') ip link set "v$2" down ;;
  'up 2') ip link set "v$2" up ;;
  'loss 3')
    tc qdisc del dev "v$2" root 2> /dev/null || true
    [[ $3 == 0 ]] || tc qdisc add dev "v$2" root netem loss "$3%"
    ;;
  'off 1')
    # A reset, which ends the emulator; unlike a shutdown it closes no connection.
    echo b > /proc/sysrq-trigger
    ;;
  '-h 1' | '--help 1') usage ;;
  *)
    echo "vm-fault: cannot do '$*'" >&2
    usage >&2
    exit 2
    ;;
esac
