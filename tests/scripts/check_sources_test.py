#!/usr/bin/env python3
"""check_sources.py finds each planted offence, and nothing in a tree that keeps the rules."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKER = pathlib.Path(__file__).with_name("check_sources.py")
GOOD = {
    "kernels/base/error.hpp": "#pragma once\n#include <string>\n",
    "kernels/dtype.hpp": '#pragma once\n#include "kernels/base/error.hpp"\n',
    "kernels/cuda/gemv.cu": '#include <cuda_runtime.h>\n#include "kernels/dtype.hpp"\n'
                            "// memcpy, __shared__, <<<1, 2>>> and asm are only words here\n"
                            'const char* a = "asm(memset)"; void g() { cudaMemcpy(p, q, 1 << 2); fill(p); copy_tile(q); }\n',
    "kernels/cuda/planes.cpp": "void f() { std::memcpy(p, q, n); }\n",
    "kernels/cuda/ptx.cuh": '#pragma once\nvoid g() { asm volatile(""); }\n',
    "kernels/cuda/portable.cuh": "#pragma once\n__shared__ int a[2];\n",
    "topology/host.hpp": '#pragma once\n#include "kernels/base/error.hpp"\n',
    "topology/nvml/probe.cpp": "#include <nvml.h>\n",
    "parallel/world.cpp": '#include <mpi.h>\n#include "topology/host.hpp"\n#include "kernels/dtype.hpp"\n',
    "parallel/world.hpp": "#pragma once\n",
    "parallel/cuda/nccl.cpp": "#include <nccl.h>\n",
    "runtime/decoder.cpp": '#include "parallel/world.hpp"\n#include "topology/host.hpp"\n#include "helper.hpp"\n'
                           "// printf(1); getenv(2); int main() and stdout are only words here\n"
                           '/* #include <mpi.h>\n   std::cout */\nconst char* a = "getenv(\\"HOME\\") std::cout";\n'
                           'const char* b = R"x(int main() #include <mpi.h> ")x";\nint n = 1\'000\'000; char c = \'"\';\n'
                           "void f() { std::fprintf(stderr, a); std::snprintf(b, n, a); fmt::print(stderr, a); std::fflush(stdout); }\n",
    "runtime/helper.hpp": "#pragma once\n",
    "launch/main.cpp": '#include "runtime/helper.hpp"\n#include "topology/host.hpp"\n'
                       "int main() { std::cout << std::getenv(0); }\n",
    "tests/kernels/dtype_test.cpp": '#include <mpi.h>\n#include "kernels/dtype.hpp"\n#include "launch/x.hpp"\n',
}
# What is planted, where, and what the report has to say in that line.
OFFENCES = [
    ("kernels/a.cpp", '#include "parallel/world.hpp"', "kernels/a.cpp:1: kernels/ may not include parallel/world.hpp"),
    ("kernels/a.cpp", '#include "topology/host.hpp"', "kernels/ may not include topology/host.hpp"),
    ("kernels/cpu/a.cpp", '#include "../../runtime/helper.hpp"', "kernels/ may not include runtime/helper.hpp"),
    ("kernels/a.cpp", "#  include <runtime/helper.hpp>", "kernels/ may not include runtime/helper.hpp"),
    ("kernels/a.cpp", '#include "runtime/made_by_cmake.hpp"', "kernels/ may not include runtime/made_by_cmake.hpp"),
    ("topology/a.cpp", '#include "kernels/dtype.hpp"', "topology/ may not include kernels/dtype.hpp"),
    ("topology/a.cpp", '#include "parallel/world.hpp"', "topology/ may not include parallel/world.hpp"),
    ("parallel/a.cpp", '#include "runtime/helper.hpp"', "parallel/ may not include runtime/helper.hpp"),
    ("runtime/model/a.hpp", '#pragma once\n#include "launch/x.hpp"', "runtime/model/a.hpp:2: runtime/ may not include"),
    ("launch/a.cpp", '#include "tests/support/fake.hpp"', "launch/ may not include tests/support/fake.hpp"),
    ("runtime/a.cpp", "#include <mpi.h>", "runtime/a.cpp:1: mpi.h: headers of MPI"),
    ("launch/a.cpp", '/* one\n two */ #include "mpi.h"', "launch/a.cpp:2: mpi.h: headers of MPI"),
    ("kernels/cpu/a.cpp", "#include <cuda_runtime_api.h>", "headers of CUDA"),
    ("kernels/a.hpp", "#pragma once\n#include <cuda/atomic>", "kernels/a.hpp:2: cuda/atomic: headers of CUDA"),
    ("parallel/a.cpp", "#include <nccl.h>", "nccl.h: headers of CUDA"),
    ("topology/probe.cpp", "#include <nvml.h>", "nvml.h: headers of CUDA"),
    ("topology/probe.cpp", "int main(int, char**) {}", "main belongs to launch/"),
    ("runtime/a.cpp", "\n\nauto h = std::getenv(\"HOME\");", "runtime/a.cpp:3: getenv(: the environment belongs to"),
    ("parallel/a.cpp", "auto h = secure_getenv(name);", "the environment belongs to launch/"),
    ("runtime/a.cpp", "void f() { std::cout << 1; }", "standard output belongs to launch/"),
    ("kernels/a.cpp", "void f() { printf(text); }", "standard output belongs to launch/"),
    ("kernels/a.cpp", "void f() { std::fprintf(stdout, text); }", "standard output belongs to launch/"),
    ("parallel/a.cpp", "void f() { std::puts(text); }", "standard output belongs to launch/"),
    ("runtime/a.cpp", 'void f() { fmt::print("{}", 1); }', "standard output belongs to launch/"),
    ("tests/a_test.cpp", '\nTEST_CASE("a: one; two") {}', "tests/a_test.cpp:2: a semicolon in a test's name"),
    ("tests/a_test.cpp", 'TEST_CASE(\n    "a: one; two") {}', "a semicolon in a test's name"),
    ("runtime/a.hpp", "int x;", "a header without #pragma once"),
    ("kernels/cuda/a.cuh", "int x;", "a header without #pragma once"),
    ("kernels/cuda/a.cu", "\nvoid f() { memcpy(p, q, 18); }", "kernels/cuda/a.cu:2: memcpy in a kernel file: accesses that"),
    ("kernels/cuda/a.cu", "void f() { std::memset(p, 0, n); }", "memset in a kernel file"),
    ("kernels/cuda/a.cuh", "#pragma once\nvoid f() { ::memmove(p, q, n); }", "kernels/cuda/a.cuh:2: memmove in a kernel file"),
    ("kernels/cuda/a.cu", "void f() { __builtin_memcpy(p, q, n); }", "__builtin_memcpy in a kernel file"),
    ("kernels/cuda/a.cu", "void f() { std::copy_n(p, n, q); }", "std::copy_n in a kernel file"),
    ("kernels/cuda/a.cu", "void f() { std :: fill(p, q, 0); }", "std :: fill in a kernel file"),
    ("kernels/cuda/a.cu", "void f() { std::ranges::copy(p, q); }", "std::ranges::copy in a kernel file"),
    ("kernels/cuda/a.cu", "void f() { __shared__ float x[2]; }", "declared with SHARDSCOPE_SHARED"),
    ("kernels/cuda/deep/a.cu", "void f() { k<<<1, 2>>>(p); }", "<<< in a kernel file: kernels start through launch()"),
    ("kernels/cuda/a.cu", 'void f() { asm volatile("nop;"); }', "asm in a kernel file: PTX belongs to"),
]


def check(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, CHECKER, folder], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class CheckSources(unittest.TestCase):
    def test_a_tree_that_keeps_the_rules_passes(self):
        status, output = check(GOOD)
        self.assertEqual(status, 0, output)
        self.assertIn(f"{len(GOOD)} files, 0 offences", output)

    def test_each_planted_offence_is_found_alone(self):
        for name, text, wanted in OFFENCES:
            with self.subTest(name=name, text=text):
                status, output = check({**GOOD, name: text + "\n"})
                self.assertEqual(status, 1, output)
                self.assertIn(wanted, output)
                self.assertIn(", 1 offences", output)

    def test_a_tree_without_sources_fails(self):
        status, output = check({"README.md": "nothing"})
        self.assertEqual(status, 1)
        self.assertIn("no sources", output)


if __name__ == "__main__":
    unittest.main()
