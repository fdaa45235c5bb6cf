#!/usr/bin/env python3
"""What a kernel file must not be able to say: compiled with the kernels' own flags, each of these snippets must be refused
with its message, and the same file without it must compile. And where the checker's hooks are, and where not.

    compile_test.py BUILD_FOLDER
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

FRAME = """
#include <cstring>
#include <string>
#include "kernels/cuda/ptx.cuh"
namespace shardscope::cuda {{
namespace {{
{outside}
__global__ void kernel(const unsigned char* in, unsigned char* out, size_t bytes) {{
  SHARDSCOPE_SHARED(int, box, 4);
  box[threadIdx.x] = static_cast<int>(bytes);
  __syncthreads();
  out[threadIdx.x] = static_cast<unsigned char>(in[threadIdx.x] + box[0]);
  {inside}
}}
}}  // namespace
cudaError_t run(const unsigned char* in, unsigned char* out) {{
  {host}
  return launch({{1, 4}}, kernel, in, out, 4);
}}
}}  // namespace shardscope::cuda
"""
# Where, what, and the message that must come.
REFUSED = (
    ("inside", "memcpy(out, in, 18);", "poisoned \"memcpy\""),
    ("inside", "std::memcpy(out, in, bytes);", "poisoned \"memcpy\""),
    ("inside", "memmove(out, in, bytes);", "poisoned \"memmove\""),
    ("inside", "memset(out, 0, bytes);", "poisoned \"memset\""),
    ("inside", "__shared__ int raw[4]; raw[0] = 1;", "shared_memory_is_declared_with_SHARDSCOPE_SHARED"),
    ("inside", "extern __shared__ int raw[]; raw[0] = 1;", "shared_memory_is_declared_with_SHARDSCOPE_SHARED"),
    ("outside", "__constant__ float table[4];", "constants_are_passed_as_parameters"),
    ("inside", "out[0] = static_cast<unsigned char>(__shfl_down(1, 2));", "__shfl_down.* was not declared"),
    ("inside", "out[0] = static_cast<unsigned char>(__vadd4(1, 2));", "__vadd4.* was not declared"),
    ("host", "kernel<<<1, 4>>>(in, out, 4);", "expected primary-expression before .<. token"),
    ("host", "static_cast<void>(launch({1, 4}, kernel, in, out));", "one argument for each parameter of the kernel"),
    ("host", "void (*other)(std::string) = nullptr; static_cast<void>(launch({1, 1}, other, std::string()));",
     "arguments are copied byte by byte"),
)


def compile_command(build, target, source):
    """The command that compiles `source` for `target`, without its output."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        if f"{target}.dir/" in entry["command"] and entry["file"].endswith(source):
            words = words[1:] if pathlib.Path(words[0]).name == "ccache" else words
            at = words.index("-o")
            return [w for w in words[:at] + words[at + 2:] if w not in ("-c", entry["file"])]
    sys.exit(f"no command for {source} of {target} in {build}/compile_commands.json")


def compiler_says(command, folder, **parts):
    """Empty if the frame with these parts compiles, else the compiler's messages."""
    source = folder / "kernel.cu"
    source.write_text(FRAME.format(**({"outside": "", "inside": "", "host": ""} | parts)))
    run = subprocess.run([*command, "-fsyntax-only", str(source)], cwd=folder, capture_output=True, text=True,
                         check=False, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"})
    return "" if run.returncode == 0 else run.stderr


def undefined_symbols(path):
    run = subprocess.run(["nm", "-D", "--undefined-only", str(path)], capture_output=True, text=True, check=True)
    return {line.split()[-1].split("@")[0] for line in run.stdout.splitlines() if line.strip()}


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    failures = []

    def check(holds, what):
        print(("ok: " if holds else "FAILED: ") + what)
        if not holds:
            failures.append(what)

    with tempfile.TemporaryDirectory() as folder:
        for mode in ("plain", "checked"):
            command = compile_command(build, f"emulation_kernels_{mode}", "planted/warps.cu")
            messages = compiler_says(command, pathlib.Path(folder))
            check(messages == "", f"{mode}: the frame alone compiles{messages and ': ' + messages}")
            for where, snippet, expected in REFUSED if mode == "checked" else REFUSED[:1]:
                messages = compiler_says(command, pathlib.Path(folder), **{where: snippet})
                check(re.search(expected, messages), f"{mode}: refused with {expected!r}: {snippet}")

    folder = build / "tests/emulation"
    hooks = {"__tsan_read4", "__tsan_write4", "__tsan_func_entry"}
    checked = undefined_symbols(folder / "libemulation_kernels_checked.so")
    check(hooks <= checked, "the checked kernels call the hooks")
    check(not {"memcpy", "memset", "memmove"} & checked, "the checked kernels call no memcpy that nobody sees")
    for name in ("libemulation_kernels_plain.so", "emulation_test_plain", "emulation_test_checked", "libemulation.so"):
        found = sorted(s for s in undefined_symbols(folder / name) if s.startswith("__tsan_"))
        check(not found, f"{name} calls no hook" + (": " if found else "") + ", ".join(found))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
