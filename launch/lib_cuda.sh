# shellcheck shell=bash
# The CUDA toolkit that tests compile kernels with: one that is installed, else one fetched into the cache folder. Needs no
# GPU and no root. Sourced after lib.sh, whose steps, failures and downloads it uses, by launch/fetch_cuda and tests/run.
# shellcheck disable=SC2154  # root, log_folder and temporary_folder are lib.sh's

cuda_name=cuda-13.0.2  # the folder in the cache: the version of what cuda.txt lists
cuda_least=1208        # the oldest toolkit that we accept: 12.8, the first with sm_120
cuda_need_mib=600      # wheels, pip's copy of the largest, and what is in them

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

# fetch_cuda: sets `cuda_path`. What is installed or in the cache is used at once, without network and without writing.
fetch_cuda() {
  local folder
  if cuda_path=$(cuda_installed); then
    note "$cuda_path (installed)"
    return
  fi
  folder=$(cache_folder)
  cuda_path=$folder/$cuda_name
  if cuda_is_right "$cuda_path"; then
    note "$cuda_path"
    return
  fi
  begin_download "$folder" "$cuda_need_mib"
  if ! cuda_is_right "$cuda_path"; then download_cuda "$folder"; fi
  end_download
  note "$cuda_path"
}

# download_cuda FOLDER: within begin_download and end_download. A rename gives the toolkit its name at last.
download_cuda() {
  local folder=$1 log=$log_folder/cuda.log
  note "downloading the CUDA toolkit (105 MB) from the package index"
  pip_download "$log" --require-hashes -r "$root/launch/cuda.txt" ||
    fail_download "$log" "$folder" "the CUDA toolkit" "install CUDA 12.8 or later, with nvcc in PATH"
  python3 - "$temporary_folder" "$cuda_name" >"$log" 2>&1 <<'PYTHON' || fail "unpacking the wheels: $(why_in "$log")" \
    "free some space on the file system of $folder if that is what is wrong; then run again" "$log"
import os, pathlib, re, shutil, sys, zipfile
folder, inside = pathlib.Path(sys.argv[1]), re.compile(r"nvidia/cu\d+/([^.].*[^/])$")
target = folder / sys.argv[2]
try:
    for path in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(path) as wheel:
            for member in wheel.infolist():
                match = inside.match(member.filename)
                if not match or ".." in member.filename:
                    continue
                file = target / match[1]
                file.parent.mkdir(parents=True, exist_ok=True)
                with wheel.open(member) as source, open(file, "wb") as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)
                programs = file.parent.name == "bin" and "." not in file.name
                file.chmod(0o755 if programs else 0o644)
        path.unlink()
    if not (target / "bin" / "nvcc").is_file() or not (target / "include" / "cuda_runtime.h").is_file():
        sys.exit("error: the wheels hold no nvcc or no cuda_runtime.h")
    # What a linker asks for: names without a version, and a folder lib64.
    for library in sorted((target / "lib").glob("lib*.so.*")):
        link = library.with_name(library.name.split(".so.")[0] + ".so")
        if not link.exists():
            link.symlink_to(library.name)
    (target / "lib64").symlink_to("lib")
except (OSError, zipfile.BadZipFile) as error:
    sys.exit(f"error: {error}")
PYTHON
  cp -- "$root/launch/cuda.txt" "$temporary_folder/$cuda_name/"
  rm -rf -- "${folder:?}/$cuda_name"  # one of other versions, or damaged
  mv -- "$temporary_folder/$cuda_name" "$folder/$cuda_name"
}
