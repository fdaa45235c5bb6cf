#!/usr/bin/env bash
# What the scripts make of GPUs: the driver's answer, and launch/quickstart on machines with and without. With fakes for
# nvidia-smi, cmake, mpirun and shardscope.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=support.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/support.sh"
unset CUDA_VISIBLE_DEVICES

# ---- the driver -----------------------------------------------------------------------------------------------------

# gpus_are LINE…: from now on nvidia-smi lists these: name, compute capability, MIG mode.
gpus_are() {
  local line number=0 body="" name capability mig
  for line in "$@"; do
    IFS=: read -r name capability mig <<<"$line"
    body+="echo \"$number, $name, $capability, $mig, GPU-0000000$number-aaaa-bbbb-cccc-dddddddddddd\"
"
    number=$((number + 1))
  done
  fake nvidia-smi <<<"$body"
}
# driver_says [VARIABLE=VALUE]…: what driver_answers makes of it, in one line.
cat >"$work/probe" <<EOF
set -euo pipefail
source "$copy/launch/lib.sh"
source "$copy/launch/lib_cuda.sh"
driver_seconds=\${PROBE_SECONDS:-10}
if driver_answers; then
  printf '%s gpus of %s, %s' "\$gpu_count" "\$gpu_words" "\$gpu_architectures"
  printf '; %s' "\${gpu_notes[@]}"
else
  printf 'none: %s' "\$gpu_why"
fi
EOF
driver_says() {
  capture env "$@" bash "$work/probe"
  expect_status 0
}
expect_answer() { [[ $output == "$1"* ]] || wrong "not \"$1\""; }
hopper="NVIDIA H100 80GB HBM3:9.0:Disabled" ampere="NVIDIA A100-SXM4-40GB:8.0:Disabled" volta="Tesla V100-SXM2-32GB:7.0:[N/A]"

begin "driver: GPUs of one kind, of two kinds, and of a kind without MIG"
gpus_are "$hopper" "$hopper" "$hopper"
driver_says
expect_answer "3 gpus of 3 x NVIDIA H100 80GB HBM3, 90-real"
gpus_are "NVIDIA B200:10.0:Disabled" "$ampere"
driver_says
expect_answer "2 gpus of "
expect ", 80-real;100-real"
expect "1 x NVIDIA A100-SXM4-40GB"
gpus_are "NVIDIA GeForce RTX 4090:8.9:[N/A]"
driver_says
expect_answer "1 gpus of 1 x NVIDIA GeForce RTX 4090, 89-real"

begin "driver: GPUs that are too old are refused by name, the others are used"
gpus_are "$volta" "$volta"
driver_says
expect_answer "none: Tesla V100-SXM2-32GB (compute capability 7.0) is too old: 8.0 (A100) or later is needed"
gpus_are "$volta" "$ampere"
driver_says
expect_answer "1 gpus of 1 x NVIDIA A100-SXM4-40GB, 80-real; Tesla V100-SXM2-32GB (compute capability 7.0) is too old"

begin "driver: CUDA_VISIBLE_DEVICES counts as CUDA counts it"
gpus_are "$hopper" "$hopper" "$hopper" "$hopper"
for wanted in "0,1:2" "3:1" "0, 2:2" "0,9,1:1" "GPU-00000002:1" "GPU-00000001-aaaa-bbbb-cccc-dddddddddddd,0:2" "0,1,2,3:4" "2,-1,3:1"; do
  driver_says "CUDA_VISIBLE_DEVICES=${wanted%:*}"
  expect_answer "${wanted##*:} gpus of"
done
for wanted in "" -1 none GPU-9 NoDevFiles; do
  driver_says "CUDA_VISIBLE_DEVICES=$wanted"
  expect_answer "none: CUDA_VISIBLE_DEVICES=$wanted leaves no GPU that can be used"
done

begin "driver: of MIG instances a process can use one, and none beside whole GPUs"
gpus_are "NVIDIA H100 80GB HBM3:9.0:Enabled" "NVIDIA H100 80GB HBM3:9.0:Enabled"
driver_says
expect_answer "1 gpus of 2 x NVIDIA H100 80GB HBM3, 90-real; MIG is on"
driver_says CUDA_VISIBLE_DEVICES=MIG-11111111-2222-3333-4444-555555555555,MIG-2
expect_answer "1 gpus of "
gpus_are "$hopper" "NVIDIA H100 80GB HBM3:9.0:Enabled" "$hopper"
driver_says
expect_answer "2 gpus of "

