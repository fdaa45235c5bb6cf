#!/usr/bin/env bash
# tests/gpu/check.sh's sums between ranks, with fakes: of ranks that share a GPU, of several GPUs, and without a launcher; and
# the reader of `comm`'s documents behind them.
# shellcheck disable=SC2119  # run_check has no options here
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=support.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/support.sh"
# shellcheck source-path=SCRIPTDIR source=gpu_support.sh
source "$project/tests/scripts/gpu_support.sh"
# The other steps are gpu_check_test's: here each is there, and quick.
sed -i -e 's|^measure_bandwidth() {|&\n  return 0|' -e 's|^check_traffic() {|&\n  return 0|' -e 's|^check_sanitizer() {|&\n  return 0|' \
  -e 's|^check_model() {|&\n  return 0|' "$scripts/checks.sh"
[[ $(grep -cx "  return 0" "$scripts/checks.sh") == 4 ]]

# ---- reading documents ----------------------------------------------------------------------------------------------

# looked CHANGE [VARIABLE=VALUE…]: what comm_rows.awk says of a changed document of two ranks.
looked() {
  local change=$1 one options=()
  shift
  python3 "$work/comm.py" 2 "$change" --dtype bf16,fp32 --graphs on,off --min-bytes 4 --max-bytes 16777216 --json "$work/comm.json"
  awk -f "$scripts/json_lines.awk" "$work/comm.json" >"$work/comm.lines"
  for one in "$@"; do options+=(-v "$one"); done
  capture awk -v ranks=2 -v ways=nccl -v "known=nccl nccl-symmetric one-shot two-shot" -v "dtypes=bf16 fp32" \
    -v "graphs=true false" "${options[@]}" -f "$scripts/comm_rows.awk" "$work/comm.lines"
}

begin "comm_rows: all right, with what each way costs"
looked "" figures=1
expect_status 0
expect $'rows 72\nways nccl nccl-symmetric one-shot two-shot\nfigure nccl_bf16_8192_bytes_p50_us 10'
expect $'\nfigure two-shot_fp32_65536_bytes_p50_us 7'
expect $'\nfigure nccl-symmetric_bf16_16777216_bytes_busbw_gb_per_s 101'
expect $'\nfastest 32768 two-shot 7'
expect_not "one-shot_bf16_16777216"
expect_not "left_out"

begin "comm_rows: ways that were left out, and why"
without="document['rows'] = [row for row in rows if 'shot' not in row['algorithm']]"
looked "$without; left_out[:] = [dict(one, why='no peer access: ask') for one in left_out]"
expect_status 0
[[ $output == $'rows 40\nways nccl nccl-symmetric\nleft_out one-shot, two-shot: no peer access: ask' ]] ||
  wrong "the ways"

begin "comm_rows: wrong sums, and what lacks or cannot be"
looked "rows[0]['wrong'] = 3"
expect_status 1
[[ $output == "offence wrong sums: 3 elements, 4 bytes of bf16 by nccl in graphs" ]] || wrong "the place"
for change in "rows[71]['wrong'] = 1" "rows[3]['wrong'] = None" "rows[3]['wrong'] = -1" "del rows[3]['wrong']" \
  "rows[3]['tp'] = 4" "rows[3]['time_us']['p50'] = None" "rows[3]['time_us']['p50'] = float('nan')" \
  "rows[3]['time_us']['p50'] = 0.0" "document['complete'] = False" "document['schema'] = 'shardscope.report/1'" \
  "rows.clear()" "$without; left_out.pop()" \
  "document['rows'] = [row for row in rows if row['dtype'] != 'fp32' or row['graph'] or row['algorithm'] != 'nccl']"; do
  looked "$change"
  expect_status 1
  expect "offence "
done
looked "$without" "ways=nccl one-shot"
expect_status 1
expect "offence no sum of bf16 by one-shot, graph true"

# ---- ranks that share a GPU -----------------------------------------------------------------------------------------

begin "sums of ranks that share a GPU: sizes for which time would not do are left out, and told; the first never"
cat >"$work/shared" <<EOF
set -euo pipefail
source "$scripts/collectives.sh"
needs_launcher() { :; }
run_comm() { SECONDS=\$((SECONDS + PROBE_SECONDS)); }
look_through() { :; }
said() { echo 5; }
figure() { printf '%s %s; ' "\$@"; }
SECONDS=0 step_ends=45 detail=""
check_shared_sums 4
printf '%s' "\$detail"
EOF
capture env PROBE_SECONDS=2 bash "$work/shared"
expect_status 0
[[ $output == "sums 20; 20 kinds of sums are exact; bytes: 2056, 262144, 2, 32778" ]] || wrong "all sizes"
capture env PROBE_SECONDS=12 bash "$work/shared"
expect_status 0
[[ $output == "sums 10; 10 kinds of sums are exact; bytes: 2056, 262144; no time was left for 2, 32778" ]] || wrong "two sizes"
capture env PROBE_SECONDS=40 bash "$work/shared"
expect_status 0
[[ $output == "sums 5; 5 kinds of sums are exact; bytes: 2056; no time was left for 262144, 2, 32778" ]] || wrong "one size"

