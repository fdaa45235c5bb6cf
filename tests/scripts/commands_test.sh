#!/usr/bin/env bash
# launch/quickstart, tests/run and .ci/run from end to end, with fakes for cmake, ctest, mpirun and shardscope.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=support.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/support.sh"

mkdir -p "$SHARDSCOPE_CACHE"
model="$SHARDSCOPE_CACHE/SmolLM2-135M-Instruct.Q4_1.gguf"
printf 'tiny' >"$model"
sed -i -e "s/^model_bytes=.*/model_bytes=4/" \
  -e "s/^model_sha256=.*/model_sha256=$(sha256sum "$model" | cut -c1-64)/" "$copy/launch/lib.sh"
fake dpkg-query <<<'shift 2; printf "installed %s\n" "$@"'
fake apt-get <<<'exit 1'
fake sudo <<<'exit 1'
fake nvidia-smi <<<'echo "NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver."; exit 9'
executable="$copy/build/launch/shardscope"

# build_makes BODY: from now on `cmake --build` leaves a shardscope that runs BODY.
build_makes() {
  printf '#!/usr/bin/env bash\n%s\n' "$1" >"$work/shardscope"
  fake cmake <<EOF
[[ \$1 == --build ]] || exit 0
mkdir -p "$copy/build/launch"
cp "$work/shardscope" "$executable"
chmod +x "$executable"
EOF
}
good_program='
if [[ $1 == generate ]]; then echo "noise" >&2; printf " Paris."; exit; fi
while [[ $1 != --json ]]; do shift; done
echo "progress" >&2
echo "{\"complete\": true}" >"$2"
echo "THE TABLE"'
fake mpirun <<<'
echo "$OMPI_MCA_rmaps_base_oversubscribe $OMPI_MCA_mpi_yield_when_idle ${OMPI_ALLOW_RUN_AS_ROOT:-} ${OMPI_ALLOW_RUN_AS_ROOT_CONFIRM:-}" \
  >"$(dirname "$0")/../mpirun.environment"
while [[ $1 != build/launch/shardscope ]]; do shift; done; exec "$@"'

begin "quickstart: text and table on standard output, the report under its name, from any folder"
build_makes "$good_program"
capture env -C / "$copy/launch/quickstart"
expect_status 0
[[ $(<"$work/stdout") == $'The capital of France is Paris.\nTHE TABLE' ]] || wrong "standard output: $(<"$work/stdout")"
expect "$copy/build/quickstart-report.json"
expect "progress"
expect_not "noise"
expect_calls cmake "--target shardscope"
expect_calls mpirun "-q -np 2 build/launch/shardscope scale --model $model --tp 1,2 --json build/quickstart-report.json"
expect_no_calls apt-get
root_words=$([[ $EUID != 0 ]] || echo '1 1')
[[ $(<"$work/mpirun.environment") == "1 1 ${root_words:- }" ]] || wrong "MPI environment: $(<"$work/mpirun.environment")"

begin "quickstart: --ranks and --model, through a link"
ln -s "$copy/launch/quickstart" "$work/link"
capture "$work/link" --ranks 6 --model "$model"
expect_status 0
expect_calls mpirun "-np 6 build/launch/shardscope scale --model $model --tp 1,2,4,6"
capture "$work/link" --ranks 1
expect_status 0
expect_calls mpirun "-np 1 build/launch/shardscope scale --model $model --tp 1 --json"

begin "quickstart: a driver that does not answer is told, and CPU ranks do it"
capture "$copy/launch/quickstart"
expect_status 0
expect "no GPU is used: nvidia-smi: NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver."
expect_calls mpirun "-np 2 build/launch/shardscope scale --model $model --tp 1,2 --json"

begin "quickstart: wrong usage"
for arguments in "--rank 2" "--ranks" "--ranks 0" "--ranks two" "--jobs 0" "--model /nowhere"; do
  # shellcheck disable=SC2086  # the words of one case
  capture "$copy/launch/quickstart" $arguments
  expect_status 2
  expect_last_line "quickstart: error: "
done

