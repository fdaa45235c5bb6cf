#!/usr/bin/env bash
# Every header compiles alone, with all our warnings.   check_headers.sh [JOBS]
# Those of the CUDA kernels need a toolkit's headers, and those of device code (.cuh) the emulation's.
set -euo pipefail
cd -- "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
compiler=${CXX:-g++}
cuda=$(launch/fetch_cuda 2>/dev/null) || { echo "check_headers: no CUDA toolkit; what to do: launch/fetch_cuda" >&2; exit 1; }
mapfile -t cuda_folders <<<"$cuda"  # the toolkit and what it lacks
read -r -a packages < <(pkg-config --cflags libhwy hwloc libpcre2-8 libutf8proc)
read -r -a mpi < <(mpicxx --showme:compile)
libraries="${packages[*]} ${mpi[*]} -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX"
export compiler flags="-std=c++20 -fsyntax-only -I. -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion \
-Wnon-virtual-dtor -Wold-style-cast -Wno-missing-field-initializers -Werror ${libraries//-I\//-isystem /}"
cuda_flags="-isystem ${cuda_folders[0]}/targets/$(uname -m)-linux/include -isystem ${cuda_folders[0]}/include/cccl"
cuda_flags+=$(printf ' -isystem %s/include' "${cuda_folders[@]}")
export cuda_flags emulated_flags="-Itests/emulation/device -DSHARDSCOPE_EMULATED -Wno-unknown-pragmas"
mapfile -d '' -t headers < <(find kernels parallel runtime topology launch tests '(' -name '*.hpp' -o -name '*.cuh' ')' \
  ! -path 'parallel/cuda/*' ! -path 'topology/nvml/*' -print0 | sort -z)
((${#headers[@]} > 0)) || { echo "check_headers: no headers found" >&2; exit 1; }
# Twice, so that a missing #pragma once shows too. Tests may convert, as CMake has it.
printf '%s\0' "${headers[@]}" | xargs -0 -n1 -P "${1:-$(nproc)}" bash -c '
  set -f
  case $1 in */cuda/* | tests/emulation/*) flags="$flags $cuda_flags" ;; esac
  case $1 in *.cuh | tests/emulation/device/*) flags="$flags $emulated_flags" ;; esac
  case $1 in tests/*) flags="$flags -Wno-conversion -Wno-float-conversion -DSHARDSCOPE_TEST_DATA=\"\"" ;; esac
  printf "#include \"%s\"\n#include \"%s\"\n" "$1" "$1" | $compiler $flags -x c++ - ||
    { echo "check_headers: $1 does not compile alone" >&2; exit 1; }' _
echo "check_headers: ${#headers[@]} headers"