begin "one GPU: one-shot and two-shot of 2 and 4 ranks that share it"
run_check
expect_status 0
expect "gpu check: passed: 18 steps"
reported 's["tiny by 4 ranks on one GPU, fp32"]["detail"] == "one-shot, two-shot: 24 logits each are those of the CPU"'
reported 's["tiny by 2 ranks on one GPU, fp32"]["figures"] == {"one-shot_largest_difference": 0, "two-shot_largest_difference": 0}'
reported 's["sums between 4 ranks on one GPU"]["figures"] == {"sums": 60}'
reported 's["sums between 2 ranks on one GPU"]["detail"] == "60 kinds of sums are exact; bytes: 2056, 262144, 2, 32778"'
starts="env LD_LIBRARY_PATH=$packed/lib:$virtual $packed/bin/shardscope"
expect_calls mpirun "--bind-to none -np 4 $starts comm --backend cuda --oversubscribe-devices --allreduce one-shot,two-shot --dtype fp16,bf16,fp32 --graphs on,off --min-bytes 1026 --max-bytes 2056"
expect_calls mpirun "--bind-to none -np 2 $starts generate --backend cuda"
expect_calls shardscope "--model tiny --dtype fp32 --seed 1 --allreduce two-shot --oversubscribe-devices"
[[ $(calls mpirun) != *" scale "* ]] || wrong "it scales over one GPU"

# sums_end STATUS DETAIL: those of ranks on one GPU.
sums_end() {
  reported "all(step['status'] == '$1' and '$2' in step['detail'] for step in r['steps'] if step['name'].startswith('sums between'))"
}

begin "one GPU: wrong sums are failures, however the program ends, and so are wrong logits by one way of summing"
echo 'rows[-1]["wrong"] = 5' >"$work/comm.change"
program_is '
if [[ $* == *"--allreduce two-shot"* ]]; then
  while [[ $1 != --json ]]; do shift; done
  exec sed "s/3.9999/3.8/" "'"$work/reference.json"'" >"$2"
fi'
run_check
expect_status 1
expect "FAILED: 4 of 18 steps"
sums_end failed "from 1026 B: wrong sums: 5 elements, 2056 bytes of fp32 by two-shot"
reported 's["tiny by 2 ranks on one GPU, fp32"]["detail"].startswith("two-shot: request 0, step 0, token 20: the difference is")'
echo 'rows[0]["wrong"] = 7; status = "shardscope: error: wrong sums: as told"' >"$work/comm.change"
program_is ""
run_check
expect_status 1
expect "FAILED: 2 of 18 steps"
sums_end failed "wrong sums: 7 elements, 1026 bytes of fp16 by one-shot in graphs; the program: shardscope: error: wrong sums: as told"

begin "one GPU: a sweep that ends with an error, or leaves nothing"
: >"$work/comm.change"
program_is '[[ $1 != comm ]] || { echo "shardscope: error: rank 1 does not answer" >&2; exit 3; }'
run_check
expect_status 1
expect "FAILED: 2 of 18 steps"
sums_end failed "rank 1 does not answer"
program_is '[[ $1 != comm ]] || exit 0'
run_check
expect_status 1
sums_end failed "comm left no report"
program_is ""

begin "an error of the script itself is a failure, though bash goes on after it"
cp "$scripts/collectives.sh" "$work/kept"
sed -i 's|^check_shared_sums() {|&\n  rows=$((1 + ))|' "$scripts/collectives.sh"
run_check
expect_status 1
expect "the steps ended too early: an error in this script"
expect "gpu check: FAILED: 1 of 7 steps"
reported 'r["complete"] and not r["passed"]'
cp "$work/kept" "$scripts/collectives.sh"

# ---- several GPUs ---------------------------------------------------------------------------------------------------

begin "several GPUs: all are used, in every way that they have"
gpus_are 4
run_check
expect_status 0
expect "gpu check: passed: 18 steps"
reported 's["sums between 4 GPUs"]["detail"].startswith("72 kinds of sums are exact; peer access between all GPUs: proved; the fastest in graphs, bf16: 8 KiB two-shot 7.0 us, 32 KiB")'
reported 's["sums between 4 GPUs"]["figures"]["one-shot_bf16_65536_bytes_p50_us"] == 8'
reported 's["sums between 4 GPUs"]["figures"]["nccl_fp32_16777216_bytes_busbw_gb_per_s"] == 100'
for ranks in 2 4; do
  reported "s['tiny on $ranks GPUs in every way of summing, fp32']['detail'] == 'nccl, nccl-symmetric, one-shot, two-shot, auto: 24 logits each are those of the CPU'"
