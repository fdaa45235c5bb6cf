#!/usr/bin/env python3
"""Which lines of the CUDA kernels the emulated tests have run, from what gcov's instrumentation counted.

    coverage.py BUILD [--least PERCENT] [--root FOLDER]

BUILD: a build folder whose tests have run with instrumented kernels (preset asan: ctest --preset asan -L emulation).
Prints the share of each file of kernels/cuda and every line that never ran; ends with 1 if a file has less than PERCENT
(default 95), if one was not run at all, or if there are no counts.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]


def counts_of(data_file):
    """gcov's counts of one object: {source: {line: executions}}, functions and their instances added up."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["gcov", "--json-format", "--stdout", data_file], cwd=folder, capture_output=True, text=True,
                              check=False)
    if done.returncode != 0 or not done.stdout.strip():
        sys.exit(f"coverage: gcov {data_file}: {done.stderr.strip() or 'printed nothing'}")
    found = collections.defaultdict(collections.Counter)
    for text in done.stdout.splitlines():
        document = json.loads(text)
        for file in document["files"]:
            source = pathlib.Path(document["current_working_directory"], file["file"]).resolve()
            for line in file["lines"]:
                found[source][line["line_number"]] += line["count"]
    return found


def add_up(build, kernels):
    total = collections.defaultdict(collections.Counter)
    for data_file in sorted(build.rglob("*.gcda")):
        for source, lines in counts_of(data_file.resolve()).items():
            if source.is_relative_to(kernels):
                total[source].update(lines)
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--least", type=float, default=95.0)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    options = parser.parse_args()
    root = options.root.resolve()
    folder = root / "kernels" / "cuda"
    total = add_up(options.build, folder)
    kernels = sorted(folder.rglob("*.cu"))
    wrong = [] if kernels else [f"no .cu file in {folder}"]
    for source in sorted(set(total) | set(kernels)):
        lines = total.get(source, {})
        missed = sorted(line for line, count in lines.items() if count == 0)
        name = source.relative_to(root)
        if not lines:
            wrong.append(f"{name}: no counts: it was not compiled for the emulation, or no test ran")
            continue
        share = 100.0 * (len(lines) - len(missed)) / len(lines)
        print(f"{share:6.1f} %  of {len(lines):4} lines  {name}")
        text = source.read_text(encoding="utf-8").splitlines()
        for line in missed:
            print(f"          never run: {name}:{line}: {text[line - 1].strip()}")
        if not share >= options.least:
            wrong.append(f"{name}: {share:.1f} % of its lines were run, wanted {options.least:g} %")
    for what in wrong:
        print(f"coverage: {what}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
