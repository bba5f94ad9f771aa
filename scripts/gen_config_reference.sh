#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Writes docs/configuration.md, the reference of all settings, from the library's own table. With --check
# DESCRIBE, a built program, it only says whether the page is what it should be.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
page=docs/configuration.md

if [[ ${1-} == --check && $# == 2 ]]; then
  if ! "$2" config.md | diff -u "$page" -; then
    echo "$page is not what the table in lib/base/config_table.cc says: run scripts/gen_config_reference.sh" >&2
    exit 1
  fi
  exit 0
fi
if (($# != 0)); then
  echo "Usage: scripts/gen_config_reference.sh [--check DESCRIBE]" >&2
  exit 2
fi
cmake --preset release > /dev/null
cmake --build --preset release --target abi_describe > /dev/null
build/release/tests/abi/describe config.md > "$page.new"
mv "$page.new" "$page"
echo "gen_config_reference.sh: wrote $page"