done
reported 's["llama3-8b over 4 GPUs"]["figures"] == {"tp1_tpot_ms": 4.0, "tp1_mbu": 0.8, "tp1_speedup": 1.0, "tp4_tpot_ms": 2.0, "tp4_mbu": 0.5, "tp4_speedup": 2.0}'
expect_calls mpirun "-np 4 $starts comm --backend cuda --dtype bf16,fp32 --graphs on,off --min-bytes 4 --max-bytes 16777216"
expect_calls mpirun "-np 4 $starts scale --backend cuda --model llama3-8b --dtype bf16"
[[ $(calls mpirun) != *--oversubscribe-devices* ]] || wrong "they share one"
gpus_are 2
run_check
expect_status 0
expect "gpu check: passed: 17 steps"
gpus_are 16
run_check
expect_status 0
reported '"tiny on 8 GPUs in every way of summing, fp32" in s and "sums between 16 GPUs" in s'
gpus_are 4

begin "several GPUs: a way that they do not have is told and not used"
cat >"$work/comm.change" <<<"$without; document['left_out'] = [{'algorithm': one, 'why': 'GPU 0, GPU 1: no \"access\"'} for one in ('one-shot', 'two-shot')]"
run_check
expect_status 0
reported '"; peer access between all GPUs: not used; left out: one-shot, two-shot: GPU 0, GPU 1: no " in s["sums between 4 GPUs"]["detail"]'
reported 's["tiny on 2 GPUs in every way of summing, fp32"]["detail"].startswith("nccl, nccl-symmetric, auto: ")'
[[ $(calls shardscope) != *"--allreduce one-shot"* ]] || wrong "one-shot was used"

begin "several GPUs: NCCL must be there, and MBU must be a share"
echo 'document["rows"] = [row for row in rows if row["algorithm"] != "nccl"]' >"$work/comm.change"
results "$(result 1 out_of_memory null null null)" "$(result 2 ok 4.0 0.8 1.0)" "$(result 4 ok 2.0 1.7 2.0)"
run_check
expect_status 1
expect "FAILED: 2 of 18 steps"
reported 's["sums between 4 GPUs"]["detail"] == "no sum of bf16 by nccl, graph true"'
reported 's["llama3-8b over 4 GPUs"]["status"] == "failed" and s["llama3-8b over 4 GPUs"]["detail"].startswith("TP 1: out_of_memory; TP 2: TPOT 4.0 ms, ")'
: >"$work/comm.change"

begin "scale: every figure must be one, and two degrees must have them"
cat >"$work/scaled" <<EOF
set -euo pipefail
source "$copy/launch/lib.sh"
for part in steps checks launcher collectives; do source "$scripts/\$part.sh"; done
here="$scripts" work="$work" bin="$packed/bin" library_path="" gpu_count=4 step_ends=\$((SECONDS + 60)) status=0
measure_scale || status=\$?
printf '%d: %s' "\$status" "\$detail"
EOF
# scaled RESULT…
scaled() {
  results "$@"
  capture bash "$work/scaled"
  expect_status 0
}
first=$(result 1 ok 4.0 0.8 1.0)
scaled "$first" "$(result 4 ok 2.0 0.5 2.0)"
[[ $output == "0: TP 1: TPOT 4.0 ms, MBU 0.8, 1.0 x; TP 4: TPOT 2.0 ms, MBU 0.5, 2.0 x" ]] || wrong "the figures"
for bad in "ok null 0.5 2.0" "ok 2.0 null 2.0" "ok 2.0 0.5 null" "ok 2.0 1.01 2.0" "ok 2.0 0.0 2.0" "ok -2.0 0.5 2.0" \
  "ok NaN 0.5 2.0" "incomplete null null null"; do
  # shellcheck disable=SC2086  # the words of one case
  scaled "$first" "$(result 4 $bad)"
  expect "1: TP 1: "
done
scaled "$(result 1 out_of_memory null null null)" "$(result 4 ok 2.0 0.5 1.0)"
expect "1: fewer than two degrees were measured: TP 1: out_of_memory; TP 4: "
scaled
expect "1: fewer than two degrees were measured"

# ---- the launcher ---------------------------------------------------------------------------------------------------

begin "the launcher: the packed one goes before that of PATH, and without one several ranks are not checked"
gpus_are 1
printf '#!/usr/bin/env bash\nprintf "%%s\\n" "$*" >>"%s"\n%s\n' "$work/packed-mpirun.calls" "$mpirun_runs" >"$packed/bin/mpirun"
chmod +x "$packed/bin/mpirun"
run_check
expect_status 0
expect_calls packed-mpirun "--bind-to none -np 4 env "
expect_no_calls mpirun
rm "$packed/bin/mpirun" "$fakes/mpirun"
run_check
expect_status 0
sums_end not_available "there is no mpirun, neither packed nor in PATH"
reported 'sum(step["status"] == "not_available" for step in r["steps"]) == 4 and r["passed"]'
gpus_are 4
run_check
expect_status 0
reported '[step["name"] for step in r["steps"] if step["status"] == "passed"][-1] == "DRAM bytes of a decode step"'
reported 'sum(step["status"] == "not_available" for step in r["steps"]) == 4 and r["passed"]'
echo "all good"
