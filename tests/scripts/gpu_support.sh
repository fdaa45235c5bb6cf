# shellcheck shell=bash
# For the tests of tests/gpu/check.sh: a driver, packed programs, a launcher and tools, all fakes, whose steps pass; and what
# its report says. Sourced after support.sh.
# shellcheck disable=SC2154  # copy, work and fakes are support.sh's

unset CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH
scripts="$copy/tests/gpu"
hide_toolkits
# Its checks find this mpirun in PATH, and none of this machine.
sed -i 's|command -v mpirun|mpirun_in_path|' "$scripts/launcher.sh"
if ! grep -qF '$(mpirun_in_path)' "$scripts/launcher.sh"; then
  printf 'FAILED: gpu_support does not know launcher.sh any more\n' >&2
  exit 1
fi
printf 'mpirun_in_path() { [[ -x "%s/mpirun" ]] && echo "%s/mpirun"; }\n' "$fakes" "$fakes" >>"$scripts/launcher.sh"

run_check() { capture "$scripts/check.sh" "$@"; }

# reported EXPRESSION: true of the report `r`, whose steps by name are `s`.
report="$copy/build-gpu/report.json"
reported() {
  python3 - "$report" "$1" <<'EOF' || wrong "not true of the report: $1; $(<"$report")"
import json, sys
r = json.load(open(sys.argv[1]))
s = {step["name"]: step for step in r["steps"]}
for step in r["steps"]:
    assert set(step) == {"name", "status", "seconds", "detail", "figures"}, step
    assert step["status"] in ("passed", "failed", "not_available") and step["seconds"] >= 0
assert r["schema"] == "shardscope.gpu_check/1"
sys.exit(not eval(sys.argv[2]))
EOF
}

# ---- documents ------------------------------------------------------------------------------------------------------

# logits FILE CHANGE: a document of two requests of three tokens with four logits each, changed by a line of Python.
logits() {
  python3 - "$2" >"$1.json" <<'EOF'
import json, sys
requests = [{"output_token_ids": [10, 11, 12],
             "top_logits": [[[10 + step, 4.0], [20, 3.9999], [21, 1.5], [22, -0.5]] for step in range(3)]} for _ in range(2)]
document = {"model": {"layers": 2, "hidden": 128, "ffn": 352}, "requests": requests}
exec(sys.argv[1])
print(json.dumps(document, indent=1))
EOF
  awk -f "$scripts/json_lines.awk" "$1.json" >"$1"
}
logits "$work/reference" ""

# comm.py RANKS CHANGE OPTION…: what `comm` leaves under --json: for each way, data type, mode and size of its options (of the
# sizes: the ends and those of decoding) a row; changed by a line of Python.
cat >"$work/comm.py" <<'EOF'
import json, sys
ranks, change, options = int(sys.argv[1]), sys.argv[2], dict(zip(sys.argv[3::2], sys.argv[4::2]))
ways = options["--allreduce"].split(",") if "--allreduce" in options else ["nccl", "nccl-symmetric", "one-shot", "two-shot"]
least, most = int(options["--min-bytes"]), int(options["--max-bytes"])
sizes = sorted({least, most, *(size for size in (8192, 32768, 65536) if least < size < most)})
rows = [{"tp": ranks, "bytes": size, "dtype": dtype, "algorithm": way, "graph": graph == "on",
         "time_us": {"p50": 10.0 - number}, "busbw_gb_per_s": 100.0 + number, "wrong": 0}
        for dtype in options["--dtype"].split(",") for graph in options["--graphs"].split(",") for size in sizes
        for number, way in enumerate(ways) if size <= 262144 or "shot" not in way]
left_out = [{"tp": ranks, "algorithm": way, "why": "of messages above 262144 bytes"} for way in ways if "shot" in way]
document = {"schema": "shardscope.comm/1", "complete": True, "rows": rows, "left_out": left_out}
status = None
exec(change)
json.dump(document, open(options["--json"], "w"), indent=1)
sys.exit(status)
EOF

