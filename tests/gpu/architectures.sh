#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The compute capabilities of this machine's GPUs as ROCENANTE_CUDA_ARCHITECTURES takes them, the oldest first: "90" or
# "90;121". Nothing where nvidia-smi is missing or does not say.
set -euo pipefail

command -v nvidia-smi >/dev/null || exit 0
nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
  sed -n 's/^ *\([0-9]\+\)\.\([0-9]\) *$/\1\2/p' | sort -nu | paste -sd ';' || true
