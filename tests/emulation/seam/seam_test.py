#!/usr/bin/env python3
"""The seam holds: host code is compiled without a word of the emulation; a call that no stand-in offers does not link, and
a stand-in's function with another signature than the real header's does not compile. Each beside a control that must pass.

    seam_test.py BUILD_FOLDER PROGRAM EMULATION FAKE_CUBLASLT FAKE_NCCL FAKE_NVML
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

# Of each library: header, a call that the stand-in offers, one that exists but that it does not, and a definition with the
# header's signature as a pattern for one with another: (wrong, right).
LIBRARIES = {
    "cudart": ("cuda_runtime_api.h", "cudaDeviceSynchronize()", "cudaDeviceGetTexture1DLinearMaxWidth(nullptr, nullptr, 0)",
               ("cudaError_t cudaMalloc(void** p, int) { return *p = nullptr, cudaSuccess; }",
                "cudaError_t cudaMalloc(void** p, size_t) { return *p = nullptr, cudaSuccess; }")),
    "cublasLt": ("cublasLt.h", "cublasLtDestroy(nullptr)",
                 "cublasLtMatrixTransform(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, "
                 "nullptr)",
                 ("int cublasLtCreate(cublasLtHandle_t*) { return 0; }",
                  "cublasStatus_t cublasLtCreate(cublasLtHandle_t*) { return CUBLAS_STATUS_SUCCESS; }")),
    "nccl": ("nccl.h", "ncclCommAbort(nullptr)", "ncclReduce(nullptr, nullptr, 0, ncclFloat, ncclSum, 0, nullptr, nullptr)",
             ("ncclResult_t ncclCommAbort(void*) { return ncclSuccess; }",
              "ncclResult_t ncclCommAbort(ncclComm_t) { return ncclSuccess; }")),
}
NVML_ALWAYS = {"nvmlShutdown", "nvmlErrorString", "shardscope_fake_nvml_use"}


def compile_command(build, target, source):
    """The command that compiles `source` for `target`, without its output."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        if f"{target}.dir/" in entry["command"] and entry["file"].endswith(source):
            words = words[1:] if pathlib.Path(words[0]).name == "ccache" else words
            at = words.index("-o")
            return [w for w in words[:at] + words[at + 2:] if w not in ("-c", entry["file"])]
    sys.exit(f"no command for {source} of {target} in {build}/compile_commands.json")


def output_of(command, **options):
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                         env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"} | options)
    return run.returncode, run.stdout + run.stderr


def symbols(path, *options):
    status, text = output_of(["nm", *options, path])
    if status != 0:
        sys.exit(f"nm {path}: {text}")
    return {line.split()[-1].split("@")[0] for line in text.splitlines() if len(line.split()) >= 2}


def main():
    build, program, emulation, cublaslt, nccl, nvml = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    command = compile_command(build, "seam_objects", "program.cpp")
    failures = []

    def check(holds, what):
        print(("ok: " if holds else "FAILED: ") + what)
        if not holds:
            failures.append(what)

    # The program.
    check(not [word for word in command if re.search("EMULAT|CHECKED|tests/emulation/device", word)],
          "host code is compiled without a macro or folder of the emulation")
    [built] = (build / "tests/emulation/seam/CMakeFiles/seam_objects.dir").glob("program.cpp.o")
    wanted = symbols(built, "--undefined-only")
    check(not [name for name in wanted if "emulation" in name], "its object asks for nothing of the emulation's own")
    check(all(any(name.startswith(prefix) for name in wanted) for prefix in ("cuda", "cublasLt", "nccl")),
          "its object asks for functions of all three libraries")
    for settings, gpu in (("devices=2,model=a100", "NVIDIA A100-SXM4-80GB, compute capability 8.0"),
                          ("model=h200,seed=5", "NVIDIA H200, compute capability 9.0"),
                          ("policy=worker", "NVIDIA H100 80GB HBM3, compute capability 9.0")):
        status, text = output_of([program], SHARDSCOPE_EMULATION=settings)
        check((status, text) == (0, f"{gpu}: 19 22 / 43 50\n"), f"it runs with {settings}: {status}, {text.strip()}")
    status, text = output_of([program], CUDA_VISIBLE_DEVICES="-1")
    check(status == 4 and text.startswith("no GPU: cudaGetDeviceCount gives 100 (cudaErrorNoDevice)"),
          f"it says that no GPU is visible: {status}, {text.strip()}")
    status, text = output_of([program], SHARDSCOPE_EMULATION="fail=ncclAllReduce:1:3")
    check(status == 1 and "ncclAllReduce" in text and "gives 3" in text, f"it names what failed: {status}, {text.strip()}")

    # What does not link, and what does not compile.
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "caller.cpp"

        def linked(header, call):
            source.write_text(f"#include <{header}>\nint main() {{ static_cast<void>({call}); }}\n")
            return output_of([*command, source, "-o", pathlib.Path(folder) / "caller", cublaslt, nccl, emulation, "-lfmt",
                              f"-Wl,-rpath,{emulation.parent}"])

        def compiled(header, definition):
            source.write_text(f'#include <{header}>\nextern "C" {definition}\n')
            return output_of([*command, "-fsyntax-only", source])

        for library, (header, offered, unknown, (wrong, right)) in LIBRARIES.items():
            status, text = linked(header, offered)
            check(status == 0, f"{library}: a call that is offered links: {offered}{text and ': ' + text}")
            status, text = linked(header, unknown)
            name = unknown.split("(")[0]
            check(status != 0 and f"undefined reference to `{name}'" in text and "error: '" not in text,
                  f"{library}: a call that is not offered does not link: {name}")
            status, text = compiled(header, right)
            check(status == 0, f"{library}: a definition with the header's signature compiles{text and ': ' + text}")
            status, text = compiled(header, wrong)
            check(status != 0 and re.search("conflicting declaration|ambiguating new declaration", text),
                  f"{library}: a definition with another signature does not compile: {wrong}")

    # What the stand-in for NVML shows is what it says it has.
    words = (pathlib.Path(__file__).parent.parent / "fakes/machine_words.hpp").read_text()
    listed = set(re.findall(r'"(nvml\w+)"', words)) | NVML_ALWAYS
    exported = symbols(nvml, "-D", "--defined-only")
    check(exported == listed, f"NVML: it exports what is listed, no more, no less: {sorted(exported ^ listed)}")
    status, text = output_of(["readelf", "-d", nvml])
    check("soname: [libnvidia-ml.so.1]" in text, "NVML: its name is the real one's")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