begin "driver: one that does not answer, answers with an error, or hangs, and what it says"
fake nvidia-smi <<'EOF'
echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that it is installed."
exit 9
EOF
driver_says
expect_answer "none: nvidia-smi: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
fake nvidia-smi <<<'echo "No devices were found"'
driver_says
expect_answer "none: nvidia-smi: No devices were found"
fake nvidia-smi <<<'echo "Field \"compute_cap\" is not a valid field to query."; exit 2'
driver_says
expect 'none: nvidia-smi: Field "compute_cap" is not a valid field to query.'
fake nvidia-smi <<<'exit 12'
driver_says
expect_answer "none: nvidia-smi: it ended with status 12"
fake nvidia-smi <<<'exec sleep 30'
SECONDS=0
driver_says PROBE_SECONDS=1
expect_answer "none: nvidia-smi gave no answer within 1 s"
((SECONDS < 20)) || wrong "that took $SECONDS s"

# ---- launch/quickstart ----------------------------------------------------------------------------------------------

mkdir -p "$SHARDSCOPE_CACHE"
model="$SHARDSCOPE_CACHE/SmolLM2-135M-Instruct.Q4_1.gguf"
printf 'tiny' >"$model"
sed -i -e "s/^model_bytes=.*/model_bytes=4/" \
  -e "s/^model_sha256=.*/model_sha256=$(sha256sum "$model" | cut -c1-64)/" "$copy/launch/lib.sh"
fake dpkg-query <<<'shift 2; printf "installed %s\n" "$@"'
fake mpirun <<<'while [[ $1 != */launch/shardscope ]]; do shift; done; exec "$@"'
hide_toolkits
cache_toolkit

# program_makes BODY [CUDA-BODY]: from now on a build leaves a shardscope that runs BODY before it works; that of the preset
# cuda also CUDA-BODY.
program_makes() {
  local works='
if [[ $1 == generate ]]; then printf " Paris."; exit; fi
while [[ $1 != --json ]]; do shift; done
echo "{\"complete\": true}" >"$2"
echo "THE TABLE"'
  printf '#!/usr/bin/env bash\n%s\n%s\n' "$1" "$works" >"$work/program"
  printf '#!/usr/bin/env bash\nprintf "%%s\\n" "$*" >>"%s/gpu-program.calls"\n%s\n%s\n%s\n' "$work" "$1" "${2:-}" "$works" \
    >"$work/program-cuda"
  fake cmake <<EOF
[[ \$1 == --build ]] || exit 0
place="$copy/build" program="$work/program"
[[ \$3 != cuda ]] || { place="$copy/build-cuda"; program="$work/program-cuda"; }
mkdir -p "\$place/launch"
cp "\$program" "\$place/launch/shardscope"
chmod +x "\$place/launch/shardscope"
EOF
}
program_makes ""
gpus_are "$hopper" "$hopper" "$hopper" "$hopper" "$hopper" "$hopper" "$hopper" "$hopper"

begin "quickstart: with GPUs the backend is built for these alone, and each has a rank"
capture "$copy/launch/quickstart"
expect_status 0
[[ $(<"$work/stdout") == $'The capital of France is Paris.\nTHE TABLE' ]] || wrong "standard output: $(<"$work/stdout")"
expect "building the CUDA backend (for 8 x NVIDIA H100 80GB HBM3: 90-real)"
expect_not "are downloaded first"
expect_calls cmake "--preset cuda -DSHARDSCOPE_CUDA_TOOLKIT=$toolkit -DSHARDSCOPE_CUDA_PACKAGES=$nvml -DCMAKE_CUDA_ARCHITECTURES=90-real"
expect_calls cmake "--build --preset cuda"
expect_calls gpu-program "generate --model $model --backend cuda --prompt"
expect_calls mpirun "-np 8 build-cuda/launch/shardscope scale --model $model --backend cuda --tp 1,2,4,8 --json build/quickstart-report.json"
expect "build-cuda/launch/shardscope generate --model"

