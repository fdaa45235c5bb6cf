#!/usr/bin/env bash
# tests/gpu/check.sh with fakes for the driver, the programs and the tools: what it finds, what it makes of their answers, and its
# report; and the readers of documents behind it, against Python's.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=support.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/support.sh"
# shellcheck source-path=SCRIPTDIR source=gpu_support.sh
source "$project/tests/scripts/gpu_support.sh"

# ---- reading documents ----------------------------------------------------------------------------------------------

begin "json_lines: the same as Python reads, however it is laid out"
cat >"$work/document.json" <<'EOF'
{"schema": "x/1", "empty": [], "none": {}, "words": {"a \"quoted\" one, {": "b\\", "dots.in": "é"},
 "numbers": [0, -1, 2.5e-07, 1E+3], "flags": [true, false, null], "deep": [[1, [2, {"x": [3, {"y": 4}]}]], 5], "last": 6}
EOF
for indent in None 1 4; do
  python3 - "$work/document.json" "$indent" >"$work/expected" 3>"$work/laid-out.json" <<'EOF'
import json, os, sys
document = json.load(open(sys.argv[1]), parse_float=str, parse_int=str)
def walk(path, value):
    if isinstance(value, dict):
        for key, inner in value.items():
            walk(path + [json.dumps(key, ensure_ascii=False)[1:-1]], inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            walk(path + [str(index)], inner)
    else:
        text = {True: "true", False: "false", None: "null"}[value] if value in (True, False, None) else value
        print(".".join(path), json.dumps(text, ensure_ascii=False)[1:-1])
walk([], document)
indent = None if sys.argv[2] == "None" else int(sys.argv[2])
os.write(3, json.dumps(json.load(open(sys.argv[1])), indent=indent, ensure_ascii=False).encode())
EOF
  awk -f "$scripts/json_lines.awk" "$work/document.json" >"$work/lines"
  cmp "$work/expected" "$work/lines" || wrong "$(diff "$work/expected" "$work/lines")"
  awk -f "$scripts/json_lines.awk" "$work/laid-out.json" | cut -d ' ' -f 1 >"$work/paths"
  cmp <(cut -d ' ' -f 1 "$work/expected") "$work/paths" || wrong "laid out with $indent: $(<"$work/paths")"
done

# compared CHANGE [STEPS] [EPSILON]: what the comparison says of a changed document. In fp32 1.2e-7 x 4 x 352 x 2 = 3.4e-4 is allowed.
compared() {
  logits "$work/tested" "$1"
  capture awk -v "epsilon=${3:-1.1920929e-07}" -v "steps=${2:-worst}" -f "$scripts/compare_logits.awk" "$work/tested" "$work/reference"
}

begin "compare_logits: the same, and what is near enough"
compared ""
expect_status 0
expect "24 logits, largest difference 0 of 0.000336 allowed"
compared "requests[1]['top_logits'][2][0][1] += 3e-4"
expect_status 0
expect "24 logits, largest difference 0.0003 of"
compared "requests[0]['top_logits'][1][3] = [99, -0.5001]"
expect_status 0
compared "requests[0]['top_logits'][0][2][1] += 0.05" likely 0.00390625
expect_status 0
expect "of 0.0884 allowed"

begin "compare_logits: tokens that part where two are as likely end the comparison, and no other"
compared "requests[0]['output_token_ids'][1] = 20; requests[0]['top_logits'][2] = [[7, 9.0]]"
expect_status 0
compared "requests[0]['output_token_ids'][1] = 21"
expect_status 1
compared "requests[0]['output_token_ids'][1] = 99"
expect_status 1

begin "compare_logits: planted errors, NaN and infinity, and what lacks"
for change in "requests[1]['top_logits'][2][0][1] += 4e-4" "requests[0]['top_logits'][1][3][1] -= 0.01" \
  "requests[0]['top_logits'][0][0][1] = None" "requests[0]['top_logits'][0][0][1] = float('nan')" \
  "requests[0]['top_logits'][0][0][1] = float('inf')" "requests[0]['top_logits'][1][2] = [99, 1.6]" \
  "requests[0]['top_logits'][1][1] = [99, -0.4]" "requests[0]['output_token_ids'].pop()" "requests[1]['top_logits'].pop()" \
  "requests.pop()" "requests.clear()"; do
  compared "$change"
  expect_status 1
done
compared "requests[0]['top_logits'][0][2][1] += 0.1" likely 0.00390625
expect_status 1

begin "dram_bytes: sums over kernels, and refuses what is no number of bytes"
# sums LINE…
sums() {
  printf '%s\n' "==PROF== Connected" "$csv_header" "$@" "7,8,9" >"$work/csv"
  capture awk -f "$scripts/dram_bytes.awk" "$work/csv"
}
sums '"0","12","a(float, int)","dram__bytes_read.sum","byte","1,234,567,890"' '"1","12","b","other","","5"' \
  '"2","12","c","dram__bytes_read.sum","byte","10"'
expect_status 0
[[ $output == "1234567900 2" ]] || wrong "the sum"
sums '"0","12","a","dram__bytes_read.sum","Mbyte","1.5"'
expect_status 1
sums '"0","12","a","dram__bytes_read.sum","byte","n/a"'
expect_status 1
sums
expect_status 1

# ---- the whole check ------------------------------------------------------------------------------------------------

begin "check: without a GPU it says so and ends with 77, and leaves no report"
fake nvidia-smi <<<'echo "No devices were found"; exit 6'
run_check
expect_status 77
expect_last_line "gpu check: no GPU: nvidia-smi: No devices were found; nothing was checked"
[[ ! -e $report ]] || wrong "a report"

gpus_are 1

begin "check: all steps pass, with the packed program and a library of Python's"
run_check
expect_status 0
expect "gpu check: passed: 18 steps"
reported 'r["passed"] and r["complete"] and all(step["status"] == "passed" for step in r["steps"]) and len(s) == 18'
reported 'r["device"] == {"name": "1 x NVIDIA H200", "driver": "580.00", "architectures": "90-real", "visible": 1}'
reported 'r["commit"] == "abcdef" and r["programs"] == "packed"'
reported 's["bandwidth of llama2-7b, graphs on"]["figures"] == {"mbu": 0.87, "mbu_achievable": 0.95, "tpot_ms": 4.2, "ttft_ms": None}'
reported 's["DRAM bytes of a decode step"]["figures"] == {"bytes_read": 1055, "bytes_modelled": 1050, "ratio": 1.0048, "kernels": 1}'
reported '"All tests passed (10 assertions" in s["the kernels\x27 tests"]["detail"]'
expect_calls shardscope "generate --backend cpu --prompt-ids 7 --prompt-ids 5,6,7"
expect_calls shardscope "--model smollm2-135m --dtype bf16 --seed 1 --graphs off"
expect_calls shardscope "bench --backend cuda --model llama3-8b --dtype bf16 --graphs off --tp 1"
expect_calls compute-sanitizer "--tool racecheck --target-processes all --error-exitcode 86 env LD_LIBRARY_PATH=$packed/lib:$virtual "
expect_calls ncu "--metrics dram__bytes_read.sum"

begin "check: a step that fails stops no other, and the check fails"
kernels_are 'echo "a.cpp:3: FAILED:"; echo "test cases: 9 | 8 passed | 1 failed"; exit 1'
program_is '[[ "$*" != "bench "*llama3-8b*"--graphs on"* ]] || { echo "shardscope: error: out of memory" >&2; exit 1; }'
run_check --json "$work/elsewhere/r.json"
expect_status 1
expect "gpu check: FAILED: 2 of 18 steps"
report="$work/elsewhere/r.json"
reported 'not r["passed"] and r["complete"] and [step["name"] for step in r["steps"] if step["status"] == "failed"] == ["the kernels\x27 tests", "bandwidth of llama3-8b, graphs on"]'
reported '"1 failed" in s["the kernels\x27 tests"]["detail"] and "out of memory" in s["bandwidth of llama3-8b, graphs on"]["detail"]'
report="$copy/build-gpu/report.json"

begin "check: kernels that test nothing or see no GPU, a bandwidth that cannot be, and wrong logits are failures"
kernels_are 'echo "skipped: no CUDA device"; exit 4'
program_is '
if [[ $* == *"--backend cuda"*"--graphs off --"* || $* == *"--backend cuda"*"--graphs off" ]] && [[ $1 == generate && $* == *tiny* ]]; then
  while [[ $1 != --json ]]; do shift; done
  exec sed "s/3.9999/3.8/" "'"$work/reference.json"'" >"$2"
elif [[ $1 == bench ]]; then
  while [[ $1 != --json ]]; do shift; done
  mbu=1.2 tpot=4.2
  [[ $words != *llama2* ]] || mbu=null
  [[ $words != *"llama3-8b"*"--graphs off"* ]] || mbu=0.8 tpot=null
  exec echo "{\"results\": [{\"mbu\": {\"mean\": $mbu}, \"tpot_ms\": {\"p50\": $tpot}}]}" >"$2"
fi'
run_check
expect_status 1
reported 's["the kernels\x27 tests"]["status"] == "failed" and "no CUDA device" in s["the kernels\x27 tests"]["detail"]'
reported '[step["status"] for step in r["steps"] if "bandwidth" in step["name"]] == ["failed"] * 4'
reported 's["bandwidth of llama3-8b, graphs off"]["detail"].endswith("TPOT null ms")'
reported 's["bandwidth of llama2-7b, graphs on"]["detail"].startswith("MBU null ")'
reported 's["tiny against the CPU, fp32"]["status"] == "failed" and "graphs off" in s["tiny against the CPU, fp32"]["detail"]'
reported 's["smollm2-135m against the CPU, fp32"]["status"] == "passed"'
kernels_are 'exit 0'
program_is ""
run_check
expect_status 1
reported 'not r["passed"] and s["the kernels\x27 tests"]["detail"] == "it ran no test"'
kernels_are 'echo "All tests passed (10 assertions in 2 test cases)"'

begin "check: what cannot be had is said, and is no failure"
fake compute-sanitizer <<<'echo "========= Error: Device not supported. Please refer to the list"; exit 1'
fake ncu <<<'echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access the counters"; exit 1'
run_check
expect_status 0
reported '[step["status"] for step in r["steps"] if "sanitizer" in step["name"]] == ["not_available"] * 3'
reported '"ERR_NVGPUCTRPERM" in s["DRAM bytes of a decode step"]["detail"]'
reported 's["DRAM bytes of a decode step"]["status"] == "not_available" and r["passed"]'

begin "check: what the tools find, and more bytes than modelled, are failures"
fake compute-sanitizer <<<'echo "========= Invalid __global__ read"; echo "========= ERROR SUMMARY: 3 errors"; exit 86'
fake ncu <<EOF
echo '$csv_header'
for ((i = 0; i < \${*: -1}; ++i)); do echo '"1","1","step","dram__bytes_read.sum","byte","1,200"'; done
EOF
run_check
expect_status 1
reported '[step["detail"][:24] for step in r["steps"] if "sanitizer" in step["name"]] == ["ERROR SUMMARY: 3 errors "] * 3'
reported 's["DRAM bytes of a decode step"]["status"] == "failed" and s["DRAM bytes of a decode step"]["figures"]["ratio"] > 1.14'

begin "check: a step that takes too long ends, and what has no time left has failed"
kernels_are 'exec sleep 120'
SECONDS=0
run_check --limit 15
expect_status 1
((SECONDS < 60)) || wrong "that took $SECONDS s"
reported 's["the kernels\x27 tests"]["status"] == "failed" and "it took too long" in s["the kernels\x27 tests"]["detail"]'
reported 's["DRAM bytes of a decode step"]["detail"] == "no time was left: --limit 15"'

begin "check: a library that is nowhere, a program that does not start, and no way to build are told by name"
rm "$virtual/libnccl.so.2"
fake ldd <<<'echo "	libnccl.so.2 => not found"'
touch "$virtual/unrelated.so"
run_check
expect_status 1
reported 'len(r["steps"]) == 1 and r["steps"][0]["detail"].startswith("not found: libnccl.so.2 (looked for in")'
fake ldd <<<'exit 0'
program_is 'echo "shardscope: /lib/libc.so.6: version GLIBC_2.36 not found" >&2; exit 1'
run_check
expect_status 1
reported 'len(r["steps"]) == 1 and "does not start here" in r["steps"][0]["detail"] and "GLIBC_2.36" in r["steps"][0]["detail"]'
rm -r "$packed"
run_check
expect_status 1
reported 'r["steps"][0]["detail"] == "no CUDA 12.8 or later, and no packed program: run tests/gpu/pack elsewhere"'
run_check --programs "$work"
expect_status 1
reported '"lacks shardscope" in r["steps"][0]["detail"]'

begin "check: a build with the toolkit found here, for this GPU alone"
printf '#!/usr/bin/env bash\n[[ $1 != --version ]] || exec echo "Cuda compilation tools, release 13.0, V1"\necho "#$ TOP=%s" >&2\n' \
  "$work/toolkit" >"$fakes/nvcc"
chmod +x "$fakes/nvcc"
mkdir -p "$work/toolkit/include"
touch "$work/toolkit/include/cuda_runtime.h" "$virtual/libnccl.so.2"
mkdir -p "$virtual/../include"
fake cmake <<EOF
[[ \$1 == --build ]] || exit 0
mkdir -p "$copy"/build-cuda/{launch,tests/kernels/cuda}
for name in launch/shardscope launch/libshardscope_cuda.so tests/kernels/cuda/kernels_gpu_test; do
  printf '#!/usr/bin/env bash\necho "shardscope 9"\n' >"$copy/build-cuda/\$name"
  chmod +x "$copy/build-cuda/\$name"
done
EOF
run_check
expect_status 1
expect_calls cmake "-DSHARDSCOPE_CUDA=ON -DSHARDSCOPE_CUDA_TOOLKIT=$work/toolkit -DSHARDSCOPE_CUDA_PACKAGES=$copy/build-gpu/check/packages/nccl"
expect_calls cmake "-DCMAKE_CUDA_ARCHITECTURES=90-real"
expect_calls cmake "--target shardscope kernels_gpu_test"
[[ -e $copy/build-gpu/check/packages/nccl/lib/libnccl.so && -d $copy/build-gpu/check/packages/nccl/include ]] || wrong "links"
reported 's["the programs and their libraries"]["status"] == "passed" and r["programs"].startswith("built here with")'
fake cmake <<<'echo "CMake Error: Could NOT find Boost"; exit 1'
rm -r "$copy/build-cuda"
run_check
expect_status 1
reported '"CMake Error: Could NOT find Boost" in r["steps"][0]["detail"]'

begin "check: wrong usage"
for arguments in "--limit 0" "--limit" "--model /nowhere" "somewhere"; do
  # shellcheck disable=SC2086  # the words of one case
  run_check $arguments
  expect_status 2
done
echo "all good"
