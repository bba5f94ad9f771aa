#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds and tests on a newer system than this one, in a tree that debootstrap makes: a newer compiler, Catch2
# version 3, newer libraries. Minutes of downloads, so not part of every run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
Usage: scripts/newer-systems.sh [--suite SUITE] [--keep FOLDER] [CTEST ARGUMENT]...

  --suite SUITE   trixie (Debian 13) without it, or another that this debootstrap knows
  --keep FOLDER   make the tree there, or use the one that is there, and leave it for the next time
Everything else goes to ctest; without it all tests but the checks of style (-LE lint). As root.
TEXT
}

suite=trixie
tree=
ctest_arguments=()
while (($# != 0)); do
  case "$1" in
    --suite | --keep)
      (($# > 1)) || {
        echo "newer-systems.sh: $1 needs a value" >&2
        exit 2
      }
      if [[ $1 == --suite ]]; then suite=$2; else tree=$2; fi
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) ctest_arguments+=("$1") ;;
  esac
  shift
done
((${#ctest_arguments[@]} != 0)) || ctest_arguments=(-LE lint)

# shellcheck source=scripts/trees.sh
source scripts/trees.sh
need_trees
if [[ -z $tree ]]; then
  folder=$(mktemp -d)
  trap 'rm -rf --one-file-system "$folder"' EXIT
  tree=$folder/$suite
fi
if [[ ! -e $tree/etc/os-release ]]; then
  echo "newer-systems.sh: making a tree of $suite"
  make_tree "$tree" "$suite"
fi
export READ_ONLY=$PWD
in_tree "$tree" apt-get -q update > /dev/null
in_tree "$tree" /rocenante-source/scripts/deps.sh --build > "$tree.deps.log" 2>&1 || {
  tail -n 20 "$tree.deps.log" >&2
  exit 1
}
# shellcheck disable=SC2016  # expands in the tree
in_tree "$tree" bash -c '. /etc/os-release; echo "newer-systems.sh: $PRETTY_NAME, $(g++ --version | head -n 1)"'
# Checks of style are for one version of their tools.
in_tree "$tree" cmake -S /rocenante-source -B /rocenante-build -G Ninja -DCMAKE_BUILD_TYPE=Release "-DROCENANTE_LANE=$suite" > /dev/null
in_tree "$tree" cmake --build /rocenante-build
in_tree "$tree" ctest --test-dir /rocenante-build --output-on-failure -j "$(nproc)" --no-tests=error \
  "${ctest_arguments[@]}"
