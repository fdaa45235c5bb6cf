#!/usr/bin/env bash
# Runs the kernels' tests on a real GPU and prints device, result and time. For a machine with one NVIDIA GPU and no network.
#
#   tests/gpu/check.sh [PROGRAM]
#
# PROGRAM is a kernels_gpu_test that was built elsewhere (preset cuda). Without it, one is looked for in build/ and
# build-cuda/, and built with nvcc and cmake where those are installed. Ends with 0 if all tests passed, 4 if there is no
# GPU, 1 otherwise; everything that it needs and does not find it names.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

fail() {
  echo "gpu check: $1" >&2
  exit 1
}

find_program() {
  local candidate
  for candidate in "$root"/build-cuda/tests/kernels/cuda/kernels_gpu_test "$root"/build/tests/kernels/cuda/kernels_gpu_test; do
    if [ -x "$candidate" ]; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}

build_program() {
  local tool
  for tool in cmake nvcc; do
    command -v "$tool" >/dev/null || fail "no kernels_gpu_test was given or found, and $tool, to build one, is missing"
  done
  local folder=$root/build-cuda
  local architecture
  architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ') || true
  cmake -S "$root" -B "$folder" -DCMAKE_BUILD_TYPE=Release -DSHARDSCOPE_CUDA=ON \
    -DCMAKE_CUDA_ARCHITECTURES="${architecture:-90}" >"$folder.log" 2>&1 || fail "cmake failed: $(tail -n 5 "$folder.log")"
  cmake --build "$folder" --target kernels_gpu_test --parallel >>"$folder.log" 2>&1 ||
    fail "the build failed: $(grep -m 3 -i error "$folder.log" || tail -n 5 "$folder.log")"
}

program=${1:-}
if [ -z "$program" ]; then
  program=$(find_program) || {
    build_program
    program=$(find_program) || fail "the build left no kernels_gpu_test"
  }
fi
[ -x "$program" ] || fail "$program cannot be run"

if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader || true
else
  echo "gpu check: nvidia-smi is missing, the program asks the driver itself"
fi

status=0
SECONDS=0
"$program" --durations yes || status=$?
case $status in
  0) verdict=passed ;;
  4) verdict="skipped: no GPU" ;;
  *) verdict="failed, status $status" ;;
esac
echo "gpu check: $verdict, $SECONDS s"
[ "$status" -eq 0 ] || [ "$status" -eq 4 ] || status=1
exit "$status"
