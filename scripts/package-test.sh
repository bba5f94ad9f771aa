#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the Debian packages and checks them: lintian finds no error, and the dependencies are those they should
# have. With --install also what users do: a fresh system, install, run, remove.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
Usage: scripts/package-test.sh [--aarch64] [--install [SUITE]]

  --aarch64  packages for arm64, cross compiled
  --install  also install them in a fresh tree of SUITE (bookworm), measure there, and remove them; as root,
             needs debootstrap
TEXT
}

preset=package
architecture=$(dpkg --print-architecture 2> /dev/null || true)
suite=
while (($# != 0)); do
  case "$1" in
    --aarch64)
      preset=package-aarch64
      architecture=arm64
      ;;
    --install)
      suite=bookworm
      if (($# > 1)) && [[ $2 != -* ]]; then
        suite=$2
        shift
      fi
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      echo "package-test.sh: unknown argument '$1'" >&2
      usage >&2
      exit 2
      ;;
  esac
  shift
done
for tool in dpkg-deb dpkg-shlibdeps lintian file; do
  if ! command -v "$tool" > /dev/null; then
    echo "package-test.sh: skipped: there is no $tool here"
    exit 77
  fi
done

log=build/$preset.log
mkdir -p build
rm -rf "build/$preset/deb"
if ! { cmake --preset "$preset" && cmake --build --preset "$preset" &&
  (cd "build/$preset" && cpack); } > "$log" 2>&1; then
  cat "$log" >&2
  echo "package-test.sh: no packages (this is $log)" >&2
  exit 1
fi

fail() {
  echo "package-test.sh: $*" >&2
  exit 1
}
field() { dpkg-deb --field "$1" "$2"; }

names=(librocenante1 librocenante-dev rocenante)
version=$(sed -n 's/^project(rocenante VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
debs=()
for name in "${names[@]}"; do
  deb=build/$preset/deb/${name}_${version}_$architecture.deb
  [[ -f $deb ]] || fail "cpack did not make $deb"
  debs+=("$deb")
  echo "$name: $(field "$deb" Architecture), needs $(field "$deb" Depends)"
done
# The library needs the C library alone, in the version that the oldest supported system has.
[[ $(field "${debs[0]}" Depends) =~ ^libc6\ \(\>=\ 2\.(17|2[0-9]|3[0-5])\)$ ]] ||
  fail "librocenante1 needs '$(field "${debs[0]}" Depends)', and may need libc6 of at most 2.35 alone"
for deb in "${debs[@]:1}"; do
  [[ $(field "$deb" Depends) == "librocenante1 (= $version)"* ]] || fail "$deb is not tied to its library"
done
# In NCCL's place: with the name that has no version, where nothing finds it by accident.
contents=$(dpkg-deb --contents "${debs[0]}")
for file in libnccl.so.2 'libnccl.so -> libnccl.so.2'; do
  grep -Eq "/usr/lib/[^/]+/rocenante/nccl/$file\$" <<< "$contents" || fail "librocenante1 has no rocenante/nccl/$file"
done
lintian --allow-root --fail-on error "${debs[@]}"
echo "package-test.sh: lintian has no error"
[[ -n $suite ]] || exit 0

# shellcheck source=scripts/trees.sh
source scripts/trees.sh
need_trees
folder=$(mktemp -d)
trap 'rm -rf --one-file-system "$folder"' EXIT
tree=$folder/tree
echo "package-test.sh: making a tree of $suite"
make_tree "$tree" "$suite"
cp "${debs[@]}" "$tree"
in_tree "$tree" apt-get -q update > /dev/null
run=()
if [[ $architecture != "$(in_tree "$tree" dpkg --print-architecture)" ]]; then
  # A system for another processor cannot start its own programs here; the packages go beside this one's.
  in_tree "$tree" dpkg --add-architecture "$architecture"
  in_tree "$tree" apt-get -q update > /dev/null
  cp "$(command -v qemu-aarch64-static)" "$tree/usr/local/bin"
  run=(qemu-aarch64-static)
fi
in_tree "$tree" sh -c 'apt-get -q -y --no-install-recommends install /*.deb' > "$folder/install.log" 2>&1 ||
  { cat "$folder/install.log" >&2; fail "apt-get install failed"; }
files=$(in_tree "$tree" dpkg -L "${names[@]/%/:$architecture}" | sort -u)

in_tree "$tree" "${run[@]}" /usr/bin/rocenante info
if ((${#run[@]} == 0)); then
  in_tree "$tree" rocenante perf all_reduce --ranks 2 -b 8 -e 64K -f 8
  in_tree "$tree" rocenante run --fallback off -- rocenante --version
else
  # What an emulated process starts is not emulated, so its ranks are started by hand.
  # shellcheck disable=SC2016  # expands in the tree
  in_tree "$tree" sh -euc '
    options="all_reduce --world 2 --rendezvous 127.0.0.1:7391 -b 8 -e 64K -f 8 -n 5"
    qemu-aarch64-static /usr/bin/rocenante perf $options --rank 1 & other=$!
    qemu-aarch64-static /usr/bin/rocenante perf $options --rank 0
    wait $other'
fi

in_tree "$tree" apt-get -q -y purge "${names[@]/%/:$architecture}" > "$folder/remove.log" 2>&1 ||
  { cat "$folder/remove.log" >&2; fail "apt-get purge failed"; }
while read -r path; do
  [[ $path == *rocenante* ]] || continue
  [[ ! -e $tree$path && ! -L $tree$path ]] || fail "$path is still there after the packages have gone"
done <<< "$files"
if in_tree "$tree" ldconfig -p | grep rocenante; then fail "the loader still knows the library"; fi
echo "package-test.sh: installed, ran and removed in a fresh $suite"
