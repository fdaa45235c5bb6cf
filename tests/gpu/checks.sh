# shellcheck shell=bash
# For tests/gpu/check.sh: what each of its steps does. `detail` and `figure` (steps.sh) say what came of it.
# shellcheck disable=SC2154  # work, here, bin, programs: check.sh's

# program_words PROGRAM [RANKS]: sets `words` to the command that starts it with its libraries, and nothing else with them.
program_words() {
  words=(env "LD_LIBRARY_PATH=$library_path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$bin/$1")
  if ((${2:-1} > 1)); then words=("${launcher[@]}" "$2" "${words[@]}"); fi
}

# lines_of FILE: a JSON document as lines "path value", into FILE.lines.
lines_of() { awk -f "$here/json_lines.awk" "$1" >"$1.lines"; }

# value_at FILE.lines PATH
value_at() { awk -v path="$2" '$1 == path { print $2; exit }' "$1"; }

find_programs() {
  if [[ -n $programs ]]; then
    use_programs "$programs" "$programs" || { detail="$programs lacks shardscope, libshardscope_cuda.so or kernels_gpu_test"; return 1; }
  elif use_programs "$root/build-gpu/packed/bin" "packed"; then
    :
  elif gather_built; then
    use_programs "$work/bin" "build-cuda"
  else
    build_programs || return
  fi
  local words status=0
  find_libraries "$bin/shardscope" "$bin/libshardscope_cuda.so" "$bin/kernels_gpu_test" || { bin=""; return 1; }
  program_words shardscope
  limited "$work/version.log" "${words[@]}" --version || status=$?
  if ((status != 0)); then
    detail="$bin/shardscope does not start here: $(why_ended "$status" "$work/version.log")"
    bin=""
    return 1
  fi
  detail="$programs_from: $(head -n 1 -- "$work/version.log")"
}

check_kernels() {
  local words status=0 log=$work/kernels.log
  program_words kernels_gpu_test
  limited "$log" "${words[@]}" --durations yes || status=$?
  detail=$(grep -E '^(test cases:|All tests passed)' -- "$log" | tail -n 1) || true
  case $status in
    0) [[ -n $detail ]] || { detail="it ran no test"; return 1; } ;;
    4) detail="it sees no GPU: $(tail -n 1 -- "$log")"; return 1 ;;
    *) detail="${detail:-$(why_ended "$status" "$log")} ($log)"; return 1 ;;
  esac
}

# Two prompts at once, of one token and of 70: a step of many tokens, and steps of two.
short_prompt=7
long_prompt=$(seq -s , 5 74)

# generate_on RANKS BACKEND FILE OPTION…: a document with logits.
generate_on() {
  local ranks=$1 backend=$2 file=$3 words
  shift 3
  program_words shardscope "$ranks"
  rm -f -- "$file"
  limited "$file.log" "${words[@]}" generate --backend "$backend" --prompt-ids "$short_prompt" --prompt-ids "$long_prompt" \
    --max-tokens 16 --ignore-eos --top-logits 8 --progress never --json "$file" "$@" && lines_of "$file"
}

# compare_with_cpu TESTED REFERENCE EPSILON STEPS: documents of generate_on by compare_logits.awk; sets `detail`.
compare_with_cpu() { detail=$(awk -v epsilon="$3" -v steps="$4" -f "$here/compare_logits.awk" "$1.lines" "$2.lines"); }

# largest_difference: of what compare_with_cpu has said.
largest_difference() { sed -n 's/.*difference \([^ ]*\) of.*/\1/p' <<<"$detail"; }

# check_model MODEL DTYPE STEPS: weights and activations in this type, with graphs and without, against fp32 activations on
# the CPU. STEPS: compare_logits.awk.
check_model() {
  local model=$1 dtype=$2 steps=$3 epsilon place status=0 graphs
  local options=(--model "$model" --dtype "$dtype" --seed 1)
  case $dtype in fp32) epsilon=1.1920929e-07 ;; *) epsilon=0.00390625 ;; esac
  place=$work/$(basename -- "$model")-$dtype
  generate_on 1 cpu "$place-cpu" "${options[@]}" --cpu-activations fp32 || status=$?
  ((status == 0)) || { detail="on the CPU: $(why_ended "$status" "$place-cpu.log")"; return 1; }
  for graphs in on off; do
    generate_on 1 cuda "$place-$graphs" "${options[@]}" --graphs "$graphs" || status=$?
    ((status == 0)) || { detail="graphs $graphs: $(why_ended "$status" "$place-$graphs.log")"; return 1; }
    compare_with_cpu "$place-$graphs" "$place-cpu" "$epsilon" "$steps" || { detail="graphs $graphs: $detail"; return 1; }
  done
  figure largest_difference "$(largest_difference)"
}

