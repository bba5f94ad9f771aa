#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command inside emulated machines that have RDMA devices, so that real libibverbs is tested where no
# such hardware is. docs/ci.md describes the guest.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

usage() {
  cat <<'TEXT'
Usage: tests/vm/run.sh [OPTION]... -- COMMAND [ARGUMENT]...

Runs COMMAND in a guest with Debian's kernel and soft-RoCE devices rxe0, rxe1, ... (one with each rail). The
guest sees the host's files at the same paths, read-only, and has the environment and working directory of
this call; TMPDIR, /run and /dev/shm are its own and writable. "rocenante" is that of build/release. Standard
output and standard error come back apart; the exit code is COMMAND's.

  --rails N    RDMA devices, each on a subnet of its own, 1 to 8 (1)
  --hosts N    that many guests, 1 to 4 (1), with one Ethernet per rail between them. COMMAND runs on each,
               once all answer, with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and a ROCENANTE_SECRET. Lines
               of output begin with "hostN: ". The exit code is the largest
  --lost N     host N is to be powered off by its own COMMAND (vm-fault off); it is an error if it is not
  --out DIR    a directory of the host that COMMAND may write to
  --cpus N     processors of each guest, 1 to 16 (2 for one guest, 1 for several)
  --memory MB  memory of each guest, 512 to 16384 (1024)
  --timeout S  seconds after which the guests are ended and the exit code is 124 (600)
  --check      only say whether guests can run here

In a guest, vm-fault --help lists ways to break things. Exit code 77: guests cannot run here, and why is on
standard error; 125: a guest failed.
TEXT
}

die() {
  echo "run.sh: $*" >&2
  exit 2
}

