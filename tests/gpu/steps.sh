# shellcheck shell=bash
# For tests/gpu/check.sh: steps within limits of time, and the report about them. Sourced after launch/lib.sh.
# shellcheck disable=SC2154  # what the report says of machine and run is check.sh's

finished=()   # a JSON object for each step
failures=0
step_ends=0   # of `SECONDS`, when the step at work must be done
detail=""     # of the step at work: one line, and figures as JSON members
figures=""

# json_text TEXT: as a JSON string.
json_text() {
  local text=$1
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\t'/ }
  printf '"%s"' "$(tr -d '\000-\037' <<<"$text")"
}

# json_number TEXT: itself if it is a number, else null.
json_number() { if [[ ${1:-} =~ ^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$ ]]; then printf '%s' "$1"; else printf 'null'; fi; }

# are_positive TEXT…: each is a number above 0.
are_positive() {
  local one
  for one in "$@"; do
    awk -v one="$one" 'BEGIN { exit !(one ~ /^[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$/ && one + 0 > 0) }' || return
  done
}

# is_share TEXT: a number above 0, and at most 1.
is_share() { are_positive "$1" && awk -v one="$1" 'BEGIN { exit !(one + 0 <= 1) }'; }

# figure NAME VALUE: one of the step's numbers.
figure() { figures+="${figures:+, }$(json_text "$1"): $(json_number "$2")"; }

# limited LOG COMMAND…: within what is left of the step; both streams go to the log. Status 124: it took too long.
limited() {
  local log=$1 left=$((step_ends - SECONDS)) status=0
  shift
  ((left > 0)) || return 124
  timeout --kill-after=5 "$left" "$@" >"$log" 2>&1 </dev/null &
  child=$!
  wait "$child" || status=$?
  child=""
  return "$status"
}

# why_ended STATUS LOG: why a limited command failed.
why_ended() {
  case $1 in
    124 | 137) printf 'it took too long' ;;
    *) why_in "$2" ;;
  esac
}

# run_step NAME SECONDS FUNCTION ARGUMENT…: status 0 of the function: passed; 3: what it needs is not here; else failed. A
# failure stops no other step.
run_step() {
  local name=$1 most=$2 status=0 verdict began=$SECONDS left=$((check_seconds - SECONDS))
  shift 2
  step "$name"
  detail="" figures=""
  step_ends=$((SECONDS + (most < left ? most : left)))
  if ((left < 5)); then
    status=1
    detail="no time was left: --limit $check_seconds"
  else
    "$@" || status=$?
  fi
  case $status in
    0) verdict=passed ;;
    3) verdict=not_available ;;
    *) verdict=failed; failures=$((failures + 1)) ;;
  esac
  note "$verdict${detail:+: $detail}"
  finished+=("{\"name\": $(json_text "$name"), \"status\": \"$verdict\", \"seconds\": $((SECONDS - began)), \"detail\": $(
    json_text "$detail"), \"figures\": {$figures}}")
  write_report false
}

# write_report COMPLETE: what is known until now, under the report's name at once.
write_report() {
  local passed=false separator=$'\n  ' one
  if [[ $1 == true ]] && ((failures == 0)); then passed=true; fi
  {
    printf '{\n "schema": "shardscope.gpu_check/1",\n "time": %s,\n "host": %s,\n "commit": %s,\n' \
      "$(json_text "$began_at")" "$(json_text "$(uname -n)")" "$(json_text "$commit")"
    printf ' "device": {"name": %s, "driver": %s, "architectures": %s, "visible": %d},\n' "$(json_text "$gpu_words")" \
      "$(json_text "$driver_version")" "$(json_text "$gpu_architectures")" "$gpu_count"
    printf ' "programs": %s,\n "limit_seconds": %d,\n "seconds": %d,\n "complete": %s,\n "passed": %s,\n "steps": [' \
      "$(json_text "$programs_from")" "$check_seconds" "$SECONDS" "$1" "$passed"
    for one in "${finished[@]}"; do
      printf '%s%s' "$separator" "$one"
      separator=$',\n  '
    done
    printf '\n ]\n}\n'
  } >"$report.partial"
  mv -f -- "$report.partial" "$report"
}
