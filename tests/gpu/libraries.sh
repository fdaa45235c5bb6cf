# shellcheck shell=bash
# For tests/gpu/check.sh: where the programs are, and the CUDA libraries that they need. Sourced after launch/lib_cuda.sh.
# shellcheck disable=SC2034,SC2154  # root, work, bin and the like are check.sh's, as are the results

library_path=""  # for LD_LIBRARY_PATH of the programs alone: the tools beside them have libraries of their own

# python_packages: folders in which Python's packages of CUDA may be, with a Python or without.
python_packages() {
  if command -v python3 >/dev/null; then
    python3 -c 'import sys; print("\n".join(p for p in sys.path if p.endswith("-packages")))' 2>/dev/null || true
  fi
  printf '%s\n' ${VIRTUAL_ENV:+"$VIRTUAL_ENV"/lib/python3*/site-packages} /usr/local/lib/python3*/{site,dist}-packages \
    /usr/lib/python3*/{site,dist}-packages
}

# library_folders: where CUDA's libraries may be, the toolkit first.
library_folders() {
  local toolkit folder
  if toolkit=$(cuda_installed); then printf '%s\n' "$toolkit"/{lib64,lib,targets/"$(uname -m)"-linux/lib}; fi
  ldconfig -p 2>/dev/null | sed -n 's|.*=> \(/.*\)/[^/]*$|\1|p' | sort -u
  while read -r folder; do
    printf '%s\n' "$folder"/nvidia/*/lib
  done < <(python_packages)
  printf '%s\n' "$(cache_folder)"/{cuda,nvidia}-*/lib ${library_path:+"${library_path%%:*}/compiler"}
}

# missing_libraries FILE…: names that the loader does not find.
missing_libraries() {
  LD_LIBRARY_PATH=$library_path ldd "$@" 2>/dev/null | sed -n 's/^[[:space:]]*\([^ ]*\) => not found.*/\1/p' | sort -u
}

# find_libraries FILE…: adds to `library_path` what these lack. Status 1: `detail` says what is nowhere.
find_libraries() {
  local name folder found lacking
  while read -r name; do
    [[ -n $name ]] || continue
    found=""
    while read -r folder; do
      if [[ -e $folder/$name ]]; then
        found=$folder
        break
      fi
    done < <(library_folders)
    [[ -z $found ]] || library_path+="${library_path:+:}$found"
  done < <(missing_libraries "$@")
  lacking=$(missing_libraries "$@" | paste -sd ' ')
  [[ -n $lacking ]] || return 0
  detail="not found: $lacking (looked for in the toolkit, ldconfig -p, Python's site-packages/nvidia and $(cache_folder))"
  return 1
}

# use_programs FOLDER FROM: those of this folder are used, with the libraries that were packed beside them. Status 1: it has none.
use_programs() {
  local program
  for program in shardscope libshardscope_cuda.so kernels_gpu_test; do
    [[ -e $1/$program ]] || return
  done
  bin=$1 programs_from=$2
  [[ ! -d $1/../lib ]] || library_path=$(cd -- "$1/../lib" && pwd)
}

# gather_built: of a build folder, the programs in one place.
gather_built() {
  local built=$root/build-cuda place=$work/bin file
  mkdir -p -- "$place"
  for file in launch/shardscope launch/libshardscope_cuda.so tests/kernels/cuda/kernels_gpu_test; do
    [[ -x $built/$file ]] || return
    ln -sf -- "$built/$file" "$place/"
  done
}

# link_packages: folders as launch/fetch_cuda leaves them, of Python's packages: a linker asks for names without a version.
link_packages() {
  local folder name library
  while read -r folder; do
    for name in cublasLt nccl; do
      for library in "$folder"/nvidia/*/lib/lib"$name".so.*; do
        [[ -e $library ]] || continue
        mkdir -p -- "$work/packages/$name/lib"
        ln -sfn -- "$(dirname -- "$(dirname -- "$library")")/include" "$work/packages/$name/include"
        ln -sf -- "$library" "$work/packages/$name/lib/lib$name.so"
        printf '%s\n' "$work/packages/$name"
      done
    done
  done < <(python_packages) | awk '!seen[$0]++'
}

# build_programs: with the toolkit of this machine, for its GPUs alone.
build_programs() {
  local tool toolkit log=$work/build.log status=0 generator=()
  for tool in cmake g++; do
    command -v "$tool" >/dev/null || { detail="no $tool, and no packed program: run tests/gpu/pack elsewhere"; return 1; }
  done
  toolkit=$(cuda_installed) || { detail="no CUDA 12.8 or later, and no packed program: run tests/gpu/pack elsewhere"; return 1; }
  [[ -f $root/build-cuda/CMakeCache.txt ]] || ! command -v ninja >/dev/null || generator=(-G Ninja)
  limited "$log" cmake -S "$root" -B "$root/build-cuda" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DSHARDSCOPE_CUDA=ON \
    "-DSHARDSCOPE_CUDA_TOOLKIT=$toolkit" "-DSHARDSCOPE_CUDA_PACKAGES=$(link_packages | paste -sd ';')" \
    "-DCMAKE_CUDA_ARCHITECTURES=$gpu_architectures" || status=$?
  if ((status == 0)); then
    limited "$log" cmake --build "$root/build-cuda" --target shardscope kernels_gpu_test --parallel "$(job_count)" || status=$?
  fi
  ((status == 0)) || { detail="the build: $(why_ended "$status" "$log") ($log)"; return 1; }
  if ! gather_built || ! use_programs "$work/bin" "built here with $toolkit"; then
    detail="the build left no program"
    return 1
  fi
}
