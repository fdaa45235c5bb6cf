# shellcheck shell=bash
# For tests/gpu/check.sh: sums between ranks, on one GPU that they share (correctness alone: they take turns on it) or on all.
# shellcheck disable=SC2154  # work, here, model options and the like: check.sh's and checks.sh's

all_ways="nccl nccl-symmetric one-shot two-shot"
usable_ways=$all_ways  # of this machine, once `comm` has told

# needs_launcher: status 3, which is the step's, if ranks cannot be started here.
needs_launcher() { find_launcher || { detail=$launcher_why; return 3; }; }

# run_comm RANKS NAME OPTION…: a sweep on GPUs; its document as lines is $work/NAME.lines.
run_comm() {
  local ranks=$1 file=$work/$2 words status=0
  shift 2
  program_words shardscope "$ranks"
  rm -f -- "$file" "$file.lines" "$file.said"
  limited "$file.log" "${words[@]}" comm --backend cuda "$@" --progress never --json "$file" || status=$?
  if [[ -s $file ]]; then lines_of "$file"; fi
  return "$status"
}

# look_through RANKS NAME STATUS VARIABLE=VALUE…: what comm_rows.awk says of a sweep, in $work/NAME.said. Wrong sums, which end
# the program with a failure, are told before that.
look_through() {
  local ranks=$1 file=$work/$2 ended=$3 one options=()
  shift 3
  for one in "$@"; do options+=(-v "$one"); done
  if [[ -s $file.lines ]] && ! awk -v "ranks=$ranks" "${options[@]}" -f "$here/comm_rows.awk" "$file.lines" >"$file.said"; then
    detail=$(sed -n 's/^offence //p' "$file.said")
    ((ended == 0)) || detail+="; the program: $(why_ended "$ended" "$file.log")"
    return 1
  fi
  if ((ended != 0)); then
    detail="$(why_ended "$ended" "$file.log") ($file.log)"
    return 1
  fi
  [[ -s $file.said ]] || { detail="comm left no report ($file.log)"; return 1; }
}

said() { sed -n "s/^$2 //p" "$work/$1.said"; }

# check_shared_sums RANKS: of odd numbers of elements, of as many as one-shot takes, and of one. Ranks take turns on the GPU, so
# that a sum may take milliseconds: after the first sizes, those for which the step's time would not do are left out, and told.
check_shared_sums() {
  local ranks=$1 sizes most took=0 status name rows=0 checked="" left_out=""
  needs_launcher || return
  for sizes in 1026-2056 262144-262144 2-2 32778-32778; do
    most=${sizes#*-} name=shared-sums-$ranks-$sizes
    if [[ -n $checked ]] && ((2 * took > step_ends - SECONDS)); then
      left_out+="${left_out:+, }$most"
      continue
    fi
    took=$SECONDS status=0
    run_comm "$ranks" "$name" --oversubscribe-devices --allreduce one-shot,two-shot --dtype fp16,bf16,fp32 --graphs on,off \
      --min-bytes "${sizes%-*}" --max-bytes "$most" --warmup 1 --iterations 1 || status=$?
    look_through "$ranks" "$name" "$status" "ways=one-shot two-shot" "dtypes=fp16 bf16 fp32" "graphs=true false" ||
      { detail="from ${sizes%-*} B: $detail"; return 1; }
    took=$((SECONDS - took)) rows=$((rows + $(said "$name" rows)))
    checked+="${checked:+, }$most"
  done
  figure sums "$rows"
  detail="$rows kinds of sums are exact; bytes: $checked${left_out:+; no time was left for $left_out}"
}

# check_all_sums: every way, on all GPUs; what it costs at the sizes that decoding has.
check_all_sums() {
  local status=0 name=all-sums key value left
  needs_launcher || return
  run_comm "$gpu_count" "$name" --dtype bf16,fp32 --graphs on,off --min-bytes 4 --max-bytes 16777216 --warmup 2 \
    --iterations 20 --max-seconds 0.1 || status=$?
  look_through "$gpu_count" "$name" "$status" "ways=nccl" "known=$all_ways" "dtypes=bf16 fp32" "graphs=true false" "figures=1" ||
    return
  usable_ways=$(said "$name" ways)
  while read -r key value; do figure "$key" "$value"; done < <(said "$name" figure)
  left=$(said "$name" left_out | awk 'NR > 1 { printf "; " } { printf "%s", $0 }')
  detail="$(said "$name" rows) kinds of sums are exact; peer access between all GPUs: "
  if [[ " $usable_ways " == *" one-shot "* ]]; then detail+="proved"; else detail+="not used"; fi
  detail+="${left:+; left out: $left}; the fastest in graphs, bf16: $(said "$name" fastest |
    awk '{ printf "%s%d KiB %s %.1f us", (NR > 1 ? ", " : ""), $1 / 1024, $2, $3 }')"
}

