#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The wheels of PyTorch and CuPy import with libnccl.so.2 of a build before their own NCCL, every symbol resolved
# at once, and reach it. Outside CI: it downloads some gigabytes. Needs no GPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
Usage: scripts/wheels-test.sh [--library FILE] [torch|cupy]...

  --library FILE  the library to put first (build/release/lib/nccl/libnccl.so.2)

Installs each wheel in a temporary virtual environment, under TMPDIR. Exit code 77: all were skipped.
TEXT
}

library=build/release/lib/nccl/libnccl.so.2
wheels=()
while (($# != 0)); do
  case "$1" in
    --library)
      library=${2:?--library needs a file}
      shift
      ;;
    torch | cupy)
      wheels+=("$1")
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      echo "wheels-test.sh: unknown argument '$1'" >&2
      usage >&2
      exit 2
      ;;
  esac
  shift
done
((${#wheels[@]} != 0)) || wheels=(torch cupy)
[[ -f $library ]] || {
  echo "wheels-test.sh: there is no $library: build it, or name another by --library" >&2
  exit 2
}
library=$(realpath "$library")

folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT
ran=0

skip() { echo "wheels-test.sh: $1 skipped: $2"; }

# name, package, GiB that it takes with what it needs, twice over for the download
prepare() {
  local name=$1 package=$2 gib=$3 free
  free=$(df --output=avail -B1G "$folder" | tail -n 1)
  if ((free < gib)); then
    skip "$name" "it needs $gib GiB in $folder, and $free are free"
    return 1
  fi
  if ! python3 -m venv "$folder/$name" > "$folder/$name.log" 2>&1; then
    skip "$name" "python3 has no venv: $(tail -n 1 "$folder/$name.log")"
    return 1
  fi
  if ! "$folder/$name/bin/pip" install --no-cache-dir --only-binary :all: "$package" > "$folder/$name.log" 2>&1; then
    skip "$name" "$package could not be installed: $(tail -n 1 "$folder/$name.log")"
    return 1
  fi
}

# Runs Python with the library first; what it prints is the version that the wheel reaches.
ask() {
  local name=$1
  shift
  env -u LD_LIBRARY_PATH LD_PRELOAD="$library" LD_BIND_NOW=1 ROCENANTE_SOCKET_IFNAME="=lo" "$@" \
    "$folder/$name/bin/python" -W ignore scripts/wheels_client.py "$name" "$library"
}

check() {
  local name=$1 found
  found=$(ask "$name" ROCENANTE_FALLBACK=off)
  [[ $found == "$name "*" reaches 2.28.9"* ]] || {
    echo "wheels-test.sh: $name: '$found', expected version 2.28.9 of the own world" >&2
    exit 1
  }
  echo "wheels-test.sh: $found"
  # The NCCL that came with the wheel, behind ours.
  local real
  real=$(find "$folder/$name" -path '*/nvidia/nccl/lib/libnccl.so.2')
  if [[ -n $real ]]; then
    echo "wheels-test.sh: $(ask "$name" ROCENANTE_FALLBACK=require), which is its own NCCL behind ours"
  fi
  ran=$((ran + 1))
}

for wheel in "${wheels[@]}"; do
  case "$wheel" in
    torch) prepare torch torch 16 || continue ;;
    cupy) prepare cupy cupy-cuda12x 2 || continue ;;
  esac
  check "$wheel"
  rm -rf --one-file-system "${folder:?}/$wheel"
done
((ran != 0)) || exit 77
