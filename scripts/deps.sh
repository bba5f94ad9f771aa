#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the packages that building and testing need, on Debian 12 and Ubuntu 24.04. This is the only
# place that names packages; docs/dependencies.md says what each is for. Does nothing, and needs no
# privileges, when nothing is missing.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: scripts/deps.sh [--peers] [--list]

Installs what is missing to build and test, with apt-get, as root or through sudo.
  --peers  also the MPI libraries that the benchmarks compare with
  --list   print the names and install nothing
TEXT
}

packages=(
  # to build
  g++ cmake ninja-build ccache
  libfmt-dev libhwy-dev libsodium-dev libcli11-dev nlohmann-json3-dev
  libibverbs-dev
  # to test
  catch2 libbenchmark-dev python3 binutils git
  # to test RDMA without hardware, in emulated machines (tests/vm/run.sh)
  busybox-static kmod cpio iproute2 iputils-ping ibverbs-utils ibverbs-providers perftest
  # to check style: one version everywhere, since versions format differently
  clang-format-14 clang-tidy-14 shellcheck
)
# The machines that are emulated are those of x86_64.
[[ $(uname -m) != x86_64 ]] || packages+=(qemu-system-x86)
peers=(openmpi-bin libopenmpi-dev mpich libmpich-dev)

list=false
for argument in "$@"; do
  case "$argument" in
    --peers) packages+=("${peers[@]}") ;;
    --list) list=true ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      echo "deps.sh: unknown argument '$argument'" >&2
      usage >&2
      exit 2
      ;;
  esac
done

if $list; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi
if ! command -v dpkg-query > /dev/null; then
  echo "deps.sh: no dpkg here. Install what stands for these Debian packages: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  # The status of a removed package is known too, so its text decides and not the exit code.
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "deps.sh: all ${#packages[@]} packages are installed"
  exit 0
fi

root=()
if ((EUID != 0)); then
  if ! command -v sudo > /dev/null; then
    echo "deps.sh: missing: ${missing[*]}" >&2
    echo "deps.sh: neither root nor sudo: install them as root and start again" >&2
    exit 1
  fi
  root=(sudo)
fi

echo "deps.sh: installing ${missing[*]}"
# Through env, because sudo drops the environment.
apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
if ! "${apt[@]}" install --no-install-recommends "${missing[@]}"; then
  # The lists of packages may be absent (fresh container) or old.
  "${apt[@]}" update
  "${apt[@]}" install --no-install-recommends "${missing[@]}"
fi
echo "deps.sh: done"
