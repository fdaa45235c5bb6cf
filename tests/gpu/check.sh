#!/usr/bin/env bash
# Checks the CUDA backend on a machine with NVIDIA GPUs, possibly without network; under 6 minutes, the build included.
#
#   tests/gpu/check.sh [options]
#     --programs FOLDER   shardscope, libshardscope_cuda.so and kernels_gpu_test, built elsewhere
#     --model PATH        also compares this model with the CPU backend (a .gguf file or a Hugging Face folder)
#     --json FILE         the report (default build-gpu/report.json)
#     --limit SECONDS     for everything (default 340); what is left then has failed
#
# Steps: the programs (what tests/gpu/pack made, build-gpu/packed; else build-cuda/; else a build with the toolkit found here,
# for this GPU alone), and CUDA's libraries (of the toolkit, of ldconfig, of Python's site-packages/nvidia); the kernels' tests;
# whole models against the CPU backend; sums between ranks; compute-sanitizer; memory bandwidth utilisation of llama2-7b and
# llama3-8b, with graphs and without; what one decode step reads of DRAM, against the traffic model. A step that fails stops no
# other one.
#
# Sums between ranks: with one GPU, one-shot and two-shot of 2 and 4 ranks that share it, in a model and by `comm`: whether they
# are right. With several, `comm` over all in every way that they have, after the proof of peer access: right, and how fast;
# a model in each of these ways; and `scale` of llama3-8b over all.
#
# Needs bash, awk and a driver; nvcc and cmake only for a build. Ends with 0 if nothing failed, 1 if something did, 77 without
# a GPU. What is not here (mpirun; compute-sanitizer; the right to read counters) is said and does not count as failed.
set -euo pipefail
program="gpu check"
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# shellcheck source-path=SCRIPTDIR source=../../launch/lib.sh
source "$here/../../launch/lib.sh"
# shellcheck source-path=SCRIPTDIR source=../../launch/lib_cuda.sh
source "$root/launch/lib_cuda.sh"
# shellcheck source-path=SCRIPTDIR source=steps.sh
source "$here/steps.sh"
# shellcheck source-path=SCRIPTDIR source=libraries.sh
source "$here/libraries.sh"
# shellcheck source-path=SCRIPTDIR source=checks.sh
source "$here/checks.sh"
# shellcheck source-path=SCRIPTDIR source=launcher.sh
source "$here/launcher.sh"
# shellcheck source-path=SCRIPTDIR source=collectives.sh
source "$here/collectives.sh"

device_files='/dev/nvidia[0-9]*'
programs="" model="" report=$root/build-gpu/report.json check_seconds=340
while (($# > 0)); do
  case $1 in
    --programs | --model | --json | --limit)
      (($# > 1)) || usage_error "$1 needs a value"
      case $1 in --programs) programs=$2 ;; --model) model=$2 ;; --json) report=$2 ;; --limit) check_seconds=$2 ;; esac
      shift 2
      ;;
    --help | -h) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) usage_error "unknown option $1 (known: --programs, --model, --json, --limit, --help)" ;;
  esac
done
[[ $check_seconds =~ ^[1-9][0-9]{0,4}$ ]] || usage_error "--limit wants a number of seconds, not $check_seconds"
[[ -z $model || -e $model ]] || usage_error "--model $model: no such file or folder"

bin="" programs_from="" began_at=$(date -u +%Y-%m-%dT%H:%M:%SZ)
if driver_answers; then
  for one in "${gpu_notes[@]}"; do note "$one"; done
elif [[ -z $gpu_why ]] && compgen -G "$device_files" >/dev/null; then
  # A container that was given the GPU without the driver's tools: the kernels' tests ask the driver themselves.
  gpu_words="unknown, there is no nvidia-smi" gpu_architectures=90-real gpu_count=1
else
  printf '%s: no GPU: %s; nothing was checked\n' "$program" "${gpu_why:-no NVIDIA driver (nvidia-smi is not in PATH)}" >&2
  reported=1
  exit 77
fi
driver_version=$(timeout --kill-after=2 "$driver_seconds" nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null |
  head -n 1) || true
commit=$(cat -- "$root/build-gpu/packed/commit" 2>/dev/null || git -C "$root" rev-parse HEAD 2>/dev/null) || commit=""
work=$root/build-gpu/check
mkdir -p -- "$work" "$(dirname -- "$report")"
log_folder=$work
note "$gpu_words, driver ${driver_version:-unknown}; logs: $work"

all_run=0
run_step "the programs and their libraries" 300 find_programs
if [[ -n $bin ]]; then
  run_step "the kernels' tests" 120 check_kernels
  for one in tiny smollm2-135m ${model:+"$model"}; do
    run_step "$(basename -- "$one") against the CPU, fp32" 40 check_model "$one" fp32 worst
    run_step "$(basename -- "$one") against the CPU, bf16" 40 check_model "$one" bf16 likely
  done
  if ((gpu_count > 1)); then
    run_step "sums between $gpu_count GPUs" 90 check_all_sums
    degrees=(2)
    ((gpu_count == 2)) || degrees+=("$((gpu_count < 8 ? gpu_count : 8))")  # the model has 8 heads
    for ranks in "${degrees[@]}"; do
      run_step "tiny on $ranks GPUs in every way of summing, fp32" 60 check_ways "$ranks" "$usable_ways auto"
    done
  else
    for ranks in 2 4; do
      run_step "tiny by $ranks ranks on one GPU, fp32" 40 check_ways "$ranks" "one-shot two-shot" --oversubscribe-devices
      run_step "sums between $ranks ranks on one GPU" 45 check_shared_sums "$ranks"
    done
  fi
  for tool in memcheck racecheck synccheck; do run_step "compute-sanitizer, $tool" 40 check_sanitizer "$tool"; done
  for one in llama2-7b llama3-8b; do
    for graphs in on off; do run_step "bandwidth of $one, graphs $graphs" 75 measure_bandwidth "$one" "$graphs"; done
  done
  if ((gpu_count > 1)); then run_step "llama3-8b over $gpu_count GPUs" 120 measure_scale; fi
  run_step "DRAM bytes of a decode step" 60 check_traffic
  all_run=1
fi
end_step
if [[ -n $bin ]] && ((all_run == 0)); then  # some errors end bash's command and go on with the next one: here
  failures=$((failures + 1))
  note "the steps ended too early: an error in this script"
fi
write_report true
reported=1
if ((failures > 0)); then
  printf '%s: FAILED: %d of %d steps, %d s; report: %s\n' "$program" "$failures" "${#finished[@]}" "$SECONDS" "$report"
  exit 1
fi
printf '%s: passed: %d steps, %d s; report: %s\n' "$program" "${#finished[@]}" "$SECONDS" "$report"
