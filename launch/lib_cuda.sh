# shellcheck shell=bash
# The CUDA toolkit that tests compile kernels with, and the libraries beside it: what is installed, else fetched into the
# cache folder. Needs no GPU and no root. Sourced after lib.sh, whose steps, failures and downloads it uses, by
# launch/fetch_cuda and tests/run.
# shellcheck disable=SC2154  # root, log_folder and temporary_folder are lib.sh's

cuda_name=cuda-13.0.2  # the folder in the cache: the version of what cuda.txt lists
cuda_least=1208        # the oldest toolkit that we accept: 12.8, the first with sm_120
cuda_need_mib=600      # wheels, pip's copy of the largest, and what is in them

# Libraries that many toolkits lack: package, header, library ("-": it comes with the driver), MB to download, and MiB of disk
# as above. Each has its own folder in the cache, of what we use: headers and this library.
cuda_libraries=(
  "nvidia-cublas cublasLt.h libcublasLt 423 1700"
  "nvidia-nccl-cu13 nccl.h libnccl 196 650"
  "nvidia-nvml-dev nvml.h - 0.1 5"
)

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
  local folder=$1 package=$2 header=$3 library=$4 megabytes=$5 need_mib=$6 version path wanted
  if cuda_has "$cuda_path" "$header" "$library"; then return; fi
  version=$(sed -n "s/^$package==\([^ ]*\).*/\1/p" "$root/launch/cuda.txt")
  path=$folder/$package-$version
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
  note "downloading the CUDA toolkit (105 MB) from the package index"
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