# result TP STATUS TPOT MBU SPEEDUP: one of `scale`.
result() { printf '{"tp": %d, "status": "%s", "tpot_ms": {"p50": %s}, "mbu": {"mean": %s}, "speedup": %s}' "$@"; }
results() { printf '{"results": [%s]}' "$(IFS=, && printf '%s' "$*")" >"$work/scale.json"; }

# ---- fakes ----------------------------------------------------------------------------------------------------------

# gpus_are COUNT
gpus_are() {
  fake nvidia-smi <<EOF
case \$1 in
  *driver_version*) echo 580.00 ;;
  *) for ((i = 0; i < $1; ++i)); do echo "\$i, NVIDIA H200, 9.0, Disabled, GPU-0000000\$i-aaaa-bbbb-cccc-dddddddddddd"; done ;;
esac
EOF
}
gpus_are 1
fake ldd <<<'[[ $LD_LIBRARY_PATH == *"/site-packages/nvidia/"* ]] || echo "	libnccl.so.2 => not found"'
fake ldconfig <<<'exit 0'
virtual="$work/venv/lib/python3.12/site-packages/nvidia/nccl/lib"
mkdir -p "$virtual"
touch "$virtual/libnccl.so.2"
export VIRTUAL_ENV="$work/venv"

# program_is BODY: the packed shardscope, which runs BODY before its own answers. `comm` leaves what the line of Python in
# $work/comm.change makes of its document, `scale` leaves $work/scale.json.
packed="$copy/build-gpu/packed"
mkdir -p "$packed"/{bin,lib}
touch "$packed/bin/libshardscope_cuda.so"
echo "abcdef" >"$packed/commit"
program_is() {
  cat >"$packed/bin/shardscope" <<EOF
#!/usr/bin/env bash
echo "\$*" >>"$work/shardscope.calls"
words="\$*"
$1
[[ \$1 != --version ]] || { echo "shardscope 0.1.0"; exit; }
if [[ \$1 == comm ]]; then
  shift 3
  [[ \$1 != --oversubscribe-devices ]] || shift
  exec python3 "$work/comm.py" "\$FAKE_RANKS" "\$(<"$work/comm.change")" "\$@"
fi
while [[ \$# -gt 0 && \$1 != --json ]]; do shift; done
case \$words in
  bench*) echo '{"results": [{"mbu": {"mean": 0.87}, "mbu_achievable": {"mean": 0.95}, "tpot_ms": {"p50": 4.2}}]}' >"\$2" ;;
  scale*) cp "$work/scale.json" "\$2" ;;
  *--dry-run*) echo '{"plans": [{"ranks": [{"bytes_per_step": {"weights": 1000.0, "kv_read": 50.5, "activations": 9}}]}]}' >"\$2" ;;
  *--json*) cp "$work/reference.json" "\$2" ;;
esac
EOF
  chmod +x "$packed/bin/shardscope"
}
program_is ""
: >"$work/comm.change"
results "$(result 1 ok 4.0 0.8 1.0)" "$(result 4 ok 2.0 0.5 2.0)"
kernels_are() {
  printf '#!/usr/bin/env bash\n%s\n' "$1" >"$packed/bin/kernels_gpu_test"
  chmod +x "$packed/bin/kernels_gpu_test"
}
kernels_are 'echo "[[$*]]"; echo "All tests passed (10 assertions in 2 test cases)"'

# One process for all ranks, which is told how many they are.
mpirun_runs='while [[ $1 != -np ]]; do shift; done; export FAKE_RANKS=$2; shift 2; exec "$@"'
fake mpirun <<<"$mpirun_runs"
fake compute-sanitizer <<<'echo "========= ERROR SUMMARY: 0 errors"; while [[ $1 != env ]]; do shift; done; exec "$@" >/dev/null'
csv_header='"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
fake ncu <<EOF
echo '$csv_header'
echo '"0","1","loading","dram__bytes_read.sum","byte","5,000"'
for ((i = 0; i < \${*: -1}; ++i)); do echo '"1","1","step","dram__bytes_read.sum","byte","1,055"'; done
EOF
