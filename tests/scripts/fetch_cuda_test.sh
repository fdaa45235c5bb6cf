#!/usr/bin/env bash
# launch/fetch_cuda with fake compilers and a fake pip: which installed toolkit it takes, what it fetches of toolkit and
# libraries, and that nothing half-unpacked is left.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=support.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/support.sh"

real_python=$(command -v python3)
toolkit="$SHARDSCOPE_CACHE/cuda-13.0.2"
hide_toolkits

# nvcc_at FILE FOLDER RELEASE: a compiler that says this release, and that it lives in that folder.
nvcc_at() {
  mkdir -p "$(dirname "$1")" "$2/include"
  printf '#!/usr/bin/env bash\n[[ $1 != --version ]] || exec echo "Cuda compilation tools, release %s, V1"\necho "#$ TOP=%s" >&2\n' \
    "$3" "$2" >"$1"
  chmod +x "$1"
}
# pip_runs BODY: from now on `python3 -m pip` runs BODY.
pip_runs() {
  fake python3 <<EOF
if [[ "\$1 \$2" != "-m pip" ]]; then exec "$real_python" "\$@"; fi
$1
EOF
}
# pip_gives FILE…: from now on `python3 -m pip download` leaves one wheel with these files of the toolkit, and for each library
# that is asked for a wheel as the real one is laid out.
pip_gives() {
  local words
  words=$(printf ' "%s"' "$@")
  pip_runs "
[[ \"\$*\" == *\"--require-hashes -r $SHARDSCOPE_CACHE/.download-\"* ]] || exit 9
for word in \"\$@\"; do
  [[ \${before:-} != --dest ]] || folder=\$word
  [[ \${before:-} != -r ]] || cat \"\$word\" >>\"$work/requirements\"
  before=\$word
done
\"$real_python\" - \"\$folder\" $words <<'PYTHON'
import pathlib, sys, zipfile
libraries = {
    'nvidia-cublas': ['cu13/include/cublasLt.h', 'cu13/include/cublas_api.h', 'cu13/lib/libcublas.so.13',
                      'cu13/lib/libcublasLt.so.13', 'cu13/lib/libnvblas.so.13'],
    'nvidia-nccl-cu13': ['nccl/include/nccl.h', 'nccl/include/nccl_device/core.h', 'nccl/lib/libnccl.so.2'],
    'nvidia-nvml-dev': ['cu13/include/nvml.h'],
}
folder = pathlib.Path(sys.argv[1])
asked = [line.split('==')[0] for line in (folder / 'requirements.txt').read_text().splitlines() if '==' in line]
files = ['cu13/' + name for name in sys.argv[2:]] if 'nvidia-cuda-nvcc' in asked else libraries[asked[0]]
with zipfile.ZipFile(folder / 'nvidia_cuda-13-none-any.whl', 'w') as wheel:
    for name in files:
        wheel.writestr('nvidia/' + name, 'content of ' + name.partition('/')[2])
    wheel.writestr('nvidia_cuda-13.dist-info/METADATA', '')
PYTHON"
}
# libraries_in FOLDER [cublas] [nccl] [nvml]: it has these libraries.
libraries_in() {
  mkdir -p "$1/include" "$1/lib64"
  [[ " $* " != *" cublas "* ]] || touch "$1/include/cublasLt.h" "$1/lib64/libcublasLt.so"
  [[ " $* " != *" nccl "* ]] || touch "$1/include/nccl.h" "$1/lib64/libnccl.so"
  [[ " $* " != *" nvml "* ]] || touch "$1/include/nvml.h"
}
# A case begins with nothing asked of pip.
begin() {
  case_name=$1
  forget_calls
  rm -f -- "$work/requirements"
  printf "%s\n" "$1"
}
expect_clean_cache() {
  local left
  left=$(find "$SHARDSCOPE_CACHE" -mindepth 1 ! -name .lock)
  [[ -z $left ]] || wrong "left in the cache: $left"
}
expect_folder() {
  local IFS=$'\n'
  [[ $(<"$work/stdout") == "$*" ]] || wrong "standard output is not $* but $(<"$work/stdout")"
}
# expect_asked PACKAGE…: of all wheels, pip was asked for these since the case began.
expect_asked() {
  local asked
  asked=$(sed -n 's/==.*//p' "$work/requirements" 2>/dev/null | tr '\n' ' ')
  [[ $asked == "$*${1:+ }" ]] || wrong "pip was asked for: $asked"
}
cublas="$SHARDSCOPE_CACHE/nvidia-cublas-13.1.0.3" nccl="$SHARDSCOPE_CACHE/nvidia-nccl-cu13-2.28.9"
nvml="$SHARDSCOPE_CACHE/nvidia-nvml-dev-13.0.87"
compiler=(nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime nvidia-cuda-cccl)
whole=(bin/nvcc bin/nvcc.profile nvvm/bin/cicc include/cuda_runtime.h lib/libcudart.so.13 lib/libcudart_static.a)

begin "fetch_cuda: an installed toolkit is used, wherever its nvcc says it lives"
pip_gives "${whole[@]}"
nvcc_at "$fakes/nvcc" "$work/a toolkit" 12.8
touch "$work/a toolkit/include/cuda_runtime.h"
libraries_in "$work/a toolkit" cublas nccl nvml
capture "$copy/launch/fetch_cuda"
expect_status 0
expect_folder "$work/a toolkit"
expect_no_calls python3
[[ ! -e $SHARDSCOPE_CACHE ]] || wrong "the cache was written to"

begin "fetch_cuda: an installed toolkit that lacks libraries is used, and only these are fetched, beside it"
rm "$work/a toolkit/include/nvml.h" "$work/a toolkit/lib64/libnccl.so"
capture "$copy/launch/fetch_cuda"
expect_status 0
expect_folder "$work/a toolkit" "$nccl" "$nvml"
expect_asked nvidia-nccl-cu13 nvidia-nvml-dev
[[ ! -e $toolkit && ! -e $cublas ]] || wrong "more was fetched than is missing"

begin "fetch_cuda: of the libraries there is what we use: headers, and the library under its plain name"
[[ $(<"$nccl/include/nccl_device/core.h") == "content of include/nccl_device/core.h" ]] || wrong "content"
[[ $(readlink "$nccl/lib/libnccl.so") == libnccl.so.2 && -f $nccl/lib64/libnccl.so.2 ]] || wrong "links"
[[ -z $(find -L "$nvml" "$nccl" -type l) ]] || wrong "links that lead nowhere"

begin "fetch_cuda: fetched libraries need no pip and no writing"
pip_runs 'exit 1'
fake df <<<'printf " Avail\n0\n"'
chmod -R a-w "$SHARDSCOPE_CACHE"  # which says nothing to root: hence the full disk too
capture "$copy/launch/fetch_cuda"
chmod -R u+w "$SHARDSCOPE_CACHE"
rm "$fakes/df"
expect_status 0
expect_folder "$work/a toolkit" "$nccl" "$nvml"
expect_no_calls python3

begin "fetch_cuda: a library that is damaged is fetched again, the others are not"
pip_gives "${whole[@]}"
rm "$nccl/lib/libnccl.so.2"
capture "$copy/launch/fetch_cuda"
expect_status 0
expect_asked nvidia-nccl-cu13
[[ -f $nccl/lib/libnccl.so ]] || wrong "it is still damaged"

begin "fetch_cuda: the libraries of a toolkit whose folders are named by processor are found"
mkdir -p "$work/a toolkit/targets/$(uname -m)-linux/lib"
mv "$work/a toolkit/include" "$work/a toolkit/targets/$(uname -m)-linux/"
touch "$work/a toolkit/targets/$(uname -m)-linux/lib/libnccl.so" "$work/a toolkit/targets/$(uname -m)-linux/include/nvml.h"
capture "$copy/launch/fetch_cuda"
expect_status 0
expect_folder "$work/a toolkit"
expect_no_calls python3
mv "$work/a toolkit/targets/$(uname -m)-linux/include" "$work/a toolkit/"
rm -r "$work/a toolkit/targets" "$nccl" "$nvml"

begin "fetch_cuda: a library's wheel without its header or without the library is refused, and nothing is kept"
rm "$work/a toolkit/include/nvml.h"
sed -i.saved -e "s|'nccl/include/nccl.h', ||" "$fakes/python3"
capture "$copy/launch/fetch_cuda"
expect_status 1
expect_last_line 'fetch_cuda: step "fetching the CUDA toolkit" failed: unpacking the wheels: error: the wheels hold no include/nccl.h'
expect_clean_cache
sed -e "s|, 'nccl/lib/libnccl.so.2'||" "$fakes/python3.saved" >"$fakes/python3"
capture "$copy/launch/fetch_cuda"
expect_status 1
expect "the wheels hold no lib/libnccl.so*"
expect_clean_cache

begin "fetch_cuda: without a network it says which library is missing"
pip_runs 'echo "WARNING: Retrying (Retry(total=2)) after connection broken by NewConnectionError"; exit 1'
capture "$copy/launch/fetch_cuda"
expect_status 1
expect "failed: the package index could not be reached, and nvidia-nccl-cu13 is not in the cache"
expect "or install a CUDA toolkit that has nccl.h"
expect_clean_cache

begin "fetch_cuda: interrupted while a library is fetched, it leaves nothing, and what came before it is kept"
pip_gives "${whole[@]}"
rm "$work/a toolkit/lib64/libcublasLt.so"
sed -i -e '2a [[ "$*" != *pip* || ! -e "'"$cublas"'" ]] || { kill -INT "$(<"'"$work"'/pid")"; sleep 5; }' "$fakes/python3"
status=0
bash -c 'trap - INT; echo $$ >"$1/pid"; exec "$2/launch/fetch_cuda"' _ "$work" "$copy" >"$work/stdout" 2>"$work/stderr" || status=$?
output=$(cat "$work/stderr")
((status != 0)) || wrong "it went on"
[[ -f $cublas/lib/libcublasLt.so && ! -e $cublas/lib/libcublas.so.13 && ! -e $nccl ]] || wrong "cuBLASLt is not what is there"
[[ -z $(find "$SHARDSCOPE_CACHE" -name '.download-*') ]] || wrong "half a download is left"
rm -r "$cublas"
pip_gives "${whole[@]}"

begin "fetch_cuda: one that is too old and one without headers are passed over"
nvcc_at "$fakes/nvcc" "$work/a toolkit" 12.6
nvcc_at "$work/usual/bin/nvcc" "$work/usual" 13.1
capture "$copy/launch/fetch_cuda"
expect_status 0
expect_folder "$toolkit" "$cublas" "$nccl" "$nvml"
expect_asked "${compiler[@]}" nvidia-cublas nvidia-nccl-cu13 nvidia-nvml-dev
[[ $(ls "$cublas/lib") == $'libcublasLt.so\nlibcublasLt.so.13' ]] || wrong "libraries of cuBLAS: $(ls "$cublas/lib")"

begin "fetch_cuda: what was fetched is whole: programs run, libraries have plain names"
[[ -x $toolkit/bin/nvcc && -x $toolkit/nvvm/bin/cicc && ! -x $toolkit/bin/nvcc.profile ]] || wrong "executable bits"
[[ $(readlink "$toolkit/lib/libcudart.so") == libcudart.so.13 && -f $toolkit/lib64/libcudart_static.a ]] || wrong "links"
[[ $(<"$toolkit/include/cuda_runtime.h") == "content of include/cuda_runtime.h" ]] || wrong "content"
[[ -z $(find "$SHARDSCOPE_CACHE" -name 'METADATA' -o -name '*.whl' -o -name '.download-*') ]] || wrong "something is left"

begin "fetch_cuda: a fetched toolkit needs no pip and no writing"
pip_runs 'exit 1'
chmod 555 "$SHARDSCOPE_CACHE"
capture "$copy/launch/fetch_cuda"
chmod 755 "$SHARDSCOPE_CACHE"
expect_status 0
expect_folder "$toolkit" "$cublas" "$nccl" "$nvml"
expect_no_calls python3

begin "fetch_cuda: the usual folder is used when it is new enough and whole"
touch "$work/usual/include/cuda_runtime.h"
libraries_in "$work/usual" cublas
capture "$copy/launch/fetch_cuda"
expect_status 0
expect_folder "$work/usual" "$nccl" "$nvml"
rm -r "$work/usual" "$fakes/nvcc"

begin "fetch_cuda: other versions in cuda.txt replace what was fetched before"
echo '# newer' >>"$copy/launch/cuda.txt"
pip_gives "${whole[@]}" include/new.h
capture "$copy/launch/fetch_cuda"
expect_status 0
[[ -f $toolkit/include/new.h ]] || wrong "the old toolkit is still there"
expect_asked "${compiler[@]}"
rm -r "$toolkit" "$cublas" "$nccl" "$nvml"

begin "fetch_cuda: wheels without a compiler are refused, and nothing is kept"
pip_gives include/cuda_runtime.h
capture "$copy/launch/fetch_cuda"
expect_status 1
expect_last_line 'fetch_cuda: step "fetching the CUDA toolkit" failed: unpacking the wheels: error: the wheels hold no bin/nvcc'
expect_clean_cache

begin "fetch_cuda: a wheel with another hash is refused by pip, and the refusal is told"
pip_runs 'echo "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE."; exit 1'
capture "$copy/launch/fetch_cuda"
expect_status 1
expect "failed: pip download: ERROR: THESE PACKAGES DO NOT MATCH THE HASHES"
expect_clean_cache

begin "fetch_cuda: every line of cuda.txt pins a version, with hashes for two kinds of processor"
lines=$("$real_python" - "$project/launch/cuda.txt" <<'PYTHON'
import re, sys
lines = [l for l in open(sys.argv[1]).read().replace("\\\n", " ").splitlines() if l and not l.startswith("#")]
pinned = [l for l in lines if re.fullmatch(r"[a-z0-9-]+==[0-9.]+( +--hash=sha256:[0-9a-f]{64}){2}", l)]
print(len(lines), len(pinned))
PYTHON
)
[[ $lines == "8 8" ]] || wrong "lines and pinned lines: $lines"

begin "fetch_cuda: without a network it says so"
pip_runs 'echo "WARNING: Retrying (Retry(total=2)) after connection broken by NewConnectionError"; exit 1'
capture "$copy/launch/fetch_cuda"
expect_status 1
expect "failed: the package index could not be reached, and the CUDA toolkit is not in the cache"
expect "or install CUDA 12.8 or later, with nvcc in PATH"
expect_clean_cache

begin "fetch_cuda: too little free space is seen before the download"
fake df <<<'printf " Avail\n100\n"'
capture "$copy/launch/fetch_cuda"
expect_status 1
expect "600 MiB are needed in $SHARDSCOPE_CACHE, and 0 MiB are free"
expect_no_calls python3
rm "$fakes/df"

begin "fetch_cuda: an unknown argument is wrong usage"
capture "$copy/launch/fetch_cuda" --force
expect_status 2
expect "unknown argument --force"
echo "all good"
