#!/usr/bin/env python3
"""That resources_test.py finds what it is there for: a kernel that spills, compiled by nvcc, and tables that disagree.

    resources_check_test.py NVCC
"""
import pathlib
import subprocess
import sys
import tempfile

import resources_test

ROOT = pathlib.Path(__file__).parents[3]
# 96 floats a thread live across a barrier, where 1024 threads leave 64 registers to each.
PLANTED = """
namespace {
template <class T>
__global__ void __launch_bounds__(1024) spilling(float* data, T factor) {
  __shared__ float shared[32];
  float local[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) local[i] = data[i * 1024 + threadIdx.x];
  shared[threadIdx.x % 32] = local[0];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; ++i) data[i * 1024 + threadIdx.x] = local[(i * 7) % 96] * local[95 - i] * factor + shared[i % 32];
}
}
__global__ void lean(float* data) { data[threadIdx.x] += 1.0f; }
void use(float* data) { spilling<float><<<1, 1024>>>(data, 2.0f); lean<<<1, 32>>>(data); }
"""


def check(what, condition, seen):
    print(f"{'ok' if condition else 'FAILED'}: {what}")
    if not condition:
        sys.exit(f"seen: {seen}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "planted.cu"
        source.write_text(PLANTED, encoding="utf-8")
        planted = pathlib.Path(folder) / "planted.o"
        built = subprocess.run([ROOT / "kernels/cuda/ptxas_log", sys.argv[1], "-std=c++20", "-arch=sm_90", "-Xptxas=-v",
                                "-c", source, "-o", planted], capture_output=True, text=True)
        check("the planted kernel compiles, and ptxas_log leaves nothing of ptxas on standard error",
              built.returncode == 0 and "ptxas info" not in built.stderr, built)
        found = resources_test.measure([planted])
        check("kernels are found under their short names", set(found) == {"spilling<float>", "lean"}, found)
        lean = found["lean"]["90"]
        shared = found["spilling<float>"]["90"][1]
        check("static shared memory is read", (lean[1], shared) == (0, 128), found)

        table = {"lean": {"90": (32, 0)}, "spilling<float>": {"90": (64, 128)}}
        wrong = list(resources_test.offences(found, table))
        check("a kernel that spills is found, and the lean one is not",
              any("spilling<float>, sm_90: spills" in line for line in wrong) and
              any("stack frame" in line for line in wrong) and not any("lean" in line for line in wrong), wrong)

        alone = {"lean": {"90": lean}}
        for what, expected, other in (
                ("no offence where all agrees", None, {"lean": {"90": (lean[0], 0)}}),
                ("one register too many", "takes", {"lean": {"90": (lean[0] - 1, 0)}}),
                ("another amount of shared memory", "static shared memory", {"lean": {"90": (32, 16)}}),
                ("a kernel that the table lacks", "not in the table", {}),
                ("an architecture that the table lacks", "nothing for this", {"lean": {"80": (32, 0)}}),
                ("a kernel that is gone", "not compiled", {"lean": {"90": (32, 0)}, "gone": {"90": (32, 0)}})):
            wrong = list(resources_test.offences(alone, other))
            check(what, not wrong if expected is None else any(expected in line for line in wrong), wrong)
        other = {"lean": {"90": (1, 16)}, "spilling<float>": {"90": (1, 0)}}
        wrong = list(resources_test.offences(found, other, compare_amounts=False))
        check("of another compiler only spills and stack frames count",
              len(wrong) == 2 and all("spilling" in line for line in wrong), wrong)
        check("no kernels at all", list(resources_test.offences({}, {})) == ["no kernel was compiled"], "")

        written = pathlib.Path(folder) / "table.txt"
        resources_test.write_table(written, alone, {})
        check("what is written is read again, rounded up to eights",
              resources_test.read_table(written) == {"lean": {"90": ((lean[0] + 7) // 8 * 8, 0)}}, written.read_text())
        empty = subprocess.run([ROOT / "kernels/cuda/ptxas_log", "sh", "-c", "exit 3", "-o", planted], check=False)
        check("ptxas_log passes the compiler's status on", empty.returncode == 3, empty)
        try:
            resources_test.measure([planted])
            check("an object of which ptxas said nothing is refused", False, "")
        except ValueError as error:
            check("an object of which ptxas said nothing is refused", "said nothing" in str(error), error)


if __name__ == "__main__":
    main()
