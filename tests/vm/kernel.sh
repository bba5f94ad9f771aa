#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prepares what a guest boots: Debian's own kernel and an initramfs with the modules the tests need. Both
# stay in build/vm/VERSION; the directory is printed. Nothing is installed and no privileges are needed:
# the kernel's package is downloaded and unpacked.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$(cd "$here/../.." && pwd)/build/vm

# crc32_generic: rxe looks for that driver by name, and fails with ENOENT without it.
modules=(crc32_generic virtio_pci virtio_rng virtio_net 9pnet_virtio 9p rdma_rxe ib_uverbs rdma_ucm
  ib_umad veth sch_netem)

die() {
  echo "kernel.sh: $*" >&2
  exit 1
}

# apt's own user may not read a checkout. Package lists of our own join where the system's know no kernel.
apt_options=(-o APT::Sandbox::User=root)

kernel_version() {
  apt-cache "${apt_options[@]}" depends linux-image-amd64 2> /dev/null |
    sed -n 's/^ *Depends: linux-image-\([0-9].*\)$/\1/p' | head -n 1
}

use_own_lists() {
  mkdir -p "$cache/apt/lists/partial" "$cache/apt/archives/partial"
  apt_options+=(-o "Dir::State::Lists=$cache/apt/lists" -o "Dir::Cache=$cache/apt")
  echo "kernel.sh: reading the lists of packages" >&2
  apt-get "${apt_options[@]}" -qq update >&2
}

# download VERSION: the package into the current directory.
download() {
  local name=linux-image-$1
  apt-get "${apt_options[@]}" -qq download "$name" >&2 ||
    apt-get "${apt_options[@]}" -qq download "$name-unsigned" >&2
}

# Lists may be absent (fresh container) or so old that the server no longer has what they name.
fetch() {
  version=$(kernel_version)
  if [[ -z $version ]] || ! download "$version"; then
    use_own_lists
    version=$(kernel_version)
    [[ -n $version ]] || die "no package linux-image-amd64: a guest needs Debian's package sources"
    download "$version" || die "linux-image-$version cannot be downloaded"
  fi
}

# pack TREE VERSION FILE: the initramfs. Modules are loaded in the order of its file /modules.
pack() {
  local tree=$1 version=$2 root=$work/initramfs module path
  depmod -b "$tree" "$version"
  mkdir -p "$root/bin" "$root/modules" "$root/host" "$root/proc" "$root/dev"
  cp /bin/busybox "$root/bin/busybox"
  install -m 755 "$here/init.sh" "$root/init"
  for module in "${modules[@]}"; do
    modprobe -d "$tree" -S "$version" --show-depends "$module"
  done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' > "$work/paths"
  [[ -s $work/paths ]] || die "linux-image-$version has none of the modules ${modules[*]}"
  while read -r path; do
    cp "$path" "$root/modules/"
    path=$root/modules/${path##*/}
    case $path in
      *.xz) unxz "$path" && path=${path%.xz} ;;
    esac
    echo "${path##*/}"
  done < "$work/paths" > "$root/modules/order"
  (cd "$root" && find . | cpio --quiet -o -H newc) > "$3"
}

# What the initramfs is made of: a directory with another key is made again.
key=$(sha256sum "$here"/{kernel.sh,init.sh,unpack_kernel.py} /bin/busybox | sha256sum | cut -c 1-16)
newest() {
  find "$cache" -mindepth 2 -maxdepth 2 -name "ready.$key" -printf '%T@ %h\n' 2> /dev/null |
    sort -rn | sed -n '1s/^[^ ]* //p'
}

mkdir -p "$cache"
exec 9> "$cache/lock"
flock 9
directory=$(newest)
if [[ -z $directory ]]; then
  work=$(mktemp -d "$cache/work.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  cd "$work"
  fetch
  # A person who waits is told; the standard error of a test is its command's.
  [[ ! -t 2 ]] || echo "kernel.sh: preparing Linux $version" >&2
  dpkg -x "$work"/linux-image-*.deb "$work/tree"
  directory=$cache/$version
  mkdir -p "$directory"
  rm -f "$directory"/ready.*
  pack "$work/tree" "$version" "$directory/initramfs"
  # Unpacking takes seconds when emulated; a kernel packed in a new way boots all the same.
  "$here/unpack_kernel.py" "$work/tree/boot/vmlinuz-$version" "$directory/kernel" >&2 ||
    cp "$work/tree/boot/vmlinuz-$version" "$directory/kernel"
  touch "$directory/ready.$key"
fi
echo "$directory"