# toolkit_program NAME: prints where it is, of PATH, of the toolkit, or of Nsight Compute's own folder.
toolkit_program() {
  local toolkit candidate
  toolkit=$(cuda_installed) || toolkit=/usr/local/cuda
  for candidate in "$(command -v "$1")" "$toolkit/bin/$1" "$toolkit/$1/$1" /opt/nvidia/nsight-compute/*/"$1"; do
    if [[ -x $candidate ]]; then
      printf '%s' "$candidate"
      return
    fi
  done
  return 1
}

# check_sanitizer TOOL: every kernel of the small model's steps.
check_sanitizer() {
  local words sanitizer status=0 log=$work/sanitizer-$1.log
  sanitizer=$(toolkit_program compute-sanitizer) || { detail="compute-sanitizer is not installed"; return 3; }
  program_words shardscope
  limited "$log" "$sanitizer" --tool "$1" --target-processes all --error-exitcode 86 "${words[@]}" generate --backend cuda \
    --model tiny --seed 1 --prompt-ids "$short_prompt" --prompt-ids "$long_prompt" --max-tokens 4 --ignore-eos \
    --progress never || status=$?
  detail=$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' -- "$log" | tail -n 1 | sed 's/^=* *//') || true
  if ((status != 0)) && grep -qi 'device not supported' -- "$log"; then
    detail="compute-sanitizer refuses this device"
    return 3
  fi
  [[ -n $detail && $status -eq 0 ]] || { detail="${detail:-$(why_ended "$status" "$log")} ($log)"; return 1; }
}

# measure_bandwidth MODEL GRAPHS: one GPU, batch 1. Fails without a figure, or with one that cannot be; a low one is told. One
# generation of 128 tokens: a second would load the weights, which takes longest here, once more.
measure_bandwidth() {
  local words status=0 mbu tpot achievable name=$work/bandwidth-$1-$2
  program_words shardscope
  rm -f -- "$name"
  limited "$name.log" "${words[@]}" bench --backend cuda --model "$1" --dtype bf16 --graphs "$2" --tp 1 --prompt-tokens 512 \
    --output-tokens 128 --warmup 2 --iterations 1 --progress never --json "$name" || status=$?
  ((status == 0)) || { detail=$(why_ended "$status" "$name.log"); return 1; }
  lines_of "$name"
  mbu=$(value_at "$name.lines" results.0.mbu.mean)
  achievable=$(value_at "$name.lines" results.0.mbu_achievable.mean)
  tpot=$(value_at "$name.lines" results.0.tpot_ms.p50)
  figure mbu "$mbu"
  figure mbu_achievable "$achievable"
  figure tpot_ms "$tpot"
  figure ttft_ms "$(value_at "$name.lines" results.0.ttft_ms.p50)"
  detail="MBU ${mbu:-unknown} of the peak, ${achievable:-unknown} of what can be read; TPOT ${tpot:-unknown} ms"
  are_positive "$tpot" && is_share "$mbu"
}

# read_bytes TOKENS: bytes that all kernels of a generation read, and how many kernels these were.
read_bytes() {
  local words refusal log=$work/dram-$1.csv status=0
  program_words shardscope
  limited "$log" "$profiler" --target-processes all --metrics dram__bytes_read.sum --csv --print-units base \
    --cache-control none --clock-control none "${words[@]}" generate --backend cuda "${traffic_options[@]}" --max-tokens "$1" ||
    status=$?
  refusal=$(grep -m 1 -E 'ERR_NVGPUCTRPERM|LibraryNotLoaded|==ERROR==.*not supported' -- "$log") || true
  if [[ -n $refusal ]]; then
    detail="ncu cannot read the DRAM counters here: ${refusal#==ERROR== }"
    return 3
  fi
  ((status == 0)) || { detail="ncu: $(why_ended "$status" "$log") ($log)"; return 1; }
  awk -f "$here/dram_bytes.awk" "$log" >"$log.sum" || { detail="ncu gave no bytes ($log)"; return 1; }
}

# One decode step is what a generation of three tokens has more than one of two: loading and the prompt cancel out. Four
# layers are 1.7 GB of weights and 1 GB of head: far more than any second-level cache keeps.
check_traffic() {
  local words profiler status=0 two three kernels_two kernels_three ratio modelled name=$work/traffic
  local traffic_options=(--model llama3-8b --layers 4 --dtype bf16 --graphs off --prompt-ids "$short_prompt" --ignore-eos
    --progress never)
  profiler=$(toolkit_program ncu) || { detail="ncu is not installed: the DRAM counters are not readable"; return 3; }
  program_words shardscope
  limited "$name.log" "${words[@]}" generate --backend cuda "${traffic_options[@]}" --max-tokens 3 --dry-run --json "$name" ||
    status=$?
  ((status == 0)) || { detail="--dry-run: $(why_ended "$status" "$name.log")"; return 1; }
  lines_of "$name"
  modelled=$(awk '$1 ~ /^plans\.0\.ranks\.0\.bytes_per_step\.(weights|kv_read)$/ { sum += $2 } END { printf "%.0f", sum }' "$name.lines")
  read_bytes 2 || return
  read_bytes 3 || return
  read -r two kernels_two <"$work/dram-2.csv.sum"
  read -r three kernels_three <"$work/dram-3.csv.sum"
  ratio=$(awk -v bytes=$((three - two)) -v modelled="$modelled" 'BEGIN { if (modelled > 0) printf "%.4f", bytes / modelled }')
  figure bytes_read $((three - two))
  figure bytes_modelled "$modelled"
  figure ratio "$ratio"
  figure kernels $((kernels_three - kernels_two))
  detail="$((three - two)) bytes in $((kernels_three - kernels_two)) kernels, $ratio of the traffic model"
  # Below: a cache kept 5 %. Above: 2 % are allowed to the product, and activations and counters have 1 %.
  awk -v ratio="${ratio:-0}" 'BEGIN { exit !(ratio >= 0.95 && ratio <= 1.03) }'
}