# check_ways RANKS WAYS OPTION…: the tiny model with each way of summing, against the CPU backend.
check_ways() {
  local ranks=$1 ways=$2 way options=(--model tiny --dtype fp32 --seed 1) place=$work/tiny-$1 status=0
  shift 2
  needs_launcher || return
  generate_on 1 cpu "$place-cpu" "${options[@]}" --cpu-activations fp32 || status=$?
  ((status == 0)) || { detail="on the CPU: $(why_ended "$status" "$place-cpu.log")"; return 1; }
  for way in $ways; do
    generate_on "$ranks" cuda "$place-$way" "${options[@]}" --allreduce "$way" "$@" || status=$?
    ((status == 0)) || { detail="$way: $(why_ended "$status" "$place-$way.log") ($place-$way.log)"; return 1; }
    compare_with_cpu "$place-$way" "$place-cpu" 1.1920929e-07 worst || { detail="$way: $detail"; return 1; }
    figure "${way}_largest_difference" "$(largest_difference)"
  done
  detail="${ways// /, }: ${detail%%,*} each are those of the CPU"
}

# measure_scale: llama3-8b at every degree. Fails without two figures, or with one that cannot be; low ones are told, as is a
# degree that the model or the memory does not allow.
measure_scale() {
  local words status=0 name=$work/scale result tp state tpot mbu speedup points=0
  needs_launcher || return
  program_words shardscope "$gpu_count"
  rm -f -- "$name"
  limited "$name.log" "${words[@]}" scale --backend cuda --model llama3-8b --dtype bf16 --prompt-tokens 512 --output-tokens 64 \
    --warmup 1 --iterations 1 --progress never --json "$name" || status=$?
  ((status == 0)) || { detail="$(why_ended "$status" "$name.log") ($name.log)"; return 1; }
  lines_of "$name"
  for ((result = 0; ; ++result)); do
    tp=$(value_at "$name.lines" "results.$result.tp")
    [[ -n $tp ]] || break
    state=$(value_at "$name.lines" "results.$result.status")
    if [[ $state == out_of_memory || $state == invalid ]]; then
      detail+="${detail:+; }TP $tp: $state"
      continue
    fi
    tpot=$(value_at "$name.lines" "results.$result.tpot_ms.p50")
    mbu=$(value_at "$name.lines" "results.$result.mbu.mean")
    speedup=$(value_at "$name.lines" "results.$result.speedup")
    figure "tp${tp}_tpot_ms" "$tpot"
    figure "tp${tp}_mbu" "$mbu"
    figure "tp${tp}_speedup" "$speedup"
    detail+="${detail:+; }TP $tp: TPOT ${tpot:-unknown} ms, MBU ${mbu:-unknown}, ${speedup:-unknown} x"
    are_positive "$tpot" "$speedup" && is_share "$mbu" || return 1
    points=$((points + 1))
  done
  ((points > 1)) || { detail="fewer than two degrees were measured${detail:+: $detail}"; return 1; }
}