begin "quickstart: a failing build is told with step, why and what to do"
fake cmake <<<'[[ $1 != --build ]] || { echo "a.cpp:1:2: error: no such thing"; echo "ninja: build stopped"; exit 1; }'
capture "$copy/launch/quickstart"
expect_status 1
expect_last_line 'quickstart: step "building" failed: cmake --build --preset cpu: a.cpp:1:2: error: no such thing; what to do: '
expect_no_calls mpirun

begin "quickstart: a failing generate is told, and scale does not run"
build_makes 'echo "shardscope: error: bad file, x.gguf byte 0, get another" >&2; exit 2'
capture "$copy/launch/quickstart"
expect_status 1
expect_last_line 'quickstart: step "generating text" failed: shardscope generate: shardscope: error: bad file'
expect_no_calls mpirun

begin "quickstart: a generate that prints nothing is a failure"
build_makes 'exit 0'
capture "$copy/launch/quickstart"
expect_status 1
expect "printed no text"

begin "quickstart: a failing scale is told, and an old report does not pass for a new one"
build_makes '[[ $1 != generate ]] || { printf text; exit; }; echo "shardscope: error: no memory" >&2; exit 1'
echo '{"complete": true}' >"$copy/build/quickstart-report.json"
capture "$copy/launch/quickstart"
expect_status 1
expect_last_line 'quickstart: step "measuring tensor parallelism" failed: shardscope scale: shardscope: error: no memory'
build_makes 'printf text'
capture "$copy/launch/quickstart"
expect_status 1
expect "left no complete report"

begin "quickstart: a build folder of another user's is named"
if ((EUID != 0)); then
  chmod 555 "$copy/build"
  capture "$copy/launch/quickstart"
  chmod 755 "$copy/build"
  expect_status 1
  expect "cannot be written by $(id -un)"
fi

# A toolkit in the cache, a build that makes the program for a GPU, and a fuzzer and a look at coverage that are content.
hide_toolkits
cache_toolkit
mkdir -p "$copy/tests/kernels/cuda" "$copy/tests/fuzz"
# gpu_test_is BODY, coverage_is BODY: what these do from now on.
gpu_test_is() {
  fake cmake <<EOF
[[ "\$1 \$3" == "--build cuda" ]] || exit 0
mkdir -p "$copy/build-cuda/tests/kernels/cuda"
printf '#!/usr/bin/env bash\n%s\n' '$1' >"$copy/build-cuda/tests/kernels/cuda/kernels_gpu_test"
chmod +x "$copy/build-cuda/tests/kernels/cuda/kernels_gpu_test"
EOF
}
coverage_is() {
  printf '#!/usr/bin/env bash\necho "$*" >>"%s/coverage.calls"\n%s\n' "$work" "$1" >"$copy/tests/kernels/cuda/coverage.py"
  chmod +x "$copy/tests/kernels/cuda/coverage.py"
}
# fuzz_is BODY: what the fuzzer does from now on.
fuzz_is() {
  printf '#!/usr/bin/env bash\necho "$*" >>"%s/fuzz.calls"\n%s\n' "$work" "$1" >"$copy/tests/fuzz/run"
  chmod +x "$copy/tests/fuzz/run"
}
gpu_test_is 'echo "no GPU here"; exit 4'
fuzz_is 'exit 0'
coverage_is 'echo "100.0 % of a.cu"'

