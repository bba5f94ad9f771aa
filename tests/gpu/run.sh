#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything that needs a GPU, in one run of less than five minutes: tests, a memory checker, PyTorch, latencies.
# Prints what each step said and a table at the end.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tests/gpu/run.sh [--build FOLDER] [--only STEP]

Runs what is in FOLDER (build/gpu-sm_90, which is made on any machine with a CUDA toolkit by
`cmake --preset gpu-sm_90 && cmake --build --preset gpu-sm_90`); builds for this machine's GPU into build/gpu-native
where there is no such folder or its programs do not run on this GPU.
  --only STEP  one of: tests, memcheck, torch, latency; may be repeated

Exits with 0 if all is right, with 1 if anything is wrong, and with 77 on a machine without a GPU. On a machine with
one, a step that is skipped for want of a tool is named, and everything else that does not run is wrong.
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=
only=()
while (($# > 0)); do
  case "$1" in
    --build)
      build=${2:?--build needs a folder}
      shift
      ;;
    --only)
      only+=("${2:?--only needs a step}")
      if [[ ! $2 =~ ^(tests|memcheck|torch|latency)$ ]]; then
        echo "run.sh: --only is '$2': expected tests, memcheck, torch or latency" >&2
        exit 2
      fi
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      echo "run.sh: unknown argument '$1'" >&2
      usage >&2
      exit 2
      ;;
  esac
  shift
done

has_gpu() {
  local device
  for device in /dev/nvidiactl /dev/nvidia0 /dev/nvgpu/igpu0 /dev/dxg; do
    [[ -e $device ]] && return 0
  done
  return 1
}

if ! has_gpu; then
  echo "run.sh: skipped: this machine has no NVIDIA GPU (no /dev/nvidiactl)"
  exit 77
fi

programs=(gpu_cuda_test gpu_latency)

# Whether the programs are there and this GPU runs their kernels.
usable() {
  local program
  for program in "${programs[@]}"; do
    [[ -x $1/tests/gpu/$program ]] || return 1
  done
  timeout 60 "$1/tests/gpu/gpu_latency" --check
}

if [[ -z $build ]]; then
  build=$root/build/gpu-sm_90
  if ! usable "$build"; then
    build=$root/build/gpu-native
    architectures=$("$root/tests/gpu/architectures.sh")
    echo "run.sh: building in $build for this machine's GPU, compute capability ${architectures:-unknown: for all}"
    # Set at each run: what was configured before may be for another GPU.
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DROCENANTE_CUDA=ON \
      -DROCENANTE_LANE=gpu ${architectures:+-DROCENANTE_CUDA_ARCHITECTURES="$architectures"}
    cmake --build "$build" --target "${programs[@]}" rocenante_nccl
  fi
fi

# All steps together, building apart; what is left of it limits each.
budget=290
started=$SECONDS

names=()
results=()
seconds=()
failed=0

wanted() {
  ((${#only[@]} == 0)) && return 0
  local step
  for step in "${only[@]}"; do
    [[ $1 == "$step"* ]] && return 0
  done
  return 1
}

# step NAME LIMIT COMMAND...: 77 of the command is a skip, which only PyTorch may.
step() {
  local name=$1 limit=$2 begin=$SECONDS code=0
  shift 2
  wanted "$name" || return 0
  local left=$((budget - (SECONDS - started)))
  ((limit < left)) || limit=$((left > 1 ? left : 1))
  echo "== $name: $*"
  timeout --kill-after=5 "$limit" "$@" || code=$?
  names+=("$name")
  seconds+=($((SECONDS - begin)))
  case $code in
    0) results+=(right) ;;
    77)
      results+=(skipped)
      [[ $name == torch* ]] || failed=1
      ;;
    124 | 137)
      results+=("not over in $limit s")
      failed=1
      ;;
    *)
      results+=("wrong ($code)")
      failed=1
      ;;
  esac
}

skip() {
  wanted "$1" || return 0
  names+=("$1")
  results+=("skipped: $2")
  seconds+=(0)
}

# Ranks are threads of one process: streams that shared a queue of the hardware would wait for each other.
export CUDA_DEVICE_MAX_CONNECTIONS=32
unset ROCENANTE_DEVICE

step tests 150 "$build/tests/gpu/gpu_cuda_test" --durations yes

sanitizer=$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")
if [[ -x $sanitizer ]]; then
  # A checker may run kernels one after the other, so only where none waits for another rank's.
  step memcheck 90 "$sanitizer" --tool memcheck --error-exitcode 9 "$build/tests/gpu/gpu_cuda_test" "[alone]"
else
  skip memcheck "no compute-sanitizer"
fi

python=$(command -v python3 || true)
preload=$build/lib/nccl/libnccl.so.2
if [[ -z $python ]]; then
  skip torch "no python3"
else
  step torch 60 "$python" "$root/tests/gpu/torch_all_reduce.py"
  # The loader only warns of a library that is not there.
  step torch-preloaded 60 env LD_PRELOAD="${preload:?}" "$python" "$root/tests/gpu/torch_all_reduce.py" --from "$preload"
  step torch-cuda 60 env LD_PRELOAD="$preload" ROCENANTE_DEVICE=cuda ROCENANTE_FALLBACK=off \
    "$python" "$root/tests/gpu/torch_all_reduce.py" --from "$preload"
fi

step latency-2 60 "$build/tests/gpu/gpu_latency" 2
step latency-4 60 "$build/tests/gpu/gpu_latency" 4

echo
printf '%-16s  %-24s  %s\n' step result seconds
for i in "${!names[@]}"; do
  printf '%-16s  %-24s  %s\n' "${names[i]}" "${results[i]}" "${seconds[i]}"
done
exit $failed
