#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the packages that building and testing need, on Debian 12 and Ubuntu 24.04. This is the only
# place that names packages; docs/dependencies.md says what each is for. Does nothing, and needs no
# privileges, when nothing is missing.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: scripts/deps.sh [--build] [--aarch64] [--peers] [--list]

Installs what is missing to build and test, with apt-get, as root or through sudo.
  --build    without what checks style and packages, which is there for one version of Debian
  --aarch64  also to cross compile for aarch64, with its libraries, and to run that
  --peers    also the MPI libraries that the benchmarks compare with
  --list     print the names and install nothing
TEXT
}

packages=(
  # to build
  g++ cmake ninja-build ccache
  libfmt-dev libhwy-dev libsodium-dev libcli11-dev nlohmann-json3-dev
  libibverbs-dev
  # to test
  catch2 libbenchmark-dev python3 binutils git pkg-config groff-base libjemalloc2 libtcmalloc-minimal4
)
# to check style: one version everywhere, since versions format differently; to make packages and check them; to
# fuzz: GCC has no libFuzzer; to test RDMA without hardware, in emulated machines (tests/vm/run.sh)
checks=(
  clang-format-14 clang-tidy-14 shellcheck dpkg-dev file lintian
  clang-14 libclang-rt-14-dev
  busybox-static kmod cpio iproute2 iputils-ping ibverbs-utils ibverbs-providers perftest
)
# The machines that are emulated are those of x86_64.
[[ $(uname -m) != x86_64 ]] || checks+=(qemu-system-x86)
aarch64=(g++-aarch64-linux-gnu libsodium-dev:arm64 libstdc++6:arm64 qemu-user-static)
peers=(openmpi-bin libopenmpi-dev mpich libmpich-dev)

list=false
foreign=false
for argument in "$@"; do
  case "$argument" in
    --build) checks=() ;;
    --aarch64)
      foreign=true
      packages+=("${aarch64[@]}")
      ;;
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

packages+=(${checks[@]+"${checks[@]}"})

if $list; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi
if ! command -v dpkg-query > /dev/null; then
  echo "deps.sh: no dpkg here. Install what stands for these Debian packages: ${packages[*]}" >&2
  exit 1
fi

# The status of a removed package is known too, so its text decides and not the exit code; a name without an
# architecture means this machine's, or one for all.
native=$(dpkg --print-architecture)
missing=()
for package in "${packages[@]}"; do
  architectures="$native|all"
  [[ $package == *:* ]] && architectures=${package#*:}
  status=$(dpkg-query -W -f '${Architecture} ${db:Status-Status}\n' "$package" 2> /dev/null || true)
  grep -qxE "($architectures) installed" <<< "$status" || missing+=("$package")
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
if $foreign && ! dpkg --print-foreign-architectures | grep -qx arm64; then
  "${root[@]}" dpkg --add-architecture arm64
  "${apt[@]}" update
fi
if ! "${apt[@]}" install --no-install-recommends "${missing[@]}"; then
  # The lists of packages may be absent (fresh container) or old.
  "${apt[@]}" update
  "${apt[@]}" install --no-install-recommends "${missing[@]}"
fi
echo "deps.sh: done"
