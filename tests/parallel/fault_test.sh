#!/usr/bin/env bash
# fault_test.sh SCENARIO DRIVER MPIEXEC: runs fault_driver with 4 ranks and judges its exit status, its one line on
# standard error, its time, and that no process is left. Signals only processes that carry the job's own tag.
set -u
scenario=$1 driver=$2 mpiexec=$3
tag="shardscope_fault_$$_$RANDOM"
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT

mine() { # pids whose environment carries our tag
  grep -lzsx "FAULT_TAG=$tag" /proc/[0-9]*/environ | grep -o '[0-9]*'
}
pid_of_rank() {
  for pid in $(mine); do
    grep -qzsx "OMPI_COMM_WORLD_RANK=$1" "/proc/$pid/environ" && echo "$pid"
  done
}
fail() {
  echo "FAIL: $*"; cat "$errors"
  for pid in $(mine); do kill -KILL "$pid"; done
  exit 1
}

status=1 limit=12 line='' own_line=1
case $scenario in
  user_error) status=2 limit=6 line='no such model, model.gguf, name one that exists, rank 1 on HOST' ;;
  system_error) status=1 limit=6 line='disk failed, byte 7, buy another, rank 1 on HOST' ;;
  bug) status=70 limit=6 line='two and two make five, .*, rank 1 on HOST' ;;
  lowest_of_two) status=2 limit=6 line='wrong on rank 1, here, nothing, rank 1 on HOST' ;;
  same_everywhere) status=2 limit=6 line='no such model, model.gguf, name one that exists, rank 0 on HOST' ;;
  error_in_destructor) status=1 limit=6 line='failed while others end, rank 1 on HOST' ;;
  stopped) line="rank 1 made no progress for 3 s, host HOST, last doing 'decode' \(stopped by a signal\), .*, rank [023] on HOST" ;;
  stopped_in_a_wait)
    line="rank 1 made no progress for 3 s, host HOST, last doing 'decode' \(stopped by a signal\), .*, rank [023] on HOST" ;;
  absent) line="rank 1 made no progress for 3 s, host HOST, last doing 'prefill', .*, rank [023] on HOST" ;;
  early_exit | killed) status=any limit=6 own_line=0 line='rank 1 has died: .*' ;;  # the launcher may be faster
  *) echo "unknown scenario $scenario"; exit 2 ;;
esac
line="shardscope: error: ${line//HOST/$(uname -n)}"

FAULT_TAG=$tag setsid "$mpiexec" -q -n 4 "$driver" "$scenario" </dev/null 2>"$errors" &
top=$!
case $scenario in
  stopped*) signal=STOP ;;
  killed) signal=KILL ;;
  *) signal='' ;;
esac
if [[ -n $signal ]]; then
  for ((i = 0; i < 50; ++i)); do
    victim=$(pid_of_rank 1)
    [[ -n $victim ]] && break
    sleep 0.1
  done
  [[ -n $victim ]] || fail "rank 1 did not start"
  sleep 1 # past the start, into the loop
  kill "-$signal" "$victim"
fi
start=$(date +%s%N)
while kill -0 "$top" 2>/dev/null && (($(date +%s%N) - start < limit * 1000000000)); do sleep 0.05; done
kill -0 "$top" 2>/dev/null && fail "the job still runs after $limit s"
wait "$top"; got=$?
took=$((($(date +%s%N) - start) / 1000000))
for ((i = 0; i < 20; ++i)); do
  left=$(mine | wc -l)
  ((left == 0)) && break
  sleep 0.1
done
((left == 0)) || fail "$left process(es) left"
if [[ $status == any ]]; then ((got != 0)) || fail "status 0"; else ((got == status)) || fail "status $got, not $status"; fi
count=$(grep -c '^shardscope: error: ' "$errors")
if ((own_line)); then
  ((count == 1)) || fail "$count lines of ours"
  [[ $(head -1 "$errors") == 'shardscope: error: '* ]] || fail "the launcher spoke first"
else
  ((count <= 1)) || fail "$count lines of ours"
fi
if ((count == 1)); then grep -Eq "^$line" "$errors" || fail "another line than: $line"; fi
echo "PASS: status $got after $took ms: $(head -1 "$errors")"
