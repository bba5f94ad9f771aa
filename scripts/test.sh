#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds every lane and runs all their tests in one ctest, whose summary is the last thing printed.
#
#   release  the product as it ships; checks of sources and binaries run here alone
#   asan     AddressSanitizer with leaks, UndefinedBehaviorSanitizer
#   tsan     ThreadSanitizer
#   aarch64  cross compiled, what depends on the processor, under QEMU's user emulation
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: scripts/test.sh [--lane NAME]... [CTEST ARGUMENT]...

  --lane NAME  release, asan, tsan or aarch64; may be repeated. Without it the first three, and aarch64 on
               Debian on amd64, whose archive has the libraries to cross compile with
Everything else goes to ctest, e.g. -R REGEX, -L LABEL, --repeat until-fail:10.
TEXT
}

lanes=()
ctest_arguments=()
while (($# != 0)); do
  case "$1" in
    --lane)
      case "${2-}" in
        release | asan | tsan | aarch64) lanes+=("$2") ;;
        *)
          echo "test.sh: --lane '${2-}': must be release, asan, tsan or aarch64" >&2
          exit 2
          ;;
      esac
      shift 2
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      ctest_arguments+=("$1")
      shift
      ;;
  esac
done
if ((${#lanes[@]} == 0)); then
  lanes=(release asan tsan)
  # Another Debian-like archive may not serve foreign packages; on aarch64 the lanes above are native.
  # shellcheck source=/dev/null
  if (. /etc/os-release && [[ $ID == debian && $(dpkg --print-architecture) == amd64 ]]); then
    lanes+=(aarch64)
  else
    echo "test.sh: lane aarch64 is left out: it is for Debian on amd64"
  fi
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ " ${lanes[*]} " == *" aarch64 "* ]]; then scripts/deps.sh --aarch64; else scripts/deps.sh; fi

all=build/all
rm -rf "$all"
mkdir -p "$all"
for lane in "${lanes[@]}"; do
  start=$SECONDS
  log=$all/build-$lane.log
  echo "test.sh: building $lane"
  if ! { cmake --preset "$lane" && cmake --build --preset "$lane"; } > "$log" 2>&1; then
    cat "$log" >&2
    echo "test.sh: lane $lane does not build (this is $log)" >&2
    exit 1
  fi
  # A warning of the configuration must not vanish in the log, e.g. that a sanitizer may not work here.
  grep -A 4 '^CMake Warning' "$log" >&2 || true
  echo "test.sh: $lane built in $((SECONDS - start)) s"
  # One ctest over all lanes: one summary, and the lanes' tests fill each other's gaps.
  echo "subdirs(\"$PWD/build/$lane\")" >> "$all/CTestTestfile.cmake"
done

exec ctest --test-dir "$all" --output-on-failure -j "$(nproc)" --no-tests=error \
  ${ctest_arguments[@]+"${ctest_arguments[@]}"}
