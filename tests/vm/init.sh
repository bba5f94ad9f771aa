#!/bin/busybox ash
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=dash disable=SC3040
#
# First process of a guest, in its initramfs: loads the modules, makes the host's root file system its own,
# read-only, and hands over to guest.sh there.
set -euo pipefail

b=/bin/busybox
$b mount -t proc proc /proc
while read -r module; do
  $b insmod "/modules/$module"
done < /modules/order

plan9=trans=virtio,version=9p2000.L,msize=524288
# The host's files may change while the guest runs; what matters to it does not.
$b mount -t 9p -o "$plan9,ro,cache=loose" root /host
$b mount -t devtmpfs dev /host/dev
$b mkdir -p /host/dev/pts /host/dev/shm
$b mount -t devpts devpts /host/dev/pts
$b mount -t tmpfs tmpfs /host/dev/shm
$b mount -t proc proc /host/proc
$b mount -t sysfs sysfs /host/sys
$b mount -t tmpfs tmpfs /host/run
$b mkdir -p /host/run/vm/share /host/run/tmp
$b chmod 1777 /host/run/tmp
# The directory of this guest. Not cached: what is written there is on the host when the call returns.
$b mount -t 9p -o "$plan9,cache=none" run /host/run/vm/share
$b umount /proc
exec $b switch_root /host /bin/bash /run/vm/share/guest.sh