begin "quickstart: --ranks, CUDA_VISIBLE_DEVICES, and more ranks than GPUs"
capture "$copy/launch/quickstart" --ranks 3
expect_status 0
expect_calls mpirun "-np 3 build-cuda/launch/shardscope scale --model $model --backend cuda --tp 1,2,3"
forget_calls
capture env CUDA_VISIBLE_DEVICES=4,5 "$copy/launch/quickstart"
expect_status 0
expect_calls mpirun "-np 2 build-cuda/launch/shardscope"
forget_calls
capture env CUDA_VISIBLE_DEVICES= "$copy/launch/quickstart"
expect_status 0
expect "no GPU is used: CUDA_VISIBLE_DEVICES= leaves no GPU"
expect_calls mpirun "-np 2 build/launch/shardscope scale --model $model --tp 1,2"
forget_calls
capture "$copy/launch/quickstart" --ranks 9
expect_status 0
expect "no GPU is used: --ranks 9, and 8 can be used"
expect_calls mpirun "-np 9 build/launch/shardscope scale --model $model --tp 1,2,4,8,9"
[[ $(calls cmake) != *"--preset cuda"* ]] || wrong "the backend was built all the same"

begin "quickstart: a program that fails on a GPU is told, and CPU ranks do it"
program_makes "" '[[ "$*" != "generate "*"--backend cuda"* ]] || { echo "shardscope: error: a kernel failed" >&2; exit 1; }'
capture "$copy/launch/quickstart"
expect_status 0
expect "shardscope generate on a GPU failed: shardscope: error: a kernel failed; going on with CPU ranks"
[[ $(<"$work/stdout") == *$'\nThe capital of France is Paris.\nTHE TABLE' ]] || wrong "standard output: $(<"$work/stdout")"
expect_calls mpirun "-np 2 build/launch/shardscope scale --model $model --tp 1,2"
program_makes "" '[[ "$*" != "scale "*"--backend cuda"* ]] || { echo "shardscope: error: NCCL" >&2; exit 1; }'
capture "$copy/launch/quickstart"
expect_status 0
expect "shardscope scale on a GPU failed: shardscope: error: NCCL; going on with CPU ranks"
expect_calls mpirun "-np 8 build-cuda/launch/shardscope scale"
expect_calls mpirun "-np 2 build/launch/shardscope scale --model $model --tp 1,2"

begin "quickstart: what fails on the CPU, too, fails"
program_makes '[[ $1 == generate ]] || { echo "shardscope: error: no memory" >&2; exit 1; }'
capture "$copy/launch/quickstart"
expect_status 1
expect_last_line 'quickstart: step "measuring tensor parallelism" failed: shardscope scale: shardscope: error: no memory'
program_makes ""

begin "quickstart: a backend that cannot be built is told, and CPU ranks do it"
fake cmake <<EOF
if [[ "\$*" == *"--preset cuda"* ]]; then echo "kernel.cu(3): error: no such thing"; exit 1; fi
[[ \$1 == --build ]] || exit 0
mkdir -p "$copy/build/launch"
cp "$work/program" "$copy/build/launch/shardscope"
chmod +x "$copy/build/launch/shardscope"
EOF
capture "$copy/launch/quickstart"
expect_status 0
expect 'step "building the CUDA backend" failed: cmake --preset cuda: kernel.cu(3): error: no such thing'
expect "no GPU is used: its backend was not built, see above; going on with CPU ranks"
expect_calls mpirun "-np 2 build/launch/shardscope scale --model $model --tp 1,2"

begin "quickstart: what must be downloaded for GPUs is said first, and without a network CPU ranks do it"
mv "$toolkit" "$work/toolkit"
real_python=$(PATH=${PATH#*:} command -v python3)
fake python3 <<EOF
[[ "\$1 \$2" == "-m pip" ]] || exec "$real_python" "\$@"
echo "WARNING: Retrying (Retry(total=2)) after connection broken by NewConnectionError"
exit 1
EOF
fake df <<<'printf " Avail\n99999999\n"'
capture "$copy/launch/quickstart"
rm "$fakes/python3" "$fakes/df"
mv "$work/toolkit" "$toolkit"
expect_status 0
expect "724 MB are downloaded first, the first time only; up to 2500 MiB of disk meanwhile"
expect "the package index could not be reached, and the CUDA toolkit is not in the cache"
expect "no GPU is used: its backend was not built"
expect_calls mpirun "-np 2 build/launch/shardscope"
[[ -z $(find "$SHARDSCOPE_CACHE" -name '.download-*') ]] || wrong "half a download is left"
echo "all good"
