#!/usr/bin/env python3
"""That coverage.py sees what ran and what did not, in small programs of g++: one file per case, as kernels are compiled."""
import pathlib
import subprocess
import sys
import tempfile

COVERAGE = pathlib.Path(__file__).with_name("coverage.py")
# Two instances of a template, each of which runs another branch; and a function that runs only if asked for.
KERNEL = """template <int kWhich>
int pick(int x) {
  if (kWhich == x) {
    return 3 * x;
  }
  return x - 1;
}
int rarely(int x) {
  return x * x;
}
int use(int count) { return pick<1>(1) + pick<2>(1) + (count > 1 ? rarely(count) : 0); }
"""


def check(what, condition, seen):
    print(f"{'ok' if condition else 'FAILED'}: {what}")
    if not condition:
        sys.exit(f"seen: {seen}")


def look(root, least=95):
    done = subprocess.run([sys.executable, COVERAGE, root / "build", "--root", root, "--least", str(least)],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def main():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        (root / "kernels/cuda").mkdir(parents=True)
        (root / "build").mkdir()
        status, seen = look(root)
        check("no kernels at all is a failure", status == 1 and "no .cu file" in seen, seen)

        kernel = root / "kernels/cuda/small.cu"
        kernel.write_text(KERNEL, encoding="utf-8")
        program = root / "main.cpp"
        program.write_text("int use(int); int main(int count, char**) { return use(count) == 0; }\n", encoding="utf-8")
        subprocess.run(["g++", "-O1", "--coverage", "-x", "c++", "-c", kernel, "-o", "small.o"], cwd=root / "build", check=True)
        subprocess.run(["g++", "--coverage", program, "small.o", "-o", "program"], cwd=root / "build", check=True)
        status, seen = look(root)
        check("a kernel of which nothing ran is a failure", status == 1 and "small.cu: no counts" in seen, seen)

        subprocess.run([root / "build/program"], check=True)
        status, seen = look(root)
        check("a line that never ran is shown with its text, and too few lines fail",
              status == 1 and "small.cu:9: return x * x;" in seen and "% of its lines were run, wanted 95 %" in seen, seen)
        check("instances of a template add up", "small.cu:4" not in seen and "small.cu:6" not in seen, seen)
        status, seen = look(root, 50)
        check("enough lines pass", status == 0, seen)

        subprocess.run([root / "build/program", "more"], check=True)
        status, seen = look(root)
        check("several runs add up", status == 0 and "100.0 %" in seen, seen)

        (root / "kernels/cuda/forgotten.cu").write_text("int x;\n", encoding="utf-8")
        status, seen = look(root)
        check("a kernel file that no program was compiled from is a failure",
              status == 1 and "forgotten.cu: no counts" in seen, seen)


if __name__ == "__main__":
    main()
