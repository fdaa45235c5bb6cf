# shellcheck shell=bash
# Shared by the script tests: a copy of the scripts in a folder whose name has blanks, a folder of fake commands that is
# first in PATH, and checks that say what they saw. Sourced after `set -euo pipefail`.

project=$(dirname "$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")")
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
copy="$work/a project"
fakes="$work/fake commands"
mkdir -p "$copy/launch" "$copy/tests" "$copy/.ci" "$fakes"
cp "$project"/launch/{lib.sh,lib_cuda.sh,packages.txt,cuda.txt,quickstart,fetch_model,fetch_cuda} "$copy/launch/"
cp "$project/tests/run" "$copy/tests/"
cp "$project/.ci/run" "$copy/.ci/"
cp -r "$project/tests/gpu" "$copy/tests/"
export PATH="$fakes:$PATH" SHARDSCOPE_CACHE="$work/cache"
unset XDG_CACHE_HOME "${!OMPI_MCA_@}" "${!OMPI_ALLOW_@}" "${!SHARDSCOPE_TEST_@}"

# fake NAME <<<BODY: a command of this name that runs BODY instead, and notes its arguments in $work/NAME.calls.
fake() {
  printf '#!/usr/bin/env bash\nprintf "%%s\\n" "$*" >>"%s"\n%s\n' "$work/$1.calls" "$(cat)" >"$fakes/$1"
  chmod +x "$fakes/$1"
}

calls() { cat "$work/$1.calls" 2>/dev/null || true; }
forget_calls() { rm -f -- "$work"/*.calls; }

# capture COMMAND…: sets `status` and `output` (both streams); standard output alone is in $work/stdout.
capture() {
  status=0
  "$@" >"$work/stdout" 2>"$work/stderr" </dev/null || status=$?
  output=$(cat "$work/stdout" "$work/stderr")
}

wrong() {
  printf 'FAILED: %s: %s\nstatus %s, output:\n%s\n' "$case_name" "$1" "${status:-}" "${output:-}" >&2
  exit 1
}
begin() { case_name=$1; forget_calls; printf '%s\n' "$1"; }
expect_status() { [[ $status == "$1" ]] || wrong "status is not $1"; }
expect() { [[ $output == *"$1"* ]] || wrong "no \"$1\" in the output"; }
expect_not() { [[ $output != *"$1"* ]] || wrong "\"$1\" in the output"; }
expect_last_line() { [[ $(tail -n1 <<<"$output") == "$1"* ]] || wrong "the last line does not begin with \"$1\""; }
expect_calls() { [[ $(calls "$1") == *"$2"* ]] || wrong "$1 was not called with \"$2\" but: $(calls "$1")"; }
expect_no_calls() { [[ -z $(calls "$1") ]] || wrong "$1 was called: $(calls "$1")"; }

# hide_toolkits: the copy sees no CUDA toolkit of this machine, only fake nvcc's: in $fakes, and in $work/usual/bin for the
# usual folder.
hide_toolkits() {
  local library="$copy/launch/lib_cuda.sh"
  unset CUDA_HOME
  sed -i -e "s|/usr/local/cuda/bin/nvcc|'$work/usual/bin/nvcc'|" -e 's|command -v nvcc|nvcc_in_path|' "$library"
  printf 'nvcc_in_path() { [[ ! -x "%s/nvcc" ]] || printf "%%s\\n" "%s/nvcc"; }\n' "$fakes" "$fakes" >>"$library"
  if ! grep -q "$work/usual" "$library" || ! grep -q '(nvcc_in_path' "$library"; then
    printf 'FAILED: hide_toolkits does not know lib_cuda.sh any more\n' >&2
    exit 1
  fi
}

# cache_toolkit: a toolkit that is complete but for NVML's header, and a package with that, as launch/fetch_cuda leaves them:
# `toolkit` and `nvml`. After hide_toolkits.
cache_toolkit() {
  toolkit="$SHARDSCOPE_CACHE/cuda-13.0.2"
  nvml="$SHARDSCOPE_CACHE/nvidia-nvml-dev-$(sed -n 's/^nvidia-nvml-dev==\([^ ]*\).*/\1/p' "$copy/launch/cuda.txt")"
  mkdir -p "$toolkit"/{bin,include,lib} "$nvml/include"
  touch "$toolkit/bin/nvcc" "$toolkit"/include/{cublasLt,nccl}.h "$toolkit"/lib/lib{cublasLt,nccl}.so "$nvml/include/nvml.h"
  chmod +x "$toolkit/bin/nvcc"
  cp "$copy/launch/cuda.txt" "$toolkit/"
}
