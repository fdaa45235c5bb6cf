#!/usr/bin/env bash
# launch/fetch_cuda with fake compilers and a fake pip: which installed toolkit it takes, what it fetches, and that nothing
# half-unpacked is left.
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
# pip_gives FILE…: from now on `python3 -m pip download` leaves one wheel with these files of the toolkit.
pip_gives() {
  local words
  words=$(printf ' "%s"' "$@")
  pip_runs "
[[ \"\$*\" == *\"--require-hashes -r $copy/launch/cuda.txt\"* ]] || exit 9
while [[ \$1 != --dest ]]; do shift; done
\"$real_python\" -c '
import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + \"/nvidia_cuda-13-none-any.whl\", \"w\") as wheel:
    for name in sys.argv[2:]:
        wheel.writestr(\"nvidia/cu13/\" + name, \"content of \" + name)
    wheel.writestr(\"nvidia_cuda-13.dist-info/METADATA\", \"\")' \"\$2\" $words"
}
expect_clean_cache() {
  local left
  left=$(find "$SHARDSCOPE_CACHE" -mindepth 1 ! -name .lock)
  [[ -z $left ]] || wrong "left in the cache: $left"
}
expect_folder() { [[ $(<"$work/stdout") == "$1" ]] || wrong "standard output is not $1 but $(<"$work/stdout")"; }
whole=(bin/nvcc bin/nvcc.profile nvvm/bin/cicc include/cuda_runtime.h lib/libcudart.so.13 lib/libcudart_static.a)

begin "fetch_cuda: an installed toolkit is used, wherever its nvcc says it lives"
pip_gives "${whole[@]}"
nvcc_at "$fakes/nvcc" "$work/a toolkit" 12.8
touch "$work/a toolkit/include/cuda_runtime.h"
capture "$copy/launch/fetch_cuda"
expect_status 0
expect_folder "$work/a toolkit"
expect_no_calls python3
[[ ! -e $SHARDSCOPE_CACHE ]] || wrong "the cache was written to"

begin "fetch_cuda: one that is too old and one without headers are passed over"
nvcc_at "$fakes/nvcc" "$work/a toolkit" 12.6
nvcc_at "$work/usual/bin/nvcc" "$work/usual" 13.1
capture "$copy/launch/fetch_cuda"
expect_status 0
expect_folder "$toolkit"

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
expect_folder "$toolkit"
expect_no_calls python3

begin "fetch_cuda: the usual folder is used when it is new enough and whole"
touch "$work/usual/include/cuda_runtime.h"
capture "$copy/launch/fetch_cuda"
expect_status 0
expect_folder "$work/usual"
rm -r "$work/usual" "$fakes/nvcc"

begin "fetch_cuda: other versions in cuda.txt replace what was fetched before"
echo '# newer' >>"$copy/launch/cuda.txt"
pip_gives "${whole[@]}" include/new.h
capture "$copy/launch/fetch_cuda"
expect_status 0
[[ -f $toolkit/include/new.h ]] || wrong "the old toolkit is still there"
rm -r "$toolkit"

begin "fetch_cuda: wheels without a compiler are refused, and nothing is kept"
pip_gives include/cuda_runtime.h
capture "$copy/launch/fetch_cuda"
expect_status 1
expect_last_line 'fetch_cuda: step "fetching the CUDA toolkit" failed: unpacking the wheels: error: the wheels hold no nvcc'
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
pinned = [l for l in lines if re.fullmatch(r"[a-z-]+==[0-9.]+( +--hash=sha256:[0-9a-f]{64}){2}", l)]
print(len(lines), len(pinned))
PYTHON
)
[[ $lines == "5 5" ]] || wrong "lines and pinned lines: $lines"

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
