# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# Fresh Debian systems in a folder, for scripts that source this. As root; whatever is mounted for a command is
# in a namespace of its own and ends with it.
set -euo pipefail

# make_tree FOLDER SUITE [PACKAGE]...: a minimal system of SUITE, from debootstrap's default mirror.
make_tree() {
  local tree=$1 suite=$2 packages=${*:3}
  debootstrap --variant=minbase ${packages:+--include="${packages// /,}"} "$suite" "$tree" > "$tree.log" 2>&1 || {
    tail -n 20 "$tree.log" >&2
    echo "trees.sh: debootstrap of $suite failed (this is the end of $tree.log)" >&2
    return 1
  }
}

# in_tree FOLDER COMMAND...: runs it there, with /proc, terminals, and with the folder READ_ONLY of the caller, if set, as
# /rocenante-source.
in_tree() {
  local tree=$1
  shift
  # shellcheck disable=SC2016  # expands in the shell that is started
  unshare --mount --pid --fork bash -euc '
    tree=$1; source=$2; shift 2
    mount --make-rprivate /
    mount -t proc proc "$tree/proc"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$tree/dev/pts"
    mount --bind "$tree/dev/pts/ptmx" "$tree/dev/ptmx"
    if [[ -n $source ]]; then
      mkdir -p "$tree/rocenante-source"
      mount --bind "$source" "$tree/rocenante-source"
      mount -o remount,bind,ro "$tree/rocenante-source"
    fi
    exec chroot "$tree" env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LC_ALL=C.UTF-8 \
      DEBIAN_FRONTEND=noninteractive "$@"' in_tree "$tree" "${READ_ONLY-}" "$@"
}

need_trees() {
  if ((EUID != 0)) || ! command -v debootstrap > /dev/null; then
    echo "${0##*/}: needs root and debootstrap" >&2
    exit 2
  fi
}
