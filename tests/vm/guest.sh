#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# First process of a guest once init.sh has the host's files in place: brings the network and the RDMA devices
# up, runs the command and powers the guest off. From run.sh it has files in /run/vm/share: settings (shell
# variables) and command; it writes stdout, stderr and, if all went well, exit. The kernel's console shows
# its own messages.
set -euo pipefail
share=/run/vm/share
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# A reset, which ends the emulator. Everything written to the share is on the host already.
end() {
  echo b > /proc/sysrq-trigger
  while :; do sleep 1; done
}
trap end EXIT

# until_true TEXT COMMAND...: run.sh's deadline ends this.
until_true() {
  local what=$1
  shift
  echo "guest: waiting until $what" >&2
  until "$@" > /dev/null 2>&1; do
    sleep 0.05
  done
}

# rename_interface MAC NAME
rename_interface() {
  local file
  for file in /sys/class/net/*/address; do
    [[ $(< "$file") == "$1" ]] || continue
    file=${file%/address}
    ip link set "${file##*/}" name "$2"
    return
  done
  return 1
}

has_gid() {
  local gid
  gid=$(< "/sys/class/infiniband/rxe$1/ports/1/gids/1")
  # ::ffff:10.77.RAIL.HOST+1
  [[ $gid == "$(printf '0000:0000:0000:0000:0000:ffff:0a4d:%02x%02x' "$1" $((host + 1)))" ]] &&
    [[ $(< "/sys/class/infiniband/rxe$1/ports/1/state") == *ACTIVE ]]
}

# One rail: interface vN at 10.77.N.HOST+1 and device rxeN. A guest alone has nobody to cable it to but itself.
bring_up_rail() {
  if ((hosts > 1)); then
    rename_interface "$(printf '52:54:00:77:%02x:%02x' "$1" "$host")" "v$1"
  else
    ip link add "v$1" mtu 4200 type veth peer name "v$1peer" mtu 4200
    ip link set "v$1peer" up
  fi
  # One RDMA packet of 4096 bytes and its headers.
  ip link set "v$1" mtu 4200
  ip address add "10.77.$1.$((host + 1))/24" dev "v$1"
  ip link set "v$1" up
  rdma link add "rxe$1" type rxe netdev "v$1"
  until_true "rxe$1 is active" has_gid "$1"
}

ip link set lo up
declare root rails hosts host out descriptor=0
# shellcheck source=/dev/null
source "$share/settings"
hostname "vm$host"
for ((rail = 0; rail < rails; rail++)); do bring_up_rail "$rail"; done
for ((peer = 0; peer < hosts; peer++)); do
  for ((rail = 0; rail < rails; rail++)); do
    until_true "host $peer answers on rail $rail" ping -c 1 -W 1 "10.77.$rail.$((peer + 1))"
  done
done

# What udev would have made.
ln -s /proc/self/fd /dev/fd
for stream in stdin stdout stderr; do
  ln -s "fd/$((descriptor++))" "/dev/$stream"
done

mkdir -p /run/vm/bin
ln -s "$root/tests/vm/fault.sh" /run/vm/bin/vm-fault
[[ -z $out ]] || mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=none out "$out"
ulimit -l unlimited

# Through pipes, so that the command may open /dev/stdout and /dev/stderr again. No console has it.
mkfifo /run/vm/stdout /run/vm/stderr
cat /run/vm/stdout > "$share/stdout" &
readers=$!
cat /run/vm/stderr > "$share/stderr" &
readers+=" $!"
: > "$share/started"
code=0
setsid /bin/bash "$share/command" < /dev/null > /run/vm/stdout 2> /run/vm/stderr || code=$?

# What the command left running still holds the pipes.
for process in /proc/[0-9]*; do
  pid=${process#/proc/}
  if ((pid != 1)) && [[ " $readers " != *" $pid "* && -e $process/exe ]]; then
    kill -KILL "$pid" 2> /dev/null || :
  fi
done
# shellcheck disable=SC2086
wait $readers
echo "$code" > "$share/exit"
# A machine outlives what ran on it: the last words of this command are still on their way to other hosts.
((hosts == 1)) || until_true "the other hosts are done" test -e "$share/end"