# number OPTION VALUE LEAST MOST
number() {
  if [[ ! $2 =~ ^[0-9]{1,6}$ ]] || ((10#$2 < $3 || 10#$2 > $4)); then
    die "$1 '$2': must be a number from $3 to $4"
  fi
}

rails=1
hosts=1
lost=
out=
cpus=
memory=1024
timeout=600
check=false
while (($# != 0)); do
  case "$1" in
    --rails | --hosts | --lost | --out | --cpus | --memory | --timeout)
      (($# > 1)) || die "$1 needs a value"
      declare "${1#--}=$2"
      shift 2
      ;;
    --check)
      check=true
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    --)
      shift
      break
      ;;
    *) die "unknown argument '$1'; COMMAND follows '--'" ;;
  esac
done
number --rails "$rails" 1 8
number --hosts "$hosts" 1 4
[[ -z $lost ]] || number --lost "$lost" 0 $((hosts - 1))
: "${cpus:=$((hosts == 1 ? 2 : 1))}"
number --cpus "$cpus" 1 16
number --memory "$memory" 512 16384
number --timeout "$timeout" 1 86400
$check || (($# != 0)) || die "there is no COMMAND after '--'"
if [[ -n $out ]]; then
  [[ -d $out && -w $out ]] || die "--out '$out': must be a directory that can be written"
  out=$(realpath "$out")
fi

cannot() {
  echo "run.sh: no guest can run here: $*" >&2
  exit 77
}

[[ $(uname -m) == x86_64 ]] ||
  cannot "the guest is x86_64 and this host $(uname -m). On a host of your own, 'modprobe rdma_rxe' and" \
    "'rdma link add rxe0 type rxe netdev INTERFACE' make a soft-RoCE device to test with"
for program in qemu-system-x86_64 busybox depmod modprobe cpio python3 ip rdma ping setpriv apt-get; do
  command -v "$program" > /dev/null || [[ -x /usr/sbin/$program || -x /sbin/$program ]] ||
    cannot "$program is not installed (scripts/deps.sh installs it)"
done
$check && exit 0
PATH=$PATH:/usr/sbin:/sbin kernel=$("$here/kernel.sh") || exit 125

# Socket names must be short.
work=$(TMPDIR=/tmp mktemp -d -t rocenante-vm.XXXXXX)
guests=()    # process ids, by host
followers=() # the same of what shows their output
switch=()
releaser=()
# shellcheck disable=SC2317 # the trap calls it
cleanup() {
  local pid
  for pid in "${guests[@]}" "${switch[@]}" "${releaser[@]}"; do kill "$pid" 2> /dev/null || :; done
  wait
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# emulator ARGUMENT...: ends when this script does, even if killed, and at the deadline.
emulator() {
  exec setpriv --pdeathsig TERM timeout -k 5 "$timeout" qemu-system-x86_64 -nodefaults -no-user-config \
    -display none "$@" < /dev/null
}

# A socket's file is there before anybody can connect to it.
is_listening() {
  awk -v path="$1" '$4 == "00010000" && $8 == path { found = 1 } END { exit !found }' /proc/net/unix
}

# One Ethernet per rail: a process with no machine in it that forwards between one socket per host.
start_switch() {
  local arguments=(-machine none) rail host id
  for ((rail = 0; rail < rails; rail++)); do
    for ((host = 0; host < hosts; host++)); do
      id=$rail.$host
      arguments+=(-netdev "stream,id=s$id,server=on,addr.type=unix,addr.path=$work/net$id")
      arguments+=(-netdev "hubport,id=h$id,hubid=$rail,netdev=s$id")
    done
  done
  emulator "${arguments[@]}" > "$work/switch" 2>&1 &
  switch=($!)
  for ((rail = 0; rail < rails; rail++)); do
    for ((host = 0; host < hosts; host++)); do
      until is_listening "$work/net$rail.$host"; do
        kill -0 "${switch[0]}" 2> /dev/null || { cat "$work/switch" >&2; exit 125; }
        sleep 0.02
      done
    done
  done
}

# What a guest needs to know, in the directory it shares.
write_share() {
  local share=$1 host=$2
  shift 2
  cp "$here/guest.sh" "$share/guest.sh"
  local root=$root rails=$rails hosts=$hosts host=$host out=$out
  declare -p root rails hosts host out > "$share/settings"
  : > "$share/stdout"
  : > "$share/stderr"
  {
    export -p
    echo "export TMPDIR=/run/tmp PATH=$(printf %q "$root/build/release/bin:/run/vm/bin:$PATH:/usr/sbin:/sbin")"
    if ((hosts > 1)); then
      echo "export RANK=$host WORLD_SIZE=$hosts MASTER_ADDR=10.77.0.1 MASTER_PORT=29500"
      echo "export ROCENANTE_SECRET=$secret"
    fi
    printf 'cd %q\n' "$PWD"
    printf 'exec'
    printf ' %q' "$@"
    echo
  } > "$share/command"
}

start_guest() {
  local host=$1 share=$work/host$1 rail id
  local arguments=(-accel "tcg,thread=multi" -cpu max -smp "$cpus" -m "$memory" -no-reboot
    -kernel "$kernel/kernel" -initrd "$kernel/initramfs"
    -append 'console=ttyS0 quiet panic=-1 oops=panic rdinit=/init mitigations=off random.trust_cpu=on'
    -serial "file:$share/console" -device virtio-rng-pci)
  # shellcheck disable=SC2054 # the commas are QEMU's
  arguments+=(-fsdev "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"
    -device virtio-9p-pci,fsdev=root,mount_tag=root
    -fsdev "local,id=run,path=$share,security_model=none" -device virtio-9p-pci,fsdev=run,mount_tag=run)
  # A comma in an option's value is written twice.
  # shellcheck disable=SC2054
  [[ -z $out ]] || arguments+=(-fsdev "local,id=out,path=${out//,/,,},security_model=none"
    -device virtio-9p-pci,fsdev=out,mount_tag=out)
  if ((hosts > 1)); then
    for ((rail = 0; rail < rails; rail++)); do
      id=$rail.$host
      arguments+=(-netdev "stream,id=n$rail,server=off,addr.type=unix,addr.path=$work/net$id" -device
        "virtio-net-pci,netdev=n$rail,host_mtu=9000,mac=$(printf '52:54:00:77:%02x:%02x' "$rail" "$host")")
    done
  fi
  emulator "${arguments[@]}" > "$share/emulator" 2>&1 &
  guests[host]=$!
}

# The guest's output as it comes, until the guest has ended.
follow() {
  local host=$1 stream filter=(cat)
  ((hosts == 1)) || filter=(sed -u "s/^/host$host: /")
  for stream in stdout stderr; do
    if [[ $stream == stderr ]]; then exec >&2; fi
    tail -q -n +1 -s 0.1 -f --pid="${guests[host]}" "$work/host$host/$stream" | "${filter[@]}" &
  done
  wait
}

# ended HOST STATUS: judges a guest that has ended; its exit code goes to `code`.
ended() {
  local host=$1 status=$2 share=$work/host$1
  if [[ -s $share/exit && $host != "$lost" ]]; then
    code=$(< "$share/exit")
  elif [[ -s $share/exit ]]; then
    echo "run.sh: host $host was not powered off; its command ended with exit code $(< "$share/exit")" >&2
    code=125
  elif ((status == 124)); then
    echo "run.sh: the guest of host $host did not end within $timeout s" >&2
    code=124
  elif [[ $host == "$lost" && -e $share/started ]]; then
    code=0
  else
    echo "run.sh: the guest of host $host ended by itself (emulator's status $status); its console said:" >&2
    tail -n 30 "$share/emulator" "$share/console" >&2 || :
    code=125
  fi
}

if ((hosts > 1)); then
  secret=${ROCENANTE_SECRET:-$(head -c 24 /dev/urandom | base64)}
  start_switch
fi
for ((host = 0; host < hosts; host++)); do
  mkdir "$work/host$host"
  write_share "$work/host$host" "$host" "$@"
  start_guest "$host"
  follow "$host" &
  followers+=($!)
done

# Lets the guests power off once each command has ended or has lost its guest.
release() {
  local host
  for ((host = 0; host < hosts; host++)); do
    until [[ -s $work/host$host/exit ]] || ! kill -0 "${guests[host]}" 2> /dev/null; do sleep 0.1; done
  done
  for ((host = 0; host < hosts; host++)); do : > "$work/host$host/end"; done
}
release &
releaser=($!)

worst=0
left=$hosts
while ((left > 0)); do
  status=0
  wait -n -p pid "${guests[@]}" || status=$?
  for host in "${!guests[@]}"; do
    [[ ${guests[host]} == "$pid" ]] || continue
    unset "guests[host]"
    left=$((left - 1))
    wait "${followers[host]}"
    ended "$host" "$status"
    ((code <= worst)) || worst=$code
    # The others would wait for it.
    ((code != 124 && code != 125)) || break 2
  done
done
exit "$worst"