begin "tests/run: kernels by nvcc, sanitizer tests, their lines, all tests last, and the model's path for all"
fake ctest <<'EOF'
echo "model $SHARDSCOPE_TEST_MODEL"
echo "Total Test time (real) = 0.00 sec"
EOF
mkdir -p "$copy/build-asan"
touch "$copy/build-asan/old.gcda"
capture "$copy/.ci/run"
expect_status 0
expect "model $model"
expect "no GPU here"
expect "100.0 % of a.cu"
expect_calls coverage "build-asan"
expect_calls fuzz "--seconds 45"
[[ ! -e $copy/build-asan/old.gcda ]] || wrong "counts of an earlier run are still there"
expect_calls cmake "--preset cpu -DSHARDSCOPE_CUDA_TOOLKIT=$toolkit -DSHARDSCOPE_CUDA_PACKAGES=$nvml"
expect_calls cmake "--preset asan -DSHARDSCOPE_CUDA_TOOLKIT=$toolkit"
expect_calls cmake "--preset cuda -DSHARDSCOPE_CUDA_TOOLKIT=$toolkit -DSHARDSCOPE_CUDA_PACKAGES=$nvml -DCMAKE_CUDA_ARCHITECTURES=90-real"
expect_calls cmake "--target shardscope kernels_gpu_test seam_real"
[[ $(tail -n1 "$work/stdout") == "Total Test time"* ]] || wrong "ctest's closing line is not the last"
[[ $(tail -n1 "$work/stderr") == "==> all tests" ]] || wrong "something is said after the last stage"
[[ $(calls ctest | head -n1) == "--preset cuda -L nvcc "*"--no-tests=error"* ]] || wrong "calls: $(calls ctest)"
[[ $(calls ctest | sed -n 2p) == "--preset asan -L unit -LE scripts "*"--no-tests=error"* ]] || wrong "calls: $(calls ctest)"
[[ $(calls ctest | tail -n1) == "--preset cpu "*"--no-tests=error"* ]] || wrong "calls: $(calls ctest)"
expect_calls cmake "--build --preset asan"
expect_calls cmake "--target unit_tests"

begin "tests/run: -R reaches both, and no unit test needs to match"
capture "$copy/tests/run" -R "a b"
expect_status 0
expect_calls ctest "--no-tests=ignore -R a b"
expect_calls ctest "--no-tests=error -R a b"
expect_no_calls coverage
expect_no_calls fuzz

begin "tests/run: kernels that fail on a GPU, and lines that no test runs, fail the run"
gpu_test_is 'exit 1'
coverage_is 'exit 1'
capture "$copy/tests/run"
expect_status 1
expect_last_line 'tests/run: FAILED: "kernels compiled by nvcc" "lines of the kernels that tests run"'
expect_calls ctest "--preset cpu"
gpu_test_is 'exit 0'
coverage_is 'exit 0'

begin "tests/run: a finding of the fuzzer fails the run"
fuzz_is 'exit 1'
capture "$copy/tests/run"
expect_status 1
expect_last_line 'tests/run: FAILED: "readers of topologies, fuzzed for 45 s"'
fuzz_is 'exit 0'

begin "tests/run: kernels that take too much fail the run"
fake ctest <<<'[[ $2 != cuda ]]'
capture "$copy/tests/run"
expect_status 1
expect_last_line 'tests/run: FAILED: "kernels compiled by nvcc"'

begin "tests/run: a failure under the sanitizers fails the run; the other tests run all the same"
fake ctest <<<'[[ $2 != asan ]]'
capture "$copy/tests/run"
expect_status 1
expect_calls ctest "--preset cpu"
expect_last_line 'tests/run: FAILED: "unit tests under AddressSanitizer and UndefinedBehaviorSanitizer"'

begin "tests/run: a failure of the last stage fails the run"
fake ctest <<<'[[ $2 != cpu ]]'
capture "$copy/tests/run"
expect_status 1
expect_last_line 'tests/run: FAILED: "all tests"'

begin "tests/run: without a CUDA toolkit nothing is built"
mv "$toolkit" "$work/toolkit"
fake python3 <<<'echo "Retrying after connection broken"; exit 1'
capture "$copy/tests/run"
expect_status 1
expect_last_line 'tests/run: step "fetching the CUDA toolkit" failed: the package index could not be reached'
expect_no_calls cmake
mv "$work/toolkit" "$toolkit"

begin "tests/run: without the model no test runs"
rm "$model"
fake python3 <<<'echo "Retrying after connection broken"; exit 1'
capture "$copy/tests/run"
expect_status 1
expect_last_line 'tests/run: step "fetching the model" failed: the package index could not be reached'
expect_no_calls ctest

begin "tests/run: an unforeseen failure is told too"
fake cmake <<<'exit 0'
sed -i 's/^mpi_environment$/false/' "$copy/tests/run"
printf 'tiny' >"$model"
capture "$copy/tests/run"
expect_status 1
expect 'tests/run: step "fetching the model" failed: "false" ended with status 1; what to do: run it again'
echo "all good"
